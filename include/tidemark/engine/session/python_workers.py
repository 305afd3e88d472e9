"""Python code in Spark's workers: authors' code travels by value, and formats without expressions decode there.

A worker has this release of Tidemark and the same libraries. It has no pipeline files, or outdated ones, so functions
and classes of authors are pickled by value.
"""

import os
import pickle
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from types import ModuleType
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle as _untyped
from pyspark.sql import DataFrame

from tidemark.engine.read.read_spans import SPANS, EventTimes, span_column
from tidemark.engine.read.value_decoder import ValueDecoder
from tidemark.formats.emitted_records import EMITTED_FORMAT
from tidemark.formats.record_format import FAULT, GOOD, ROW_KEY, RecordFormat
from tidemark.model.core.types import FieldType

cloudpickle: Any = _untyped
_OURS = "tidemark"
_REGISTRY = Lock()
"""The modules that are pickled by value are those of the whole process."""


def pickle_by_value(value: Any, authors: Iterable[object]) -> bytes:
    """Returns a value as bytes that any worker with this release of Tidemark can read.

    Args:
        value: the value to send.
        authors: functions and classes of an author. They, and everything they use from neighbouring files, are sent by
            value; libraries are imported by the worker.
    """
    with _REGISTRY, _by_value(_modules(authors)):
        made: bytes = cloudpickle.dumps(value)
        return made


def _modules(authors: Iterable[object]) -> list[ModuleType]:
    named = {getattr(a, "__module__", None) or type(a).__module__ for a in authors}
    own = [sys.modules[name] for name in named if name in sys.modules and name.split(".")[0] != _OURS]
    folders = {folder for m in own if (folder := _folder(m)) is not None}
    near = [m for m in list(sys.modules.values()) if _folder(m) in folders]
    return list({id(m): m for m in (*own, *near) if m.__name__ != "__main__"}.values())


def _folder(module: ModuleType) -> str | None:
    # Of thousands of modules: paths as objects would take a tenth of a second.
    name = getattr(module, "__file__", None)
    return None if name is None else os.path.dirname(name)  # noqa: PTH120


@contextmanager
def _by_value(modules: Iterable[ModuleType]) -> Iterator[None]:
    known = cloudpickle.list_registry_pickle_by_value()
    new = [m for m in modules if m.__name__ not in known and sys.modules.get(m.__name__) is m]
    for module in new:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in new:
            cloudpickle.unregister_pickle_by_value(module)


def decodes_in_workers(format: RecordFormat, count: int) -> bool:
    """Whether workers decode a number of values, rather than the format's expressions."""
    return not format.has_expressions or (format.workers_from is not None and count >= format.workers_from)


def decode_values(
    raw: DataFrame, format: RecordFormat, record: FieldType, count: int = 0, times: EventTimes | None = None
) -> DataFrame:
    """Decodes the column `value` by the format's expressions, or by `decode_one`; see `RecordFormat.decode`.

    Args:
        raw: rows with the columns `key` and `value`, and others, which stay as they are.
        format: the format.
        record: the struct that it returned.
        count: the number of rows, as far as it is known.
        times: the event times of records whose spans the workers report in the column `SPANS`; None = they report none.
            If it is given, `decodes_in_workers`.
    """
    if not decodes_in_workers(format, count):
        return format.decode(raw, record)
    there = ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in raw.schema.fields)
    work = pickle_by_value((format, record, times), [format])
    more = (f", {ROW_KEY} BINARY" if format.has_changes else "") + (f", {SPANS} STRING" if times else "")
    return raw.mapInArrow(partial(_decoded, work), f"{there}, {FAULT} STRING, {GOOD} {record.sql}{more}")


def encode_emitted(letters: DataFrame) -> DataFrame:
    """Returns dead letters without their column `record`: where the value is null, it is the record's bytes."""
    kept = [column for column in letters.schema.fields if column.name != "record"]
    there = ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in kept)
    return letters.mapInArrow(_encoded, there)


def _encoded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        records, values = batch.column("record").to_pylist(maps_as_pydicts="strict"), batch.column("value").to_pylist()
        made = [
            EMITTED_FORMAT.encode(record) if value is None and record is not None else value
            for record, value in zip(records, values, strict=True)
        ]
        columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | {"value": pa.array(made, pa.binary())}
        columns.pop("record")
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _decoded(work: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    format, record, times = pickle.loads(work)  # noqa: S301  (Tidemark pickled it)
    decoder = ValueDecoder(format, record)
    for batch in batches:
        faults, found = decoder.decode(batch.column("value"))
        columns, names = [*batch.columns, faults, found], [*batch.schema.names, FAULT, GOOD]
        if format.has_changes:
            columns.append(pa.array([format.row_key(key) for key in batch.column("key").to_pylist()], pa.binary()))
            names.append(ROW_KEY)
        if times is not None:
            columns.append(span_column(batch, times.of(batch, found)))
            names.append(SPANS)
        yield pa.RecordBatch.from_arrays(columns, names=names)
