"""`Protobuf()` against Google's own library, which reads the bytes with a class made of the same descriptor."""

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Literal
from uuid import UUID

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory, timestamp_pb2, wrappers_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.format_cases import Answer, FormatCase
from tidemark import formats
from tidemark.errors import DeclarationError
from tidemark.formats.record_format import BadRecord
from tidemark.formats.registry_format import frame
from tidemark.model.schema.registry_schemas import Schemas, SchemaText

HEX = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
F = descriptor_pb2.FieldDescriptorProto
ONE, MANY = F.LABEL_OPTIONAL, F.LABEL_REPEATED


def field(name: str, number: int, type: int, label: int = ONE, of: str = "", **more: Any) -> Any:
    return F(name=name, number=number, type=type, label=label, type_name=of or None, **more)


def classes() -> dict[str, Any]:
    """The classes that protoc would make of this file: `Other`, then `Order` with `Place` inside."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="CARD", number=0)
    kind.value.add(name="CASH", number=-2)
    file.message_type.add(name="Other").field.append(field("name", 1, F.TYPE_STRING))
    order = file.message_type.add(name="Order")
    order.nested_type.add(name="Place").field.extend(
        [field("city", 1, F.TYPE_STRING), field("floor", 2, F.TYPE_SINT32, oneof_index=0, proto3_optional=True)]
    )
    order.nested_type[0].oneof_decl.add(name="_floor")
    order.field.extend(
        [
            field("account", 1, F.TYPE_STRING),
            field("amount", 2, F.TYPE_INT64),
            field("price", 3, F.TYPE_DOUBLE, oneof_index=0, proto3_optional=True),
            field("kind", 4, F.TYPE_ENUM, of=".shop.Kind"),
            field("place", 5, F.TYPE_MESSAGE, of=".shop.Order.Place"),
            field("tags", 6, F.TYPE_STRING, MANY),
            field("sizes", 7, F.TYPE_SINT64, MANY),
            field("at", 8, F.TYPE_MESSAGE, of=".google.protobuf.Timestamp"),
            field("limit", 9, F.TYPE_MESSAGE, of=".google.protobuf.UInt64Value"),
            field("ok", 10, F.TYPE_BOOL),
            field("raw", 11, F.TYPE_BYTES),
            field("weights", 12, F.TYPE_FLOAT, MANY),
            field("big", 200, F.TYPE_FIXED64),
            field("level", 13, F.TYPE_ENUM, of=".shop.Kind"),
            field("ref", 14, F.TYPE_STRING, oneof_index=1, proto3_optional=True),
        ]
    )
    order.oneof_decl.add(name="_price")
    order.oneof_decl.add(name="_ref")
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    names = ("Order", "Other", "Order.Place")
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{n}")) for n in names}


CLASSES = classes()
TEXT = SchemaText(type="PROTOBUF", text='syntax = "proto3"; …')


@dataclass(frozen=True)
class Place:
    """Nested."""

    city: str
    floor: int | None


@dataclass(frozen=True)
class Order:
    """Declared in another order than the message."""

    amount: int
    account: str
    price: float | None
    kind: str
    place: Place | None
    tags: list[str]
    sizes: list[int]
    at: datetime
    limit: int | None
    ok: bool
    raw: bytes
    weights: list[float]
    big: int
    level: Literal[0, -2, 7]
    ref: UUID = UUID(int=5)
    lacking: str = "none"


def oracle(value: bytes) -> Answer:
    if len(value) < 5 or value[0]:
        return "malformed_protobuf: no frame"
    id = int.from_bytes(value[1:5])
    if id == 6:
        return "schema_mismatch"
    if id != 7:
        return f"unknown_schema: {id}"
    path, rest = [], value[5:]
    count = _zigzag(rest)
    if count is None or not 0 <= count[0] <= 16:
        return "malformed_protobuf: no frame"
    rest = count[1]
    for _ in range(count[0]):
        index = _zigzag(rest)
        if index is None:
            return "malformed_protobuf: no frame"
        path.append(index[0])
        rest = index[1]
    if path != [1]:
        return "schema_mismatch"
    try:
        return _meant(CLASSES["Order"].FromString(rest))
    except message.DecodeError:
        return "malformed_protobuf"


def _zigzag(raw: bytes) -> tuple[int, bytes] | None:
    for n in range(1, 11):
        part = raw[:n]
        if len(part) == n and part[-1] < 128:
            whole = sum((byte & 127) << 7 * i for i, byte in enumerate(part))
            return None if whole >= 2**64 else ((whole >> 1) ^ -(whole & 1), raw[n:])
    return None


def _meant(found: Any) -> Answer:
    has = found.HasField
    micros = found.at.seconds * 10**6 + found.at.nanos // 1000
    reasons = (
        ("out_of_range: price", not math.isfinite(found.price)),
        ("unknown_member: kind", found.kind not in (0, -2)),
        ("missing_field: at", not has("at")),
        ("out_of_range: at", not -62_135_596_800_000_000 <= micros < 253_402_300_800_000_000),
        ("out_of_range: limit", found.limit.value >= 2**63),
        ("out_of_range: weights[]", not all(map(math.isfinite, found.weights))),
        ("out_of_range: big", found.big >= 2**63),
        ("unknown_member: level", found.level not in (0, -2, 7)),
        ("bad_format: ref", has("ref") and HEX.fullmatch(found.ref) is None),
    )
    reason = next((reason for reason, applies in reasons if applies), None)
    if reason is not None:
        return reason
    place = {"city": found.place.city, "floor": found.place.floor if found.place.HasField("floor") else None}
    return {
        "amount": found.amount,
        "account": found.account,
        "price": found.price if has("price") else None,
        "kind": "CARD" if found.kind == 0 else "CASH",
        "place": place if has("place") else None,
        "tags": list(found.tags),
        "sizes": list(found.sizes),
        "at": EPOCH + timedelta(microseconds=micros),
        "limit": found.limit.value if has("limit") else None,
        "ok": found.ok,
        "raw": found.raw,
        "weights": list(found.weights),
        "big": found.big,
        "level": found.level,
        "ref": found.ref.lower() if has("ref") else str(UUID(int=5)),
        "lacking": "none",
    }


def body(id: int = 7, **fields: Any) -> bytes:
    made = CLASSES["Order"](**({"account": "a", "at": {"seconds": 5}} | fields))
    return frame(id, b"\x02\x02" + made.SerializeToString())


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
LONG = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)
FIELDS = st.fixed_dictionaries(
    {
        "amount": LONG,
        "account": TEXTS,
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "kind": st.sampled_from(["CARD", "CASH"]),
        "place": st.none()
        | st.fixed_dictionaries({"city": TEXTS, "floor": st.none() | st.integers(-(2**31), 2**31 - 1)}),
        "tags": st.lists(TEXTS, max_size=3),
        "sizes": st.lists(LONG, max_size=3),
        "at": st.datetimes(timezones=st.just(UTC)),
        "limit": st.none() | st.integers(0, 2**63 - 1),
        "ok": st.booleans(),
        "raw": st.binary(max_size=5),
        "weights": st.lists(FLOATS, max_size=3),
        "big": st.integers(0, 2**63 - 1),
        "level": st.sampled_from([0, -2, 7]),
        "ref": st.uuids().map(str),
        "lacking": st.just("none"),
    }
)
BOUND = formats.Protobuf(message=CLASSES["Order"]).bind_schemas(
    Schemas({7: TEXT, 6: SchemaText(type="AVRO", text='"string"')})
)
CASE = FormatCase(
    format=BOUND,
    record=Order,
    fields=FIELDS,
    oracle=oracle,
    bytes=(
        body(),
        body(
            amount=-1, price=0.0, kind=-2, place={"city": "Köln", "floor": -3}, tags=["x", ""], sizes=[1, -(2**63)],
            limit={"value": 5}, ok=True, raw=b"\xff", weights=[1.5, -2], big=2**40,
        ),
        body(at=None),
        body(at={"seconds": 253_402_300_800}),
        body(limit={"value": 2**63}, big=2**63, price=math.nan),
        body(kind=5),
        body(level=7, ref="12345678-90AB-cdef-1234-567890abcdef"),
        body(level=3),
        body(ref="x"),
        body(ref=""),
        # Merged messages, a list that is not packed, groups, fields nobody declared.
        body() + b"\x2a\x03\x0a\x01A" + b"\x2a\x02\x10\x03" + b"\x38\x02\x38\x04" + b"\xa3\x06\x08\x05\xa4\x06",
        body() + b"\x62\x04\x00\x00\x80\x3f" + b"\x65\x00\x00\x00\x40" + b"\xf8\x07\x01",
        body() + b"\x0a\x02\xff\xfe",
        body() + b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\x50\x80\x80\x80\x80\x10",
        body() + b"\x42\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        body() + b"\x0b" * 120,
        body(6),
        body(8),
        frame(7, b"\x00" + CLASSES["Other"](name="x").SerializeToString()),
        b"\x00\x00\x00",
        b"\x0a\x01a",
    ),
)  # fmt: skip


def test_a_generated_class_is_needed_and_the_record_has_to_fit() -> None:
    @dataclass(frozen=True)
    class Wrong:
        """A field of another type."""

        amount: str

    @dataclass(frozen=True)
    class Lacking:
        """A field that no message has."""

        nowhere: int

    @dataclass(frozen=True)
    class NoList:
        """A list that is none."""

        tags: str

    with pytest.raises(DeclarationError, match="is no generated message"):
        formats.Protobuf(message=Order)
    with pytest.raises(DeclarationError, match="is no generated message"):
        formats.Protobuf()
    with pytest.raises(DeclarationError, match="framing"):
        formats.Protobuf(message=CLASSES["Order"], framing="x")
    for record, named in ((Wrong, "amount: another type"), (Lacking, "nowhere: shop.Order has"), (NoList, "a list")):
        with pytest.raises(DeclarationError, match=named):
            BOUND.bind(record)


def test_without_a_frame_the_value_is_the_message() -> None:
    @dataclass(frozen=True)
    class City:
        """A nested message alone."""

        city: str

    its = formats.Protobuf(message=CLASSES["Order.Place"], framing="none")
    assert its.needs_schemas_of is None
    assert its.decode_one(b"\x0a\x01A", its.bind(City)) == {"city": "A"}
    assert its.decode_one(b"", its.bind(City)) == {"city": ""}
    assert its.encode({"city": "A"}) == b"\x0a\x01A"


def test_a_nested_message_is_named_by_its_path() -> None:
    its = formats.Protobuf(message=CLASSES["Order.Place"]).bind_schemas(Schemas({7: TEXT}))
    made = its.encode({"city": "A"})
    assert made == frame(7, b"\x04\x02\x00\x0a\x01A")
    assert its.decode_one(made, its.bind(Place)) == {"city": "A", "floor": None}


def test_people_see_json() -> None:
    shown = BOUND.render(body(kind=-2, tags=["x"], raw=b"\xff"))
    assert shown == b'{"account": "a", "kind": "CASH", "tags": ["x"], "at": {"seconds": 5}, "raw": "/w=="}'
    assert BOUND.render(b"\x01") == b"\x01"


@dataclass
class Scalars:
    """Fields that one loop reads."""

    account: str
    amount: int
    price: float | None
    ok: bool
    raw: bytes
    big: int
    at: datetime | None
    ref: str = "none"
    later: int = 3


@settings(max_examples=1500, deadline=None)
@given(chance=st.randoms(use_true_random=False))
def test_one_loop_and_the_message_reader_give_one_meaning(chance: Random) -> None:
    some = formats.Protobuf(message=CLASSES["Order"], framing="none")
    record = some.bind(Scalars)
    order = CLASSES["Order"](account="a\u00e9", amount=chance.choice([-1, 0, 300]), ok=chance.random() < 0.5, raw=b"x")
    if chance.random() < 0.5:
        order.price, order.ref = chance.choice([1.5, math.inf, -0.0]), "r"
    if chance.random() < 0.5:
        order.place.city, order.big = "Ulm", chance.choice([1, 2**63])
    if chance.random() < 0.5:
        order.at.seconds, order.at.nanos = chance.choice([0, 1_700_000_000, -62_135_596_801]), chance.choice([0, 999])
    value = bytearray(order.SerializeToString() * chance.choice([1, 1, 2]))
    for _ in range(chance.choice([0, 1, 1, 2])):
        at = chance.randrange(len(value) + 1)
        if chance.random() < 0.5:
            value[at:at] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 12)))
        else:
            del value[at : at + chance.randrange(1, 4)]

    def told(decode: Any) -> Any:
        try:
            return repr(decode(bytes(value), record))
        except BadRecord as error:
            return str(error)

    assert told(some.decode_one) == told(some._decode_strictly)


@dataclass
class Needed:
    """A field with presence that must be there."""

    price: float
    ok: bool
    at: datetime | None


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        ("19 000000000000f83f", {"price": 1.5, "ok": False, "at": None}),
        ("19 000000000000f83f 50 80808080808080808002", {"price": 1.5, "ok": False, "at": None}),
        ("19 000000000000f83f 50 8080808080808080808001", "malformed_protobuf"),
        ("19 000000000000f83f 8a8080808000 01 61", "malformed_protobuf"),
        ("19 000000000000f83f 0a 818080808000 61", "malformed_protobuf"),
        ("19 000000000000f8", "malformed_protobuf"),
        ("50 01", "missing_field: price"),
        ("19 000000000000f07f", "out_of_range: price"),
        (
            "19 000000000000f83f 42 02 0805 42 03 10e807",
            {"price": 1.5, "ok": False, "at": EPOCH.replace(second=5, microsecond=1)},
        ),
    ],
)
def test_doubtful_messages_mean_what_they_do_to_the_message_reader(raw: str, answer: Any) -> None:
    some = formats.Protobuf(message=CLASSES["Order"], framing="none")
    record = some.bind(Needed)
    for decode in (some.decode_one, some._decode_strictly):
        try:
            found: Any = decode(bytes.fromhex(raw), record)
        except BadRecord as error:
            found = str(error)
        assert found == answer


def test_usual_messages_are_read_in_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    some = formats.Protobuf(message=CLASSES["Order"], framing="none")
    monkeypatch.setattr(formats.Protobuf, "_decode_strictly", None)
    value = CLASSES["Order"](account="a", amount=-5, ok=True, tags=["t"], big=7).SerializeToString()
    assert some.decode_one(value, some.bind(Scalars)) == {
        "account": "a", "amount": -5, "price": None, "ok": True, "raw": b"", "big": 7, "at": None,
        "ref": "none", "later": 3,
    }  # fmt: skip


def test_deep_messages_are_malformed_not_a_crash() -> None:
    deep = b"\x0b" * 1_000_000
    with pytest.raises(formats.BadRecord, match="^malformed_protobuf$"):
        BOUND.decode_one(frame(7, b"\x02\x02" + deep), BOUND.bind(Order))
