"""The types of docs/how-to/types.md in every format that can hold them: values come back, bad ones have one reason.

Fastavro and Google's library read what the encoders write, so that a decoder does not only understand its own encoder.
"""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import time
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import fastavro
import pytest

from tests.support.typed_schemas import (
    AVRO,
    BASE,
    CSV,
    JSON_SCHEMA,
    OTHER,
    PROTOBUF,
    Suit,
    answer,
    avro,
    avro_schema,
    message_class,
    protobuf,
    record_of,
)
from tests.support.typed_values import ONE, TWO, TYPES, Card, Level, Spot
from tests.unit.test_types_page import PAGE
from tidemark import KafkaSource, Pipeline, Process, formats, state, testing
from tidemark.errors import DeclarationError
from tidemark.formats.known_formats import FORMATS
from tidemark.model.core.types import field_type

TABLE = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text().split("| type | Avro | Protobuf |")[1].split("\n\n")[0].splitlines()[2:]
]
CELLS = {
    (row[0], name): [w for w in row[n].split(", ") if w != "–"]
    for row in TABLE
    for n, name in ((1, "avro"), (2, "protobuf"))
}


WORDS = {"integers": [n for n in PROTOBUF if n.endswith(("32", "64")) and " " not in n]}
"""Words of the page that mean several."""


def fits(its: formats.RecordFormat, record: type) -> bool:
    try:
        its.bind(record)
    except DeclarationError:
        return False
    return True


# The table of the page.
def test_the_table_has_every_type_once() -> None:
    assert [row[0] for row in TABLE] == list(TYPES)


def words(name: str, format: str) -> list[str]:
    return [word for said in CELLS[name, format] for word in WORDS.get(said, [said])]


@pytest.mark.parametrize("name", TYPES)
def test_avro_and_protobuf_fill_what_the_page_says_and_nothing_else(name: str) -> None:
    record = record_of(TYPES[name].annotation)
    said = set(words(name, "avro"))
    ignored = {word for word, base in BASE.items() if base in said}
    if field_type(TYPES[name].annotation, "at").kind == "str":
        ignored -= {"decimal"}
    assert {word for word in AVRO if fits(avro(AVRO[word]), record)} == said | ignored
    assert {word for word in PROTOBUF if fits(protobuf(word), record)} == set(words(name, "protobuf"))


# Every value comes back.
def homes(name: str) -> Iterator[formats.RecordFormat]:
    """The formats that a type fits, with the first schema that the page says."""
    yield from (formats.Json(), JSON_SCHEMA)
    if field_type(TYPES[name].annotation, "at").is_scalar:
        yield CSV
    yield from (avro(AVRO[word]) for word in words(name, "avro")[:1])
    yield from (protobuf(word) for word in words(name, "protobuf")[:1])


@pytest.mark.parametrize("name", TYPES)
def test_every_value_comes_back_from_every_format(name: str) -> None:
    case = TYPES[name]
    record = record_of(case.annotation)
    walked = set()
    for its in homes(name):
        walked.add(its.name)
        for python, stored in zip(case.python, case.stored, strict=True):
            expected = "null_field: at" if its == CSV and stored == b"" else stored  # an empty column is null
            assert answer(its, record, record(7, python)) == expected, its.name
            assert answer(its, record, {"at": stored, "n": 7}) == expected, its.name
    assert walked >= {"json", "json_schema", "avro"}
    assert walked <= set(FORMATS)


def as_plain(value: Any) -> Any:
    if isinstance(value, Spot):
        return {"card": value.card.value, "ids": value.ids, "level": value.level}
    return value.value if isinstance(value, Enum) else value


@pytest.mark.parametrize("name", TYPES)
def test_fastavro_reads_what_is_written(name: str) -> None:
    for word in words(name, "avro")[:1]:
        its, schema = avro(AVRO[word]), fastavro.parse_schema(avro_schema(AVRO[word]))
        for python in TYPES[name].python:
            raw = its.encode({"at": python, "n": 7})
            found: Any = fastavro.schemaless_reader(io.BytesIO(raw), schema, None)
            at = UUID(bytes=found["at"]) if "fixed" in word else found["at"]  # a logical type that fastavro lacks
            assert (at, found["n"]) == (as_plain(python), 7)


@pytest.mark.parametrize("name", TYPES)
def test_googles_library_reads_what_is_written(name: str) -> None:
    case = TYPES[name]
    for word in words(name, "protobuf")[:1]:
        for python, stored in zip(case.python, case.stored, strict=True):
            raw = protobuf(word).encode({"at": python, "n": 7})
            found = message_class(word).FromString(raw)
            expected = message_class(word)(n=7)
            if word == "Timestamp":
                expected.at.FromDatetime(stored)
            elif word == "message":
                level = {"value": stored["level"]} if stored["level"] is not None else None
                expected.at.CopyFrom(type(expected.at)(card=stored["card"], ids=stored["ids"], level=level))
            elif word == "map":
                expected.at.update(stored)
            else:
                expected = message_class(word)(at=stored, n=7)
            assert found == expected


LOGICAL: tuple[tuple[Any, Any, Any, Any], ...] = (
    (UUID, "uuid of fixed(16)", ONE.bytes, str(ONE)),
    (UUID, "uuid of string", TWO, str(TWO)),
    (time, "time-millis", time(23, 59, 59, 999000), "23:59:59.999000"),
    (time, "time-micros", time(0, 0, 0, 1), "00:00:00.000001"),
    (time, "time-millis", time(), "00:00:00"),
    (Suit, "enum", "SPADES", "SPADES"),
    (Literal["HEARTS", "x"], "enum", "HEARTS", "HEARTS"),
)


