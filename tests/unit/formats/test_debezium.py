"""`Debezium()` against a decoder written straight down, its fields of a change, and what it refuses to declare."""

import io
import json
import random
from dataclasses import dataclass, make_dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.format_cases import Answer, FormatCase, damaged
from tests.support.row_changes import Copy, Item, OldItem, Spent, event, pipeline
from tidemark import Broadcast, FlatMap, Fold, KafkaSource, Pipeline, formats, kafka, state, testing
from tidemark.errors import DeclarationError
from tidemark.formats import BadRecord, debezium
from tidemark.formats.envelope import bind_record, encode_record
from tidemark.formats.json import decode_row_key
from tidemark.formats.known_formats import format_of
from tidemark.formats.registry_format import frame
from tidemark.model.core.log_records import LogRecord
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.core.types import FieldType, Precision
from tidemark.model.schema.registry_schemas import Schemas, SchemaText
from tidemark.web.source_lookup import by_key

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INT, TEXT = FieldType("int"), FieldType("str")
Long = Annotated[Decimal, Precision(20, 10)]


@dataclass(frozen=True)
class Customer:
    """Columns only."""

    id: int
    email: str | None


@dataclass(frozen=True)
class Change:
    """Columns, and the fields of the change."""

    id: int
    op: str = debezium.op()
    email: str | None = None
    at: datetime = debezium.ts()
    before: Customer | None = debezium.before()


def oracle(value: bytes, *, whole: bool = False) -> Answer:
    try:
        found = _parsed(value)
    except UnicodeError:
        return "invalid_utf8"
    except ValueError:
        return "malformed_json"
    if not isinstance(found, dict):
        return "not_an_object"
    try:
        return _change(found, whole=whole)
    except KeyError as error:
        return str(error.args[0])


def _parsed(value: bytes) -> Any:
    found = json.loads(value.decode(), object_pairs_hook=_once, parse_constant=_never, parse_float=lambda n: (n,))
    json.dumps(found, ensure_ascii=False).encode()
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name twice")
    return dict(pairs)


def _never(name: str) -> None:
    raise ValueError(name)


def _change(found: dict[str, Any], *, whole: bool) -> Answer:
    op, payload = _opt(found, "op", str), _opt(found, "payload", dict)
    if payload is not None:
        found, op = payload, _opt(payload, "op", str)
    if op == "d":
        return "null_value"
    if op not in ("c", "r", "u"):
        return "unsupported_op"
    row = _must(found, "after", dict, "after")
    made = {"id": _whole(row, "id"), "email": _opt(row, "email", str)}
    if not whole:
        return made
    before = _opt(found, "before", dict)
    if before is not None:
        before = {"id": _whole(before, "before.id", "id"), "email": _opt(before, "email", str, "before.email")}
    source = _must(found, "source", dict, "source")
    ms = _whole(source, "source.ts_ms", "ts_ms")
    if not -62_135_596_800_000 <= ms <= 253_402_300_799_999:
        return "out_of_range: source.ts_ms"
    at = EPOCH + timedelta(milliseconds=ms)
    return {"id": made["id"], "op": op, "email": made["email"], "at": at, "before": before}


def _opt(found: dict[str, Any], name: str, kind: type, path: str = "") -> Any:
    value = found.get(name)
    if value is not None and type(value) is not kind:
        raise KeyError(f"wrong_type: {path or name}")
    return value


def _must(found: dict[str, Any], name: str, kind: type, path: str) -> Any:
    if name not in found:
        raise KeyError(f"missing_field: {path}")
    if found[name] is None:
        raise KeyError(f"null_field: {path}")
    return _opt(found, name, kind, path)


def _whole(found: dict[str, Any], path: str, name: str = "") -> int:
    value = found.get(name or path)
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise KeyError(f"{'out_of_range' if len(str(abs(value))) <= 38 else 'wrong_type'}: {path}")
    number: int = _must(found, name or path, int, path)
    return number


def _bytes(*, wraps: bool = False, **parts: Any) -> bytes:
    body = {**event("u", {"id": 1, "email": "a"}, {"id": 1, "email": "b"}, 5), **parts}
    return json.dumps({"schema": {"type": "struct"}, "payload": body} if wraps else body).encode()


