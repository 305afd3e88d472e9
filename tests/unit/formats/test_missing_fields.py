"""Missing fields and maps in every format: defaults fill what no writer has, entries are checked as fields are."""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass
from datetime import time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.typed_schemas import (
    AVRO,
    JSON_SCHEMA,
    F,
    Suit,
    answer,
    avro,
    avro_schema,
    logical,
    message_class,
    protobuf,
    record_of,
)
from tests.support.typed_values import ONE, TYPES
from tidemark import formats
from tidemark.errors import DeclarationError
from tidemark.formats.registry_format import frame
from tidemark.model.core.default_values import stored_value
from tidemark.model.core.types import field_type
from tidemark.model.schema.registry_schemas import Schemas, SchemaText


def without_it() -> Iterator[tuple[formats.RecordFormat, bytes]]:
    yield formats.Json(), b'{"n": 7}'
    yield JSON_SCHEMA, JSON_SCHEMA.encode({"n": 7})
    yield formats.Csv("n"), b"7"
    none = formats.Avro(
        schema=json.dumps({"type": "record", "name": "Made", "fields": [{"name": "n", "type": "long"}]})
    )
    yield none, b"\x0e"
    yield formats.Protobuf(message=count_class(), framing="none"), b"\x10\x07"


def count_class() -> Any:
    """A message that has no field `at`."""
    file = descriptor_pb2.FileDescriptorProto(name="count.proto", package="typed", syntax="proto3")
    file.message_type.add(name="Count").field.append(F(name="n", number=2, type=F.TYPE_INT64, label=1))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("typed.Count"))


@pytest.mark.parametrize("name", TYPES)
def test_a_default_fills_a_field_that_no_writer_has(name: str) -> None:
    case = TYPES[name]
    for python in case.python:
        record = record_of(case.annotation, default_factory=lambda python=python: python)
        stored = stored_value(python, field_type(case.annotation, "at"))
        for its, raw in without_it():
            assert its.decode_one(raw, its.bind(record)) == {"n": 7, "at": stored}, its.name


@dataclass(frozen=True)
class Inner:
    """Nested fields of which a writer has one."""

    card: str
    suit: Suit = Suit.SPADES
    since: time | None = time(9)


def test_a_default_fills_fields_of_nested_values_too() -> None:
    expected = {"card": "x", "suit": "SPADES", "since": "09:00:00"}
    spot = {"type": "record", "name": "Spot", "fields": [{"name": "card", "type": "string"}]}
    for its, written in (
        (formats.Json(), {"card": "x"}),
        (JSON_SCHEMA, {"card": "x"}),
        (avro(spot), {"card": "x"}),
        (protobuf("message"), {"card": "x"}),
    ):
        assert answer(its, record_of(Inner), {"at": written, "n": 7}) == expected, its.name
    for of, home in (({"type": "map", "values": spot}, "map of messages"),):
        for its in (avro(of), protobuf(home)):
            assert answer(its, record_of(dict[str, Inner]), {"at": {"b": {"card": "x"}}, "n": 7}) == {"b": expected}


def test_only_protobufs_fields_with_presence_can_be_missing() -> None:
    with_default = record_of(UUID, default=ONE)
    raw = b"\x10\x07"
    for word, found in (("optional string", str(ONE)), ("StringValue", str(ONE)), ("string", "bad_format: at")):
        its = protobuf(word)
        try:
            at = its.decode_one(raw, its.bind(with_default))["at"]
        except formats.BadRecord as error:
            at = str(error)
        assert at == found
    count = record_of(int, default=5)
    assert protobuf("int64").decode_one(raw, protobuf("int64").bind(count)) == {"n": 7, "at": 0}
    assert protobuf("Int64Value").decode_one(raw, protobuf("Int64Value").bind(count)) == {"n": 7, "at": 5}
    empty = record_of(dict[str, int], default_factory=lambda: {"a": 1})
    assert protobuf("map").decode_one(raw, protobuf("map").bind(empty)) == {"n": 7, "at": {}}


