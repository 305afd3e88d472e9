"""Records whose fields come from Kafka's envelope too: key, headers, timestamp and position (`tidemark.kafka`).

The format decodes the payload's fields, and these functions add the envelope's: in Python for pages, redrives and
tests, and as expressions for Spark. Both check the payload first and then the envelope's fields in their order.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tidemark.errors import DeclarationError, UsageError
from tidemark.formats.record_format import FAULT, GOOD, BadRecord, RecordFormat
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.log_records import LogRecord
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.core.origins import ENVELOPE, HEADER, Origin, origins_of, without_origins
from tidemark.model.core.types import FieldType, declared_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KAFKA = "kafka"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = {
    "kafka.timestamp": "`timestamp`",
    "kafka.topic": "topic",
    "kafka.partition": "CAST(`partition` AS BIGINT)",
    "kafka.offset": "`offset`",
}


def bind_record(format: RecordFormat, record: type) -> FieldType:
    """Returns the struct of a source's record: what the format decodes, and the envelope's fields.

    Raises:
        DeclarationError: a field has a type that the format, or Kafka, cannot fill.
    """
    own = origins_of(record, KAFKA)
    if not own:
        return format.bind(record)
    is_whole = len(own) == len(fields(record))
    payload = {} if is_whole and not format.has_changes else dict(format.bind(without_origins(record, KAFKA)).fields)
    found = {name: origin_type(record, name, origin) for name, origin in own.items()}
    return FieldType("struct", fields=tuple((f.name, (found | payload)[f.name]) for f in fields(record)))


def origin_type(record: type, name: str, origin: Origin) -> FieldType:
    """Returns the type of a field with an origin.

    Raises:
        DeclarationError: the origin has no values of the declared type.
    """
    of = declared_type(record, name)
    wanted = " or ".join({"timestamp": "datetime"}.get(kind, kind) for kind in origin.kinds)
    if of.kind not in origin.kinds or of.form or of.members:
        raise DeclarationError(f"{record.__name__}.{name}: {origin} is no {of.word}", next=f"declare it as {wanted}.")
    if of.nullable and not origin.nullable:
        raise DeclarationError(
            f"{record.__name__}.{name}: {origin} is never null", next=f"declare it as {wanted}, without None."
        )
    return of.with_origin(origin.name)


def pin_envelope(record: FieldType) -> dict[str, str]:
    """Returns what a plan pins of a record's envelope; nothing if all fields come from the payload."""
    own = {name: of.origin for name, of in record.fields if of.origin}
    return {ENVELOPE: json.dumps(own, sort_keys=True)} if own else {}


def pinned_envelope(pinned: Mapping[str, str]) -> dict[str, str]:
    """Returns the origins of the envelope's fields from what a plan pins of an input."""
    found: dict[str, str] = json.loads(pinned.get(ENVELOPE, "{}"))
    return found


def has_headers(record: FieldType) -> bool:
    """Whether a field of a record is a header."""
    return any(of.origin.startswith(HEADER) for _, of in record.fields)


def decode_record(format: RecordFormat, record: FieldType, tp: TopicPartition, found: LogRecord) -> dict[str, Any]:
    """Decodes one record of a partition: the payload's fields and the envelope's.

    Raises:
        BadRecord: the record is refused; the text is the reason.
    """
    payload, own = _split(record)
    if not own:
        return format.decode_one(found.value, record)
    if found.value is None:
        raise BadRecord(Reason.NULL_VALUE.value)
    made = format.decode_one(found.value, payload) if payload.fields else {}
    for name, of in own:
        made[name] = _checked(name, of, found) if _is_raw(of) else _PLAIN[of.origin](tp, found)
    return {name: made[name] for name, _ in record.fields}


_PLAIN: Mapping[str, Callable[[TopicPartition, LogRecord], object]] = {
    "kafka.timestamp": lambda _, found: _EPOCH + timedelta(milliseconds=found.timestamp_ms),
    "kafka.topic": lambda tp, _: tp.topic,
    "kafka.partition": lambda tp, _: tp.partition,
    "kafka.offset": lambda _, found: found.offset,
}