@pytest.mark.parametrize(("annotation", "word", "python", "stored"), LOGICAL)
def test_what_fastavro_writes_is_read(annotation: Any, word: str, python: Any, stored: Any) -> None:
    for of in (AVRO[word], ["null", AVRO[word]]):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(avro_schema(of)), {"at": python, "n": 7})
        its = avro(of)
        found = its.decode_one(stream.getvalue(), its.bind(record_of(annotation)))
        assert found == {"at": stored, "n": 7}
        assert its.encode({"at": stored, "n": 7}) == its.encode({"at": python, "n": 7}) == stream.getvalue()
        assert json.loads(its.render(stream.getvalue()))["at"] == stored


# Every bad value has one reason.
BAD: tuple[tuple[Any, Any, str, str, str], ...] = (
    # annotation, value, reason; where Avro and Protobuf hold it
    (UUID, "x", "bad_format: at", "string", "string"),
    (UUID, "", "bad_format: at", "uuid of string", "string"),
    (UUID | None, ONE.hex, "bad_format: at", "string", "StringValue"),
    (time, "9:30", "bad_format: at", "string", "string"),
    (time, "09:30+01:00", "bad_format: at", "string", "string"),
    (time, "24:00", "out_of_range: at", "string", "string"),
    (Suit, "CLUBS", "unknown_member: at", "enum", "enum"),
    (Card, "other", "unknown_member: at", "string", "StringValue"),
    (Literal["a", "b"], "c", "unknown_member: at", "string", "string"),
    (Level, 5, "unknown_member: at", "long", "sint32"),
    (Literal[1, 2], 3, "unknown_member: at", "int", "enum"),
    (list[UUID], [str(ONE), "x"], "bad_format: at[]", "array of strings", "repeated string"),
    (dict[Card, int], {"debit": 1, "other": 2}, "unknown_member: at{}", "map", "map"),
    (dict[Literal["a"], int], {"b": 1}, "unknown_member: at{}", "map", "map"),
    (dict[str, UUID], {"a": "x"}, "bad_format: at{}", "map of strings", "map of strings"),
    (dict[str, time], {"a": "x", "b": "24:00"}, "bad_format: at{}", "map of strings", "map of strings"),
    (dict[str, time], {"a": "24:00", "b": "x"}, "bad_format: at{}", "map of strings", "map of strings"),
    (dict[Card, time], {"x": "?", "debit": "?"}, "bad_format: at{}", "map of strings", "map of strings"),
    (Spot, {"card": "debit", "ids": ["x"], "level": None}, "bad_format: at.ids[]", "record", "message"),
    (Spot, {"card": "x", "ids": [], "level": None}, "unknown_member: at.card", "record", "message"),
    (Spot, {"card": "debit", "ids": [], "level": 2}, "unknown_member: at.level", "record", "message"),
    (dict[str, Spot], {"a": {"card": "?", "ids": []}}, "unknown_member: at{}.card", "", "map of messages"),
)  # fmt: skip


@pytest.mark.parametrize(("annotation", "value", "reason", "in_avro", "in_protobuf"), BAD)
def test_a_bad_value_has_one_reason_in_every_format(
    annotation: Any, value: Any, reason: str, in_avro: str, in_protobuf: str
) -> None:
    record = record_of(annotation)
    homes: list[formats.RecordFormat] = [formats.Json(), JSON_SCHEMA, protobuf(in_protobuf)]
    if in_avro:
        homes.append(avro({**AVRO, **OTHER}[in_avro]))
    if fits(CSV, record) and value != "":
        homes.append(CSV)
    for its in homes:
        assert answer(its, record, {"at": value, "n": 7}) == reason, its.name


@dataclass(frozen=True, slots=True)
class Made:
    """A record whose instances have no `__dict__`."""

    n: int
    at: UUID


class Seen(state.Keyed):
    """What a function remembers."""

    ids: list[UUID] = state.list()


@pytest.mark.parametrize("its", [formats.Json(), CSV, avro("string"), protobuf("string")], ids=lambda its: its.name)
def test_a_function_gets_uuids_and_a_bad_one_is_a_dead_letter(its: formats.RecordFormat) -> None:
    seen = list[UUID]()

    def look(key: int, records: Any, remembered: Any) -> None:
        seen.extend(record.at for record in records)

    pipeline = Pipeline(
        name="typed",
        source=KafkaSource("values", Made, format=its),
        operators=[Process("look", key_by="n", state=Seen, function=look)],
        max_dead_letters=1.0,
    )
    found = testing.replay(pipeline, [[Made(1, ONE), {"n": 1, "at": "x"}, {"n": 2, "at": str(TWO)}], testing.BARRIER])
    assert sorted(seen) == [TWO, ONE]
    assert [letter["reason"] for letter in found.dead_letters("look")] == ["bad_format: at"]


@pytest.mark.parametrize("n", [-1, 86_400_000, 2**31 - 1])
def test_a_time_beyond_its_day_is_out_of_range(n: int) -> None:
    for word, factor in (("time-millis", 1), ("time-micros", 1000)):
        its = avro(AVRO[word])
        assert answer(its, record_of(time), {"at": n * factor, "n": 7}) == "out_of_range: at"
        assert json.loads(its.render(its.encode({"at": n * factor, "n": 7})))["at"] == n * factor


def test_a_number_that_no_symbol_has_is_no_member() -> None:
    its = protobuf("enum")
    for annotation in (Suit, str, Literal["HEARTS"]):
        assert answer(its, record_of(annotation), {"at": 5, "n": 7}) == "unknown_member: at"
    assert answer(its, record_of(int), {"at": 5, "n": 7}) == 5
    assert answer(its, record_of(Level), {"at": Level.HIGH, "n": 7}) == -7
    with pytest.raises(ValueError, match="no symbol"):
        its.encode({"at": "DIAMONDS", "n": 7})