VALUES = (
    _bytes(), _bytes(op="c", before=None), _bytes(op="r", wraps=True), _bytes(op="d", after=None),
    _bytes(op="t"), _bytes(op="t", wraps=True), _bytes(after=None), _bytes(after={"id": "1"}), _bytes(op=None),
    _bytes(source={"ts_ms": 10**18}), _bytes(source={"ts_ms": -62135596800001}),
    _bytes(source={"ts_ms": 253402300799999}),
    _bytes(before={"id": 1}), _bytes(before={"email": "x"}), _bytes(source={}), _bytes(op=1), b"{}",
    b'{"schema": null, "payload": null}', b'{"op": "u", "payload": 1}', b"[]", b'{"op":"c","after":{"id":1}}',
    b'{"op":"c","after":{"id":1e3}}', b'{"op":"d"}', b'{"payload":{"op":"d","after":null}}',
)  # fmt: skip
CASE = FormatCase(
    format=formats.Debezium(),
    record=Customer,
    fields=st.builds(lambda id, email: {"id": id, "email": email}, st.integers(-9, 9), st.none() | st.text()),
    oracle=oracle,
    bytes=VALUES,
)
WHOLE = replace(CASE, record=Change, oracle=lambda value: oracle(value, whole=True))


@settings(max_examples=1000, deadline=None)
@given(st.sampled_from(VALUES), st.integers(0, 2**32))
def test_the_fields_of_a_change_are_read_as_the_oracle_reads_them(value: bytes, seed: int) -> None:
    made = damaged(random.Random(seed), value)
    assert WHOLE.answer(value) == WHOLE.oracle(value)
    assert WHOLE.answer(made) == WHOLE.oracle(made)


def test_an_instance_with_the_fields_of_a_change_comes_back() -> None:
    at = datetime(2024, 3, 1, tzinfo=UTC)
    sent = Change(1, "u", "b", at, Customer(1, "a"))
    assert WHOLE.answer(formats.Debezium().encode(sent)) == {
        "id": 1, "op": "u", "email": "b", "at": at, "before": {"id": 1, "email": "a"},
    }  # fmt: skip
    assert WHOLE.answer(formats.Debezium().encode(Change(1))) == {
        "id": 1, "op": "c", "email": None, "at": EPOCH, "before": None,
    }  # fmt: skip


@dataclass(frozen=True)
class Tagged:
    """A column, a field of the change and one of Kafka."""

    id: int
    op: str = debezium.op()
    tenant: str = kafka.header("tenant")


def test_an_instance_with_fields_of_kafka_too_keeps_those_of_the_change() -> None:
    sent = encode_record(formats.Debezium(), bind_record(formats.Debezium(), Tagged), Tagged(1, "u", "x"))
    assert sent.headers == (("tenant", b"x"),)
    assert {name: json.loads(sent.value or b"")[name] for name in ("op", "after")} == {"op": "u", "after": {"id": 1}}


