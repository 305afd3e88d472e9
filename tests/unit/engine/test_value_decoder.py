"""What Arrow decodes, many objects at once, has the same value by the strict decoder, which gets all the rest."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.formats.test_json_typed import FLAT, GOOD, WIDE, strictly, texts
from tidemark.engine.process.arrow_values import struct_array
from tidemark.engine.read import value_decoder
from tidemark.engine.read.value_decoder import JsonColumns, ValueDecoder, covers
from tidemark.formats import Json
from tidemark.formats.record_format import BadRecord
from tidemark.model.core.types import record_type


@dataclass
class Plain:
    """Fields that Arrow decodes."""

    s: str
    i: int
    f: float
    b: bool
    at: datetime
    n: int | None
    d: int = 7


RECORD = record_type(Plain)
ONE = json.dumps({name: GOOD[name] for name, _ in RECORD.fields}).encode()


def read(*values: bytes) -> list[dict[str, Any]] | None:
    found = JsonColumns(RECORD).read(pa.array(values, pa.binary()))
    return None if found is None else found.to_pylist()


def strict(*values: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = struct_array([strictly(value, RECORD) for value in values], RECORD).to_pylist()
    return found


@settings(max_examples=1000, deadline=None)
@given(values=st.lists(st.one_of(texts(RECORD), st.just(ONE)), min_size=1, max_size=4))
def test_an_answer_is_that_of_the_strict_decoder(values: list[bytes]) -> None:
    found = read(*values)
    if found is not None:
        answers = [strictly(value, RECORD) for value in values]
        assert not [answer for answer in answers if isinstance(answer, str)]
        assert repr(found) == repr(strict(*values))


@pytest.mark.parametrize(
    "more",
    [
        {"n": 5},
        {"undeclared": "é: x"},
        {"x": 1, "y": 1.5, "z": None},
        {"s": 'a"b\\ \U0001f600'},
        {"at": "2026-02-28 01:02:03.123456Z"},
        {"i": -(2**63), "f": -0.0},
    ],
)
def test_usual_objects_are_read_at_once(more: dict[str, Any]) -> None:
    for separators in ((",", ":"), (", ", ": ")):
        value = json.dumps(json.loads(ONE) | more, ensure_ascii=False, separators=separators).encode()
        assert repr(read(ONE, value)) == repr(strict(ONE, value))


def test_a_field_that_may_be_null_may_be_missing() -> None:
    value = json.dumps({name: GOOD[name] for name, _ in RECORD.fields if name != "n"}).encode()
    assert read(value) == strict(value)


@pytest.mark.parametrize(
    "values",
    [
        (ONE + ONE, b"{"),
        (ONE + ONE,),
        (ONE, ONE + b"\n" + ONE),
        (ONE[:-1], b"," + ONE[1:]),
        (ONE + b"{", b"}"),
        (ONE + ONE[:-1] + b',"x":"}', b'{"}'),
        (ONE + ONE[:-1] + b',"x":[{}', b"{}]}"),
        (ONE, b""),
        (ONE, b" " + ONE),
        (ONE, b"\xef\xbb\xbf" + ONE),
        (ONE, ONE.replace(b"5", b"NaN")),
        (ONE, ONE[:-1] + b',"x":NaN}'),
        (ONE, ONE[:-1] + b',"x":-Infinity}'),
        (ONE, ONE[:-1] + b',"x":{"y":1,"y":2}}'),
        (ONE, ONE[:-1] + b',"x":{"y":NaN}}'),
        (ONE, ONE[:-1] + b',"x":[1.5,NaN]}'),
        (ONE, ONE[:-1] + b',"x":' + b"[" * 5000 + b"]" * 5000 + b"}"),
        (ONE, ONE[:-1] + b',"x":1,"x":2}'),
        (ONE, ONE[:-1] + b',"x":1,"\\u0078":2}'),
        (ONE, ONE[:-1] + b',"s":"again"}'),
        (ONE, ONE[:-1] + b',"x":"\xff"}'),
        (ONE, ONE.replace(b'"d"', b'"e"')),
        (ONE, ONE.replace(b"00Z", b"60Z")),
        (ONE, ONE.replace(b"2026", b"0000")),
        (ONE, ONE.replace(b"-01-01T", b"-02-30T")),
        (ONE, ONE.replace(b'"i": 5', b'"i": null')),
    ],
)
def test_doubtful_objects_are_left_to_the_strict_decoder(values: tuple[bytes, ...]) -> None:
    assert read(*values) is None


def test_types_that_arrow_reads_in_another_way_are_left_out() -> None:
    assert covers(RECORD)
    assert not covers(WIDE)
    assert not covers(FLAT)


def one_by_one(values: list[bytes | None]) -> tuple[list[str | None], list[Any]]:
    faults, found = list[str | None](), list[Any]()
    for value in values:
        try:
            found.append(Json().decode_one(value, RECORD))
            faults.append(None)
        except BadRecord as error:
            found.append(None)
            faults.append(str(error))
    return faults, struct_array(found, RECORD).to_pylist()


@pytest.mark.parametrize("few", [1, 4])
@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.one_of(st.none(), texts(RECORD), st.just(ONE), st.just(ONE)), min_size=1, max_size=40))
def test_a_task_decodes_each_value_as_it_is_decoded_alone(few: int, values: list[bytes | None]) -> None:
    decoder = ValueDecoder(Json(), RECORD)
    before, value_decoder._FEW = value_decoder._FEW, few
    try:
        for _ in range(2):
            faults, found = decoder.decode(pa.array(values, pa.binary()))
            assert (faults.to_pylist(), repr(found.to_pylist())) == (one_by_one(values)[0], repr(one_by_one(values)[1]))
    finally:
        value_decoder._FEW = before
