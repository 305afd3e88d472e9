"""Values of every type through Arrow, as a worker of Spark reads and writes them, without Spark."""

import struct
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from tests.support.typed_values import TYPES
from tidemark.engine.process.arrow_values import arrow_type, object_reader, stored_reader
from tidemark.model.core.types import FieldType
from tidemark.processing.shapes import Shape, shape_of
from tidemark.processing.value_codec import codec_of

pickles: Any = cloudpickle


@dataclass(frozen=True)
class Held:
    """What a worker gets pickled."""

    shape: Shape


@pytest.mark.parametrize("name", TYPES)
def test_a_worker_reads_what_tables_store_as_python_has_it(name: str) -> None:
    of = TYPES[name]
    shape: Any = pickles.loads(pickles.dumps(Held(shape_of(of.annotation | None, name)))).shape
    column = pa.array([None, *of.stored, None], arrow_type(shape.type))
    assert object_reader(shape)(column) == [None, *of.python, None]
    assert object_reader(shape)(column.slice(1, 2)) == list(of.python)
    assert stored_reader(shape.type)(column) == [None, *of.stored, None]
    dumped = [codec_of(shape).dump(value) for value in (None, *of.python)]
    assert dumped == [None, *of.stored]
    assert pa.array(dumped, arrow_type(shape.type)) == column.slice(0, 3)
    assert [codec_of(shape).copy(plain) for plain in dumped] == [None, *of.python]


def test_an_empty_list_inside_a_map_may_have_no_offset() -> None:
    """Arrow for Java sends none for a column without rows."""
    of = FieldType("list", element=FieldType("int"))
    torn = pa.ListArray.from_buffers(
        pa.list_(pa.int64()), 0, [None, pa.py_buffer(struct.pack("<i", -77))], children=[pa.array([], pa.int64())]
    )
    assert stored_reader(of)(torn) == []