# Keys: what the converter of the connector writes.
KEY_SCHEMA = {
    "type": "record", "name": "Key", "namespace": "shop.public.items",
    "fields": [{"name": "id", "type": "int"}, {"name": "region", "type": "string"}],
}  # fmt: skip
ROW_SCHEMA = {
    "type": "record", "name": "Value",
    "fields": [
        {"name": "id", "type": "int"}, {"name": "region", "type": "string"},
        {"name": "name", "type": ["null", "string"], "default": None}, {"name": "cents", "type": "int"},
    ],
}  # fmt: skip
VALUE_SCHEMA = {
    "type": "record", "name": "Envelope", "namespace": "shop.public.items",
    "fields": [
        {"name": "before", "type": ["null", ROW_SCHEMA], "default": None},
        {"name": "after", "type": ["null", "shop.public.items.Value"], "default": None},
        {"name": "source", "type": {
            "type": "record", "name": "Source", "namespace": "io.debezium.connector.postgresql",
            "fields": [{"name": "version", "type": "string"}, {"name": "ts_ms", "type": "long"}]}},
        {"name": "op", "type": "string"}, {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}  # fmt: skip
AVRO = Schemas(
    {
        7: SchemaText(type="AVRO", text=json.dumps(VALUE_SCHEMA)),
        8: SchemaText(type="AVRO", text=json.dumps(KEY_SCHEMA)),
    }
)
JSON_SCHEMAS = Schemas({7: SchemaText(type="JSON", text="{}"), 8: SchemaText(type="JSON", text="{}")})


def avro(id: int, schema: Any, value: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return frame(id, stream.getvalue())


def avro_event(op: str, before: Any, after: Any, ts_ms: int = 5) -> bytes:
    source = {"version": "3.0.0.Final", "ts_ms": ts_ms}
    return avro(7, VALUE_SCHEMA, {"before": before, "after": after, "source": source, "op": op, "ts_ms": 9})


def avro_key(id: int, region: str) -> bytes:
    return avro(8, KEY_SCHEMA, {"id": id, "region": region})


COLUMNS = (("id", INT), ("region", TEXT))


@pytest.mark.parametrize(
    ("inner", "key", "expected"),
    [
        (formats.Json(), b'{"id": 1, "region": "a"}', (1, "a")),
        (formats.Json(), b'{"schema": {"type": "struct"}, "payload": {"region": "a", "id": 1}}', (1, "a")),
        (formats.Json(), b'{"id": 1, "region": "a", "more": 1}', None),
        (formats.Json(), b'{"id": 1}', None),
        (formats.Json(), b'{"id": 1.0, "region": "a"}', None),
        (formats.Json(), b'{"id": null, "region": "a"}', None),
        (formats.Json(), b'{"id": 1, "region": "\\ud800"}', None),
        (formats.Json(), b'[1, "a"]', None),
        (formats.Json(), b"1", None),
        (formats.Json(), b"\xff", None),
        (formats.Json(), b'{"schema": {}, "payload": null}', None),
        (formats.Json(), b"[" * 10_000, None),
        (formats.Json(), None, None),
        (formats.Json(), b"", None),
        (formats.JsonSchema().bind_schemas(JSON_SCHEMAS), frame(8, b'{"id": 1, "region": "a"}'), (1, "a")),
        (formats.Avro().bind_schemas(AVRO), avro_key(1, "a"), (1, "a")),
        (formats.Avro().bind_schemas(AVRO), b'{"id": 1, "region": "a"}', (1, "a")),
        (formats.Avro().bind_schemas(AVRO), frame(9, b"\x02\x02a"), None),
        (formats.Avro().bind_schemas(AVRO), avro_key(1, "a") + b"\0", None),
    ],
)
def test_keys_are_read_by_the_names_of_the_columns(
    inner: formats.RecordFormat, key: bytes | None, expected: tuple[int, str] | None
) -> None:
    its = formats.Debezium(inner=inner)
    if expected is not None:
        assert decode_row_key(its.row_key(key), COLUMNS) == expected
        return
    with pytest.raises(BadRecord, match="^bad_key$"):
        decode_row_key(its.row_key(key), COLUMNS)


def test_events_in_avro_are_read_with_two_schemas() -> None:
    made = pipeline(inner=formats.Avro().bind_schemas(AVRO))
    old = {"id": 1, "region": "a", "name": "x", "cents": 4}
    new = old | {"cents": 6}
    sent = [
        (avro_event("c", None, old), avro_key(1, "a")),
        (avro_event("u", old, new, 3), avro_key(1, "a")),
        (avro_event("c", None, old | {"region": "b"}), avro_key(1, "b")),
        (avro_event("d", old | {"region": "b"}, None), avro_key(1, "b")),
        (None, avro_key(1, "b")),
        (avro_event("t", None, None), None),
        (b"\0\0\0\0\7", avro_key(2, "b")),
    ]
    found = testing.replay(made, [[testing.Record(value=value, key=key) for value, key in sent], testing.BARRIER])
    assert found.state("copy") == {(1, "a"): Copy(name="x", cents=6, note=None, op="u", first="x")}
    assert [letter["reason"] for letter in found.dead_letters("copy")] == ["unsupported_op", "malformed_avro"]
    assert found.state("spent") == {"a": Spent(cents=6), "b": Spent(cents=4)}
    assert found.counts("spent").filtered == 2


def test_a_schema_of_avro_changes_in_the_middle() -> None:
    later: dict[str, Any] = json.loads(json.dumps(VALUE_SCHEMA))
    columns = later["fields"][0]["type"][1]["fields"]
    columns[:] = [c for c in columns if c["name"] != "name"] + [{"name": "note", "type": "string", "default": "new"}]
    texts = {**AVRO.texts, 9: SchemaText(type="AVRO", text=json.dumps(later))}
    made = pipeline(inner=formats.Avro().bind_schemas(Schemas(texts)))
    old, new = {"id": 1, "region": "a", "cents": 4, "name": "x"}, {"id": 1, "region": "a", "cents": 6, "note": "y"}
    source = {"version": "3.0.0.Final", "ts_ms": 4}
    sent = [
        (avro_event("c", None, old), avro_key(1, "a")),
        (
            avro(9, later, {"before": new | {"cents": 4}, "after": new, "source": source, "op": "u", "ts_ms": 5}),
            avro_key(1, "a"),
        ),
    ]
    found = testing.replay(made, [[testing.Record(value=value, key=key) for value, key in sent], testing.BARRIER])
    assert found.state("copy") == {(1, "a"): Copy(name=None, cents=6, note="y", op="u", first="x")}
    assert found.state("spent") == {"a": Spent(cents=6)} and not found.dead_letters("copy")


KEY_TYPES: tuple[tuple[Any, Any, Any], ...] = (
    ("int", 5, int),
    ("long", -(2**63), int),
    ("string", "é😀", str),
    ("boolean", True, bool),
    ({"type": "string", "logicalType": "uuid"}, UUID(int=5), UUID),
    ({"type": "int", "logicalType": "date"}, date(2024, 1, 2), date),
    ({"type": "long", "logicalType": "timestamp-micros"}, datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC), datetime),
    ({"type": "long", "logicalType": "time-micros"}, time(1, 2, 3, 4), time),
    ("bytes", b"\0\xff", bytes),
    *(
        ({"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 10}, Decimal(text), Long)
        for text in ("0", "0.0000000001", "-1234567890.1")
    ),
)


@pytest.mark.parametrize(("avro_type", "value", "declared"), KEY_TYPES, ids=str)
def test_a_message_key_in_avro_is_the_column_in_the_row(avro_type: Any, value: Any, declared: Any) -> None:
    columns = [{"name": "id", "type": avro_type}]
    row = {"type": "record", "name": "Value", "fields": columns}
    envelope = {
        "type": "record", "name": "Envelope",
        "fields": [{"name": "after", "type": ["null", row]}, {"name": "op", "type": "string"}],
    }  # fmt: skip
    key = {"type": "record", "name": "Key", "fields": columns}
    schemas = {7: SchemaText(type="AVRO", text=json.dumps(envelope)), 8: SchemaText(type="AVRO", text=json.dumps(key))}
    its = formats.Debezium(inner=formats.Avro()).bind_schemas(Schemas(schemas))
    record = its.bind(make_dataclass("Row", [("id", declared)], frozen=True))
    decoded = its.decode_one(avro(7, envelope, {"after": {"id": value}, "op": "c"}), record)
    assert decode_row_key(its.row_key(avro(8, key, {"id": value})), record.fields) == (decoded["id"],)
    assert decoded["id"] in (value, str(value), value.isoformat() if isinstance(value, time) else value)


def test_the_registry_of_keys_is_that_of_values() -> None:
    its = formats.Debezium(inner=formats.Avro(registry="other"))
    assert its.needs_schemas_of == "other" and its.bind_schemas(AVRO).needs_schemas_of is None
    assert formats.Debezium().needs_schemas_of is None
    assert format_of(its.freeze()) == its and format_of(formats.Debezium().freeze()) == formats.Debezium()
    assert its.render(b"x") == b"x"
    shown = json.loads(its.bind_schemas(AVRO).render(avro_event("t", None, None)))
    assert shown["op"] == "t" and shown["source"]["ts_ms"] == 5


@pytest.mark.parametrize(
    ("inner", "match"), [(formats.Text(), "name the format"), (formats.Avro(schema='"string"'), "schema of their own")]
)
def test_the_inner_format_is_one_of_a_converter(inner: formats.RecordFormat, match: str) -> None:
    with pytest.raises(DeclarationError, match=match):
        formats.Debezium(inner=inner)


@dataclass(frozen=True)
class NoColumns:
    """Nothing of the row."""

    op: str = debezium.op()
    key: bytes | None = kafka.key()


@dataclass(frozen=True)
class OnlyKafka:
    """Nothing of the change."""

    key: bytes | None = kafka.key()


@dataclass(frozen=True)
class Strict:
    """A row before that an inserted row lacks."""

    id: int
    before: Customer = debezium.before()


@dataclass(frozen=True)
class WrongType:
    """An operation is a text."""

    id: int
    op: int = debezium.op()


@pytest.mark.parametrize(
    ("record", "match"),
    [
        (NoColumns, "no column of the row"),
        (OnlyKafka, "no column of the row"),
        (Strict, "no row before"),
        (WrongType, r"debezium.op\(\) is no int"),
    ],
)
def test_a_record_that_no_change_fills_is_refused(record: type, match: str) -> None:
    with pytest.raises(DeclarationError, match=match):
        bind_record(formats.Debezium(), record)


class Sums(state.Keyed):
    """Would count versions."""

    cents: int = state.sum("cents")
    n: int = state.count()


class Name(state.Keyed):
    """May be folded."""

    name: str | None = state.latest("name")


class Cents(state.Keyed):
    """Emitted records are no changes, so every kind may fold them."""

    cents: int | None = state.sum("cents")


@pytest.mark.parametrize(
    ("fold", "match"),
    [
        (Fold("f", key_by="id", state=Sums), r"cents is a state.sum, n is a state.count.*Process.*debezium.before\(\)"),
        (Fold("f", key_by="id", state=Copy, where="cents > 0"), "an update takes out"),
        (Fold("f", key_by=(), state=Copy), "columns of the primary key"),
        (Fold("f", key_by={"k": "lower(region)"}, state=Copy), "columns of the primary key"),
        (Fold("f", key_by={"k": "id"}, state=Copy), "columns of the primary key"),
        (Fold("f", key_by="before.id", state=Copy), "columns of the primary key"),
        (Fold("f", key_by="op", state=Name), "columns of the primary key"),
    ],
)
def test_a_fold_that_would_be_wrong_is_refused(fold: Fold, match: str) -> None:
    source = KafkaSource("items", Item, format=formats.Debezium())
    with pytest.raises(DeclarationError, match=f"(?s){match}"):
        Pipeline(name="p", source=source, operators=[fold])


def test_a_broadcast_state_of_changes_keys_by_columns() -> None:
    with pytest.raises(DeclarationError, match="columns of the primary key"):
        Broadcast("items", KafkaSource("items", Item, format=formats.Debezium()), key_by="op")


def test_a_flat_map_gets_no_deletes() -> None:
    made = Pipeline(
        name="p",
        source=KafkaSource("items", Item, format=formats.Debezium()),
        operators=[
            FlatMap("olds", function=lambda change: [change.before] if change.before else [], emits=OldItem),
            Fold("kept", key_by="id", input="olds", state=Cents),
        ],
        max_dead_letters=1.0,
    )
    old, new = ({"id": 1, "region": "a", "name": None, "cents": cents} for cents in (4, 6))
    made_of = [event("c", None, old, 5), event("u", old, new, 5), event("d", new, None, 5)]
    sent = [json.dumps(found).encode() for found in made_of]
    found = testing.replay(made, [[*sent, None], testing.BARRIER])
    assert found.counts("olds").filtered == 2 and found.counts("olds").applied == 2
    assert found.state("kept") == {1: Cents(cents=4)}


def test_old_plans_have_no_changes_and_new_ones_say_so() -> None:
    copy = pipeline().schemas()["copy"]
    assert copy.to_json()["changes"] is True and type(copy).from_json(copy.to_json()) == copy
    plain = replace(copy, changes=False)
    assert "changes" not in plain.to_json() and type(copy).from_json(plain.to_json()) == plain


def test_pages_find_changes_of_a_key_by_the_message_key() -> None:
    row = {"id": 1, "region": "a", "name": None, "cents": 4}
    key = b'{"id": 1, "region": "a"}'
    values = [json.dumps(event("c", None, row, 5)).encode(), json.dumps(event("d", row, None, 5)).encode(), None]
    (done,) = testing.replay(
        pipeline(), [[testing.Record(value=value, key=key) for value in values], testing.BARRIER]
    ).checkpoints
    fits = by_key(done.plan, "copy", ["1", "a"])
    assert fits is not None
    place = TopicPartition("shop.public.items", 0)
    records = [LogRecord(offset=n, timestamp_ms=0, key=key, value=value) for n, value in enumerate(values)]
    assert all(fits(place, record) for record in records)
    assert not fits(place, replace(records[0], key=b'{"id": 2, "region": "a"}'))
    of_region = by_key(done.plan, "spent", ["a"])
    assert of_region is not None
    assert [of_region(place, record) for record in records] == [True, False, False], "deletes have no region"