def _checked(name: str, of: FieldType, found: LogRecord) -> bytes | str | None:
    raw, is_there = found.key, True
    if of.origin.startswith(HEADER):
        values = [value for key, value in found.headers if key == of.origin.removeprefix(HEADER)]
        raw, is_there = (values[-1] if values else None), bool(values)
    if raw is None:
        if of.nullable:
            return None
        raise BadRecord((Reason.NULL_FIELD if is_there else Reason.MISSING_FIELD).at(name))
    if of.kind == "bytes":
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(Reason.INVALID_UTF8.at(name)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What a producer gives Kafka for a record; `key` and `timestamp_ms` are None where the record leaves them open."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def encode_record(format: RecordFormat, record: FieldType, body: Any) -> Sent:  # noqa: ANN401
    """Returns what decodes to a record; the inverse of `decode_record` for tests.

    Args:
        format: the format.
        record: the struct of the record.
        body: an instance of the record dataclass, or a mapping with its fields. Envelope fields that are left out, or
            hold their origin, are Kafka's to fill; a header that is None is not sent.

    Raises:
        UsageError: it has a topic, a partition or an offset, which only Kafka gives.
    """
    payload, own = _split(record)
    if not own:
        return Sent(value=format.encode(body))
    given = dict(body) if isinstance(body, Mapping) else {f.name: getattr(body, f.name) for f in fields(body)}
    found = {of.origin: given[name] for name, of in own if not isinstance(given.get(name, _OPEN), Origin)}
    fixed = sorted(set(found) & {"kafka.topic", "kafka.partition", "kafka.offset"})
    if fixed:
        raise UsageError(f"only Kafka gives a record its {fixed[0]}", next="leave the field out of the record.")
    at, key = found.get("kafka.timestamp"), found.get("kafka.key")
    left: Any = {name: value for name, value in given.items() if name not in dict(own)}
    if payload.fields and not isinstance(body, Mapping):
        cls: Any = type(body)
        left = without_origins(cls, KAFKA)(**left)
    return Sent(
        value=format.encode(left) if payload.fields else b"",
        key=None if key is None else _raw(key),
        timestamp_ms=None if at is None else epoch_ms(at),
        headers=tuple(
            (origin.removeprefix(HEADER), _raw(value))
            for origin, value in found.items()
            if origin.startswith(HEADER) and value is not None
        ),
    )


_OPEN = Origin("", ())


def _raw(given: bytes | str) -> bytes:
    return given.encode() if isinstance(given, str) else given


def epoch_ms(at: datetime) -> int:
    """Returns a time in milliseconds since the epoch; one without a zone is in UTC."""
    return ((at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def split_payload(record: FieldType) -> FieldType:
    """Returns the struct of the fields that the format decodes."""
    return _split(record)[0]


def with_envelope(decoded: "DataFrame", record: FieldType, kept: Sequence[str]) -> "DataFrame":
    """Adds the envelope's fields to rows that a format has decoded: to `_good`, and their reasons to `_fault`.

    Args:
        decoded: rows with Kafka's columns, `headers` if a field is one, and those of the payload: `_fault` and, if the
            payload has fields, `_good`.
        record: the struct of the record.
        kept: expressions of Kafka's columns.
    """
    payload, own = _split(record)
    if not own:
        return decoded
    headers = {name: f"_h{n}" for n, (name, of) in enumerate(own) if of.origin.startswith(HEADER)}
    held = [f"{_header(of.origin)} AS {headers[name]}" for name, of in own if name in headers]
    reasons = [_reason(name, of, headers.get(name)) for name, of in own if _is_raw(of)]
    values = {name: f"{GOOD}.`{name}`" for name, _ in payload.fields}
    values |= {name: _value(of, headers.get(name)) for name, of in own}
    struct = ", ".join(f"'{name}', {values[name]}" for name, _ in record.fields)
    fault = f"coalesce({', '.join([FAULT, *reasons, 'NULL'])}) AS {FAULT}"
    return decoded.selectExpr("*", *held).selectExpr(*kept, fault, f"named_struct({struct}) AS {GOOD}")


def _split(record: FieldType) -> tuple[FieldType, list[tuple[str, FieldType]]]:
    own = [(name, of) for name, of in record.fields if of.origin.startswith("kafka.")]
    payload = tuple((name, of) for name, of in record.fields if not of.origin.startswith("kafka."))
    return replace(record, fields=payload), own


def _is_raw(of: FieldType) -> bool:
    return of.origin not in _COLUMNS


def _header(origin: str) -> str:
    name = origin.removeprefix(HEADER).replace("\\", "\\\\").replace("'", "\\'")
    return f"try_element_at(filter(headers, _h -> _h.key = '{name}'), -1)"


def _value(of: FieldType, header: str | None) -> str:
    if not _is_raw(of):
        return _COLUMNS[of.origin]
    raw = "key" if header is None else f"{header}.value"
    return raw if of.kind == "bytes" else f"CAST({raw} AS STRING)"


def _reason(name: str, of: FieldType, header: str | None) -> str:
    """Why a key or header does not fit; an expression that is null if it does."""
    raw = "key" if header is None else f"{header}.value"
    tests = []
    if not of.nullable:
        absent = [] if header is None else [f"WHEN {header} IS NULL THEN '{Reason.MISSING_FIELD.at(name)}'"]
        tests += [*absent, f"WHEN {raw} IS NULL THEN '{Reason.NULL_FIELD.at(name)}'"]
    if of.kind == "str":
        text = f"is_valid_utf8(CAST({raw} AS STRING))"
        tests.append(f"WHEN {raw} IS NOT NULL AND NOT {text} THEN '{Reason.INVALID_UTF8.at(name)}'")
    return f"CASE {' '.join(tests)} END" if tests else "CAST(NULL AS STRING)"
