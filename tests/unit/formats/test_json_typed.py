"""What msgspec decodes has the same value by the strict decoder; everything else is left to that one."""

import json
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.formats import Json
from tidemark.formats.json_typed import TypedReader
from tidemark.formats.record_format import BadRecord
from tidemark.model.core.types import FieldType, record_type


class Color(Enum):
    """An Enum of texts."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Inner:
    """A struct."""

    a: int
    note: str | None = None


@dataclass
class Wide:
    """Every kind of field."""

    s: str
    i: int
    f: float
    b: bool
    n: int | None
    at: datetime
    on: date
    raw: bytes
    money: Decimal
    id: UUID
    t: time
    color: Color
    inner: Inner
    many: list[int]
    texts: list[str | None]
    inners: list[Inner]
    by: dict[str, float]
    d: int = 7
    other: Inner | None = None


@dataclass
class Flat:
    """Fields without braces."""

    s: str
    i: int
    f: float
    n: str | None = None
    d: int = 7
    grade: Literal[1, 2] = 1


@dataclass
class Row:
    """Fields whose quotation marks can be counted."""

    s: str
    i: int
    b: bool
    f: float
    at: datetime
    n: str | None
    on: date


WIDE, FLAT, ROW = record_type(Wide), record_type(Flat), record_type(Row)
GOOD: dict[str, Any] = {
    "s": "a: b", "i": 5, "f": 1.5, "b": True, "n": None, "at": "2026-01-01T00:00:00Z", "on": "2026-01-01",
    "raw": "YQ==", "money": 1.25, "id": "00000000-0000-0000-0000-00000000000A", "t": "10:00", "color": "red",
    "inner": {"a": 1}, "many": [1, 2], "texts": ["x", None], "inners": [{"a": 1, "note": "y"}], "by": {"k": 1}, "d": 8,
}  # fmt: skip
NUMBERS = ["-0", "-0.0", "0e0", "1.0", "1e2", "9223372036854775808", "-9223372036854775808", "1e400", "01", "1.", "NaN",
           "123456789012345678901234567890", "0.30000000000000004443", "5", "-"]  # fmt: skip
STRINGS = ['"a"', '"\\u003a"', '"\\u0022:"', '"\\":"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\\\ud800"', '"é"', '"\t"',
           '"\\x"', '"red"', '"2026-01-01T00:00:00+00:99"', '"10:00:60"', '"12"', '""']  # fmt: skip
OTHERS = [
    "null",
    "true",
    "[]",
    "[1]",
    '["a",null]',
    "{}",
    '{"a":1}',
    '{"a":1,"a":2}',
    '{"a":"x","note":3}',
    "[[1]]",
    "tru",
]


def strictly(value: bytes, record: FieldType) -> Any:
    try:
        return Json._decode_strictly(value, record)
    except BadRecord as error:
        return str(error)


def told(value: bytes, record: FieldType) -> Any:
    """What the format says."""
    try:
        return Json().decode_one(value, record)
    except BadRecord as error:
        return str(error)


@st.composite
def texts(draw: st.DrawFn, record: FieldType) -> bytes:
    tokens = st.sampled_from([*NUMBERS, *STRINGS, *OTHERS])
    names = [name for name, _ in record.fields]
    members = [(json.dumps(n), json.dumps(GOOD[n])) for n in names if n in GOOD and draw(st.integers(0, 30))]
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(['"x"', '"\\u0078"', '"x:"', *(f'"{n}"' for n in names)]))
        members.append((name, draw(tokens)))
    members = draw(st.permutations(members))
    colon, comma = draw(st.sampled_from([":", ": ", " : ", "\n:"])), draw(st.sampled_from([",", ", ", ",\n "]))
    whole = "{" + comma.join(f"{name}{colon}{value}" for name, value in members) + "}"
    raw = bytearray(whole.encode() + draw(st.sampled_from([b"", b"", b" ", b"x", b"}", b'"'])))
    if raw and not draw(st.integers(0, 3)):
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.sampled_from(b'":{}[],\\ \xff\xc3a0-.e'))
    return bytes(raw)


@pytest.mark.parametrize("record", [WIDE, FLAT, ROW], ids=["wide", "flat", "row"])
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_both_decoders_give_one_meaning(record: FieldType, data: st.DataObject) -> None:
    value = data.draw(texts(record))
    expected = strictly(value, record)
    assert repr(told(value, record)) == repr(expected) or _ordered(told(value, record)) == _ordered(expected)


def _ordered(found: Any) -> Any:
    """A value with the members of structs in one order, and with the signs of zeros."""
    if isinstance(found, dict):
        return sorted((name, _ordered(value)) for name, value in found.items())
    return [_ordered(value) for value in found] if isinstance(found, list) else repr(found)


@pytest.mark.parametrize("record", [WIDE, FLAT], ids=["wide", "flat"])
def test_usual_objects_are_not_left_to_the_strict_decoder(record: FieldType, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {name: value for name, value in GOOD.items() if name in dict(record.fields)} | {"undeclared": [{"x": "é:"}]}
    expected = strictly(json.dumps(body, ensure_ascii=False).encode(), record)
    monkeypatch.setattr(Json, "_decode_strictly", None)
    for separators in ((",", ":"), (", ", ": ")):
        found = Json().decode_one(json.dumps(body, ensure_ascii=False, separators=separators).encode(), record)
        assert _ordered(found) == _ordered(expected)


@pytest.mark.parametrize(
    "value",
    [
        b'{"s":"","i":1,"f":1,"i":2}',
        b'{"s":":","i":1,"f":1,"f":2}',
        b'{"s":"\\u003a","i":1,"f":1,"i":2}',
        b'{"s":"\\u0022:","i":1,"f":1,"i":2}',
        b'{"s":"","i":1,"f":1,"i" :2}',
        b'{"s":"a: b","i":1,"f":1,"i" :2}',
        b'{"s":"a: b","i":1,"f":1,"i"\t:2}',
        b'{"s":"a: b","i":1,"f":1,"i"\n:2}',
        b'{"s":"a: b","i":1,"f":1,"i"\r:2}',
        b'{"s":"","i":1,"f":1,"x":{"y":1,"y":2}}',
        b'{"s":"","i":1,"f":1,"x":[{"y":1},{"y":1,"y":2}]}',
    ],
)
def test_an_object_with_a_name_twice_is_malformed_wherever_it_is(value: bytes) -> None:
    assert told(value, FLAT) == strictly(value, FLAT) == "malformed_json"


@pytest.mark.parametrize(
    ("member", "answer"),
    [
        (b'"i":9223372036854775808', "out_of_range: i"),
        (b'"i":-9223372036854775808', -(2**63)),
        (b'"i":null', "null_field: i"),
        (b'"i":1.0', "wrong_type: i"),
        (b'"f":-0', 0.0),
        (b'"f":-0.0', 0.0),
        (b'"f":-0e0', 0.0),
        (b'"f":null', "null_field: f"),
        (b'"grade":3', "unknown_member: grade"),
        (b'"grade":true', "wrong_type: grade"),
        (b'"s":"\xff"', "invalid_utf8"),
        (b'"x":"\xed\xa0\x80"', "invalid_utf8"),
        (b'"s":"\\ud800"', "invalid_utf8"),
        (b'"x":"\\udc00"', "invalid_utf8"),
        (b'"s":"\\ud83d\\ude00"', "\U0001f600"),
        (b'"s":null', "null_field: s"),
        (b'"n":null', None),
    ],
)
def test_each_member_alone_means_what_it_does_to_the_strict_decoder(member: bytes, answer: Any) -> None:
    name = member[1:].partition(b'"')[0].decode()
    others = {n: GOOD[n] for n in ("s", "i", "f") if n != name}
    value = json.dumps(others).encode()[:-1] + b", " + member + b"}"
    found = told(value, FLAT)
    assert _ordered(found) == _ordered(strictly(value, FLAT))
    assert repr(found if isinstance(found, str) else found[name]) == repr(answer)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T00:00:00Z",
        "2026-01-01 00:00:00+00:00",
        "2026-01-01T00:00:00.1Z",
        "2026-01-01T00:00:00.123456+00:00",
        "2026-01-01T00:00:00.1234567Z",
        "2026-01-01T01:00:00+01:00",
        "2026-01-01T00:00:00-00:00",
        "2026-01-01T00:00",
        "2026-01-01T00:00:00",
        "2026-13-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:60Z",
        "0000-01-01T00:00:00Z",
        "2026-01-01t00:00:00Z",
        "2026-01-01T00:00:00z",
        "2026-W01-1T00:00:00Z",
        "\u0662026-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z\n",
        "",
    ],
)
def test_times_mean_what_they_do_to_the_strict_decoder(text: str) -> None:
    value = json.dumps({"at": text}).encode()
    record = FieldType("struct", fields=(("at", dict(WIDE.fields)["at"]),))
    assert repr(told(value, record)) == repr(strictly(value, record))


@pytest.mark.parametrize("note", [None, "", "é: x"])
def test_the_quotation_marks_of_a_row_tell_that_each_name_is_there_once(
    note: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {name: GOOD[name] for name, _ in ROW.fields} | {"n": note}
    whole = json.dumps(body, ensure_ascii=False).encode()
    for name, value in [*body.items(), ("s", None), ("n", "x"), ("n", None), ("i", '"'), ("x", 1)]:
        more = whole[:-1] + f",{json.dumps(name)}:{json.dumps(value)}}}".encode()
        assert told(more, ROW) == strictly(more, ROW)
    for name in body:
        less = json.dumps({other: value for other, value in body.items() if other != name}).encode()
        assert told(less, ROW) == strictly(less, ROW)
    expected = strictly(whole, ROW)
    monkeypatch.setattr(TypedReader, "_has_each_name_once", None)
    assert told(whole, ROW) == expected
