"""`Avro()` against fastavro, which reads with plain types; what a number means is computed here."""

import io
import json
import math
import re
import tracemalloc
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Literal
from unittest.mock import patch
from uuid import UUID

import fastavro
import fastavro._read_py
import pytest
from fastavro.io.binary_decoder import BinaryDecoder
from hypothesis import given
from hypothesis import strategies as st

from tests.support.format_cases import Answer, FormatCase
from tidemark import KafkaSource, formats
from tidemark.errors import DeclarationError
from tidemark.formats.binary.avro_reader import DEEPEST
from tidemark.formats.registry_format import LONGEST, frame
from tidemark.model.core.types import Precision
from tidemark.model.schema.registry_schemas import Schemas, SchemaText

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Place:
    """Nested."""

    city: str
    floor: int | None


@dataclass(frozen=True)
class Order:
    """Declared in another order than it is written."""

    day: date
    account: str
    amount: int
    price: float | None
    at: datetime
    cost: Annotated[Decimal, Precision(10, 2)]
    kind: str
    place: Place
    tags: list[str]
    opens: time
    labels: dict[str, Literal["a", "b"]]
    ref: UUID
    more: str | None = None


SCHEMA = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "account", "type": ["null", "string"]},
        {
            "name": "ignored",
            "type": {"type": "map", "values": ["null", "long", {"type": "array", "items": "double"}]},
            "default": {},
        },
        {"name": "amount", "type": ["long", "string", "int"]},
        {"name": "price", "type": ["null", "double", "float"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "cost", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["CARD", "CASH"]}},
        {
            "name": "place",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [
                    {"name": "floor", "type": ["int", "null"]},
                    {"name": "flag", "type": "boolean", "default": False},
                    {"name": "city", "type": "string"},
                ],
            },
        },
        {"name": "tags", "type": {"type": "array", "items": ["string", "null"]}},
        {"name": "ref", "type": "string"},
        {"name": "labels", "type": {"type": "map", "values": "string"}},
        {"name": "opens", "type": {"type": "int", "logicalType": "time-millis"}},
    ],
}
TEXT = json.dumps(SCHEMA)
BOUND = formats.Avro().bind_schemas(Schemas({7: SchemaText(type="AVRO", text=TEXT)}))


def plain(schema: Any) -> Any:
    """The schema without logical types."""
    if isinstance(schema, dict):
        return {name: plain(part) for name, part in schema.items() if name != "logicalType"}
    return [plain(part) for part in schema] if isinstance(schema, list) else schema


@cache
def written() -> Any:
    return fastavro.parse_schema(plain(SCHEMA))


class Strict(BinaryDecoder):
    """Fastavro's, which refuses what the specification does not have: it takes -1 for the last branch of a union."""

    def read_long(self) -> int:
        begun = self.fo.tell()
        n: int = super().read_long()  # type: ignore[no-untyped-call]
        if self.fo.tell() - begun > 10 or not -(2**63) <= n < 2**63:
            raise EOFError
        return n

    read_int = read_long

    def read_index(self) -> int:
        n = self.read_long()
        if n < 0:
            raise EOFError
        return n

    read_enum = read_index

    def read_boolean(self) -> bool:
        raw = self.fo.read(1)
        if raw not in (b"\0", b"\1"):
            raise EOFError
        return bool(raw != b"\0")

    def read_bytes(self) -> bytes:
        size = self.read_index()
        found: bytes = self.fo.read(size)
        if len(found) != size:
            raise EOFError
        return found


def oracle(value: bytes) -> Answer:
    if len(value) < 5 or value[0]:
        return "malformed_avro: no frame"
    id = int.from_bytes(value[1:5])
    if id != 7:
        return f"unknown_schema: {id}"
    stream = io.BytesIO(value[5:])
    try:
        with patch.object(fastavro._read_py, "BinaryDecoder", Strict):
            found: Any = fastavro._read_py.schemaless_reader(stream, written(), None)
    except (EOFError, IndexError, UnicodeDecodeError, OverflowError):
        return "malformed_avro"
    if stream.read(1):
        return "malformed_avro"
    return _meant(found)