def test_a_null_is_not_missing() -> None:
    its = avro(["null", "string"])
    raw = its.encode({"at": None, "n": 7})
    with pytest.raises(formats.BadRecord, match="^null_field: at$"):
        its.decode_one(raw, its.bind(record_of(UUID, default=ONE)))
    assert its.decode_one(raw, its.bind(record_of(UUID | None, default=ONE))) == {"n": 7, "at": None}


def entry(*parts: bytes) -> bytes:
    whole = b"".join(parts)
    return b"\x0a" + bytes([len(whole)]) + whole


def test_entries_of_protobufs_maps_are_read_as_google_reads_them() -> None:
    for word, raw in (
        (
            "map",
            entry(b"\x0a\x01b", b"\x10\x05")
            + entry(b"\x0a\x01a")
            + entry(b"\x10\x03")
            + entry(b"\x0a\x01b", b"\x10\x06"),
        ),
        ("map", entry(b"\x10\x01", b"\x0a\x01a", b"\x10\x02", b"\x0a\x01c")),
        ("map of messages", entry(b"\x0a\x01a") + entry(b"\x0a\x01b", b"\x12\x03\x0a\x01x", b"\x12\x03\x12\x01y")),
        ("map of messages", entry(b"\x0a\x01a", b"\x12\x03\x0a\x01x") + entry(b"\x0a\x01a", b"\x12\x03\x12\x01y")),
    ):
        found = message_class(word).FromString(raw)
        its = protobuf(word)
        if word == "map":
            record, expected = record_of(dict[str, int]), dict(found.at)
        else:
            record = record_of(dict[str, Plain])
            expected = {name: {"card": spot.card, "ids": list(spot.ids)} for name, spot in found.at.items()}
        read = its.decode_one(raw, its.bind(record))["at"]
        assert read == expected
        assert list(read) == sorted(expected)
        assert set(json.loads(its.render(raw))["at"]) == set(expected)


def test_fields_that_no_entry_has_are_passed_over() -> None:
    its = protobuf("map")  # Google's library in C drops such an entry, which would lose a record's value
    raw = entry(b"\x10\x01", b"\x0a\x01a", b"\x18\x02", b"\x15abcd") + b"\x10\x07"
    assert its.decode_one(raw, its.bind(record_of(dict[str, int]))) == {"n": 7, "at": {"a": 1}}


@dataclass(frozen=True)
class Plain:
    """The texts of a spot."""

    card: str
    ids: list[str]


@pytest.mark.parametrize(
    "raw",
    [
        entry(b"\x0a\x01\xff"),  # a key that is not UTF-8
        entry(b"\x0a\x05a"),
        entry(b"\x0a\x01a", b"\x12\x03\x0a\x05x") + entry(b"\x0a\x01a", b"\x12\x03\x0a\x01x"),  # overwritten
        entry(b"\x0a\x01a", b"\x12\x03\x0a\x05x", b"\x12\x05\x0a\x03xyz"),
        b"\x0a\x01\x0b",
    ],
)  # fmt: skip
def test_damaged_entries_are_malformed(raw: bytes) -> None:
    its = protobuf("map of messages")
    with pytest.raises(message.DecodeError):
        message_class("map of messages").FromString(raw)
    with pytest.raises(formats.BadRecord, match="^malformed_protobuf$"):
        its.decode_one(raw, its.bind(record_of(dict[str, Plain])))


def test_a_map_with_other_keys_is_a_list_of_entries() -> None:
    entry = make_dataclass("Entry", [("key", int), ("value", int)], frozen=True)
    its = protobuf("map by int32")
    raw = message_class("map by int32")(at={-1: 5, 2: 0}, n=7).SerializeToString()
    found = its.decode_one(raw, its.bind(record_of(list[entry])))  # type: ignore[valid-type]
    assert sorted(found["at"], key=lambda e: e["key"]) == [{"key": -1, "value": 5}, {"key": 2, "value": 0}]
    with pytest.raises(DeclarationError, match=r"at\{\}: another type"):
        its.bind(record_of(dict[str, int]))
    assert json.loads(its.render(raw))["at"] == {"-1": 5, "2": 0}