def _meant(found: dict[str, Any]) -> Answer:
    unscaled = int.from_bytes(found["cost"], signed=True)
    day = found["day"] + date(1970, 1, 1).toordinal()
    millis = found["at"] + 62_135_596_800_000
    reasons = (
        ("out_of_range: day", not 1 <= day <= date.max.toordinal()),
        ("null_field: account", found["account"] is None),
        ("wrong_type: amount", isinstance(found["amount"], str)),
        ("out_of_range: price", found["price"] is not None and not math.isfinite(found["price"])),
        ("out_of_range: at", not 0 <= millis < 315_537_897_600_000),
        ("out_of_range: cost", unscaled % 10 != 0 or abs(unscaled) >= 10**11),
        ("null_field: tags[]", None in found["tags"]),
        ("out_of_range: opens", not 0 <= found["opens"] < 86_400_000),
        ("unknown_member: labels{}", not {"a", "b"} >= set(found["labels"].values())),
        (
            "bad_format: ref",
            re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", found["ref"], re.IGNORECASE) is None,
        ),
    )
    reason = next((reason for reason, applies in reasons if applies), None)
    if reason is not None:
        return reason
    return {
        "day": date.fromordinal(day),
        "account": found["account"],
        "amount": found["amount"],
        "price": found["price"],
        "at": EPOCH + timedelta(milliseconds=found["at"]),
        "cost": Decimal(unscaled // 10) / 100,
        "kind": found["kind"],
        "place": {"city": found["place"]["city"], "floor": found["place"]["floor"]},
        "tags": found["tags"],
        "opens": (datetime.min + timedelta(milliseconds=found["opens"])).time().isoformat(),
        "labels": found["labels"],
        "ref": found["ref"].lower(),
        "more": None,
    }


def body(**changed: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, written(), GOOD | changed)
    return frame(7, stream.getvalue())


GOOD: dict[str, Any] = {
    "account": "a",
    "ignored": {"x": None, "y": 5, "z": [1.5]},
    "amount": 2**62,
    "price": 1.5,
    "at": 1_700_000_000_123,
    "day": 19_000,
    "cost": (12_340).to_bytes(4, signed=True),
    "kind": "CASH",
    "place": {"floor": None, "flag": True, "city": "Köln"},
    "tags": ["x", ""],
    "opens": 34_200_000,
    "labels": {"x": "a", "y": "b"},
    "ref": "12345678-90AB-cdef-1234-567890abcdef",
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FIELDS = st.fixed_dictionaries(
    {
        "day": st.dates(),
        "account": TEXTS,
        "amount": st.integers(-(2**63), 2**63 - 1),
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "at": st.datetimes(timezones=st.just(UTC)).map(
            lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
        ),
        "cost": st.decimals(-99_999_999, 99_999_999, places=2),
        "kind": st.sampled_from(["CARD", "CASH"]),
        "place": st.fixed_dictionaries({"city": TEXTS, "floor": st.none() | st.integers(-(2**31), 2**31 - 1)}),
        "tags": st.lists(TEXTS, max_size=3),
        "opens": st.times().map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000).isoformat()),
        "labels": st.dictionaries(TEXTS, st.sampled_from("ab"), max_size=3),
        "ref": st.uuids().map(str),
        "more": st.none(),
    }
)


CASE = FormatCase(
    format=BOUND,
    record=Order,
    fields=FIELDS,
    oracle=oracle,
    bytes=(
        body(),
        body(price=None, ignored={}, tags=[]),
        body(account=None, price=math.nan, tags=[None]),
        body(amount="12"),
        body(day=-719_162, at=-62_135_596_800_000, cost=b""),
        body(day=-719_163, at=253_402_300_800_000),
        body(cost=(12_341).to_bytes(4, signed=True)),
        body(cost=(10**11).to_bytes(8, signed=True)),
        body() + b"\x00",
        body()[:-1],
        body(opens=86_400_000, labels={"x": "c", "z": "a"}),
        body(labels={"x": "c", "z": "a"}, ref="x"),
        body(labels={}, ref="{12345678-90ab-cdef-1234-567890abcdef}"),
        b"\x00\x00\x00\x00",
        b"\x01" + body()[1:],
        b"\x00\x00\x00\x00\x08" + body()[5:],
    ),
)


def answer(schema: Any, raw: bytes, record: type) -> Answer:
    its = formats.Avro(schema=json.dumps(schema))
    try:
        return its.decode_one(raw, KafkaSource("t", record, format=its).schema)
    except formats.BadRecord as error:
        return str(error)


def fields(*found: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": of} for name, of in found]}


def write(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


@dataclass(frozen=True)
class Small:
    """Fields that writers of several releases have."""

    id: int
    name: str | None = None
    score: float | None = None


V1 = fields(("id", "int"))
V2 = fields(("name", ["null", "string"]), ("id", "long"))
V3 = fields(("score", "float"), ("name", "bytes"), ("id", "long"), ("note", {"type": "array", "items": "string"}))
READER = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "score", "type": ["null", "double"], "default": None},
    ],
}


@given(st.integers(-(2**31), 2**31 - 1), st.none() | TEXTS, st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_three_writers_of_one_topic_are_read_as_fastavro_resolves_them(id: int, name: str | None, score: float) -> None:
    values = {
        1: (V1, {"id": id}),
        2: (V2, {"id": id, "name": name}),
        3: (V3, {"id": id, "name": (name or "").encode(), "score": score, "note": ["a"]}),
    }
    texts = {n: SchemaText(type="AVRO", text=json.dumps(schema)) for n, (schema, _) in values.items()}
    its = formats.Avro().bind_schemas(Schemas(texts))
    for n, (schema, value) in values.items():
        raw = write(schema, value)
        by_fastavro = fastavro.schemaless_reader(
            io.BytesIO(raw), fastavro.parse_schema(schema), fastavro.parse_schema(READER)
        )
        assert its.decode_one(frame(n, raw), its.bind(Small)) == by_fastavro


def test_a_schema_that_cannot_be_the_record_is_a_mismatch_of_every_value() -> None:
    texts = {
        1: fields(("name", "string")),
        2: fields(("id", "string")),
        3: {"type": "string"},
        4: fields(("id", ["null", "string"])),
        5: fields(("id", "Unknown")),
    }
    its = formats.Avro().bind_schemas(
        Schemas(
            {n: SchemaText(type="AVRO", text=json.dumps(schema)) for n, schema in texts.items()}
            | {6: SchemaText(type="JSON", text="{}"), 7: SchemaText(type="AVRO", text="no JSON")}
        )
    )
    found = {}
    for n in range(1, 8):
        with pytest.raises(formats.BadRecord) as refused:
            its.decode_one(frame(n, b"\x02a"), its.bind(Small))
        found[n] = str(refused.value)
    assert found == {
        1: "schema_mismatch: id",
        2: "schema_mismatch: id",
        3: "schema_mismatch: not a record",
        4: "schema_mismatch: id",
        5: "schema_mismatch",
        6: "schema_mismatch",
        7: "schema_mismatch",
    }


@dataclass(frozen=True)
class Items:
    """A list."""

    items: list[int]


@pytest.mark.parametrize(
    "raw",
    [
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02",  # an array of 2**62 items
        b"\x01\x80",  # a negative count whose size is cut
        b"\xff" * 10 + b"\x01",  # more than 64 bits
        b"\x80" * 100,
        b"",
    ],
)
def test_counts_that_lie_are_malformed_before_anything_is_made(raw: bytes) -> None:
    assert answer(fields(("items", {"type": "array", "items": "long"})), raw, Items) == "malformed_avro"


def test_items_without_bytes_are_passed_over_and_never_counted_one_by_one() -> None:
    nothing = {"type": "array", "items": {"type": "record", "name": "N", "fields": [{"name": "x", "type": "null"}]}}
    schema = fields(("id", "int"), ("nothing", nothing))
    raw = b"\x02" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\x00"
    assert answer(schema, raw, Small) == {"id": 1, "name": None, "score": None}
    with pytest.raises(DeclarationError, match=r"items\[\]"):
        formats.Avro(schema=json.dumps(fields(("items", {"type": "array", "items": "null"})))).bind(Items)


def test_a_count_beyond_the_bytes_is_refused_before_its_items_are_read() -> None:
    raw = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\x02" * 1_000_000  # the first million are there
    schema = fields(("items", {"type": "array", "items": "long"}))
    tracemalloc.start()
    try:
        assert answer(schema, raw, Items) == "malformed_avro"
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_a_type_inside_itself_is_passed_over_up_to_a_depth() -> None:
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "next", "type": ["null", "Tree"]}]}
    schema = fields(("tree", tree), ("id", "int"))
    good = b"\x02" * (DEEPEST - 1) + b"\x00" + b"\x0a"
    assert answer(schema, good, Small) == {"id": 5, "name": None, "score": None}
    assert answer(schema, b"\x02" * 1_000_000 + b"\x00\x0a", Small) == "malformed_avro"