def test_maps_of_avro_are_in_the_order_of_their_keys() -> None:
    its = avro(AVRO["map"])
    raw = b"\x02\x02b\x02\x01\x06\x02a\x04\x00\x0e"  # a block of one entry, and one with its size
    assert list(its.decode_one(raw, its.bind(record_of(dict[str, int])))["at"].items()) == [("a", 2), ("b", 1)]
    many = formats.Avro(schema=json.dumps(avro_schema({"type": "map", "values": ["long", "string"]})))
    found = answer(many, record_of(dict[str, int]), {"at": {"a": "x", "b": 2}, "n": 7})
    assert found == "wrong_type: at{}"


def test_decimals_of_other_scales_stay_exact() -> None:
    its = avro(logical("bytes", "decimal", precision=5, scale=1))
    assert answer(its, record_of(Decimal), {"at": Decimal("1.5"), "n": 7}) == Decimal("1.500000000000000000")


@dataclass(frozen=True)
class Shop:
    """What three releases of a producer write, each more than the one before."""

    id: UUID
    suit: Suit = Suit.SPADES
    opens: time = time(9, 30)
    counts: dict[str, int] | None = None
    inner: Inner | None = None


ID: dict[str, Any] = {"name": "id", "type": logical("string", "uuid")}
SUIT: dict[str, Any] = {"name": "suit", "type": {"type": "enum", "name": "Suit", "symbols": ["HEARTS", "SPADES"]}}
OPENS: dict[str, Any] = {"name": "opens", "type": logical("int", "time-millis")}
COUNTS: dict[str, Any] = {"name": "counts", "type": ["null", {"type": "map", "values": "long"}]}
CARD: dict[str, Any] = {"name": "card", "type": "string"}
INNER: dict[str, Any] = {"type": "record", "name": "Inner", "fields": [CARD]}
WRITERS: dict[int, list[Any]] = {
    1: [ID],
    2: [{"name": "counts", "type": {"type": "map", "values": "int"}}, SUIT, ID],
    3: [{"name": "inner", "type": INNER}, {"name": "old", "type": "bytes"}, ID, COUNTS, OPENS, SUIT],
}
INNER_NOW = INNER | {"fields": [CARD, {"name": "suit", "type": "Suit", "default": "SPADES"}]}
READER: list[Any] = [
    ID,
    SUIT | {"default": "SPADES"},
    OPENS | {"default": 34_200_000},
    COUNTS | {"default": None},
    {"name": "inner", "type": ["null", INNER_NOW], "default": None},
]


def shop(fields: list[Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Shop", "fields": fields}


@settings(deadline=None)
@given(
    st.uuids(),
    st.sampled_from(["HEARTS", "SPADES"]),
    st.times().map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    st.dictionaries(st.text("abcé", max_size=3), st.integers(-(2**31), 2**31 - 1), max_size=4),
)
def test_three_writers_of_typed_fields_are_read_as_fastavro_resolves_them(
    id: UUID, suit: str, opens: time, counts: dict[str, int]
) -> None:
    value = {"id": id, "suit": suit, "opens": opens, "counts": counts, "inner": {"card": "x"}, "old": b""}
    texts = {n: SchemaText(type="AVRO", text=json.dumps(shop(fields))) for n, fields in WRITERS.items()}
    its = formats.Avro().bind_schemas(Schemas(texts))
    for n, fields in WRITERS.items():
        written, stream = fastavro.parse_schema(shop(fields)), io.BytesIO()
        fastavro.schemaless_writer(stream, written, value)
        stream.seek(0)
        found: Any = fastavro.schemaless_reader(stream, written, fastavro.parse_schema(shop(READER)))
        at = found["opens"] if isinstance(found["opens"], time) else time(9, 30)  # fastavro converts no default
        expected = found | {"id": str(found["id"]), "opens": at.isoformat()}
        if expected["inner"] is not None:
            expected["inner"] |= {"since": "09:00:00"}
        assert its.decode_one(frame(n, stream.getvalue()), its.bind(Shop)) == expected