def test_a_value_of_10_mb_is_too_large() -> None:
    with pytest.raises(formats.BadRecord, match="^too_large$"):
        BOUND.decode_one(frame(7, bytes(10 * 2**20)), BOUND.bind(Order))
    long = b"\x02" + b"\x02" + fastavro_long(LONGEST - 6) + b"x" * (LONGEST - 6)
    schema = fields(("id", "int"), ("name", ["null", "string"]))
    assert len(long) <= LONGEST
    assert answer(schema, long, Small) == {"id": 1, "name": "x" * (LONGEST - 6), "score": None}


def fastavro_long(n: int) -> bytes:
    return write("long", n)


def test_a_schema_of_its_own_needs_no_frame_and_must_fit() -> None:
    assert answer(V2, b"\x02\x02a\x06", Small) == {"id": 3, "name": "a", "score": None}
    with pytest.raises(DeclarationError, match="does not fit the schema"):
        formats.Avro(schema=json.dumps(fields(("name", "string")))).bind(Small)
    with pytest.raises(DeclarationError, match="no schema of Avro"):
        formats.Avro(schema="{")


def test_people_see_json_with_all_that_the_writer_wrote() -> None:
    found = json.loads(BOUND.render(body()))
    assert found["at"] == "2023-11-14 22:13:20.123000+00:00"
    assert (found["cost"], found["ignored"], found["place"]["flag"]) == (
        "12.340",
        {"x": None, "y": 5, "z": [1.5]},
        True,
    )
    for damaged in (b"", b"\x00\x00\x00\x00\x09x", body()[:-3], formats.Avro().encode.__doc__.encode()):  # type: ignore[union-attr]
        assert BOUND.render(damaged) == damaged


def test_names_of_a_reference_are_known() -> None:
    money = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    text = json.dumps(
        {"type": "record", "name": "shop.R", "fields": [{"name": "id", "type": "int"}, {"name": "m", "type": "Money"}]}
    )
    found = SchemaText(type="AVRO", text=text, references=(("shop.Money", json.dumps(money)),))
    its = formats.Avro().bind_schemas(Schemas({1: found}))
    assert its.decode_one(frame(1, b"\x02\x04"), its.bind(Small)) == {"id": 1, "name": None, "score": None}


def test_a_plan_pins_the_registry_and_no_text_of_it() -> None:
    assert formats.Avro().freeze() == {"format": "avro"}
    assert BOUND.freeze() == {"format": "avro"}
    assert formats.Avro(registry="eu").freeze() == {"format": "avro", "registry": "eu"}
    assert formats.Avro(schema='"int"').freeze() == {"format": "avro", "schema": '"int"'}
