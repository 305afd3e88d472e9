"""Reads the types of Avro that are not composed, as the fields of a record; see `avro_reader` for the others."""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

from tidemark.formats.binary.avro_binary import (
    Read,
    enum_reader,
    fixed_reader,
    read_boolean,
    read_bytes,
    read_double,
    read_float,
    read_long,
    read_null,
    read_text,
)
from tidemark.formats.binary.avro_schema import AvroType
from tidemark.formats.json import check_scalar
from tidemark.formats.record_format import BadRecord
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.types import FieldType

_EPOCH, _DAY0 = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1).toordinal()
_DAY_SECONDS = 86_400
_UUID_SIZE = 16
_LONGEST_NUMBER = 64
"""Bytes of the longest number that is shown as one."""
_PER_SECOND = {"millis": 1000, "micros": 1_000_000, "nanos": 1_000_000_000}


def then(read: Read, convert: Callable[[Any], Any]) -> Read:
    """Returns a reader whose values are converted."""

    def both(raw: bytes, at: int) -> tuple[Any, int]:
        found, at = read(raw, at)
        return convert(found), at

    return both


def raw_reader(of: AvroType) -> Read:
    """Returns the reader of a type that is not composed, without its logical type."""
    if of.kind == "fixed":
        return fixed_reader(of.size)
    return enum_reader(of.symbols) if of.kind == "enum" else _RAW[of.kind]


_RAW: dict[str, Read] = {
    "null": read_null,
    "boolean": read_boolean,
    "int": read_long,
    "long": read_long,
    "float": read_float,
    "double": read_double,
    "bytes": read_bytes,
    "string": read_text,
}


def logical_value(of: AvroType) -> Callable[[Any], Any] | None:
    """A value for people; one that no calendar has stays a number."""
    if of.logical == "decimal" and of.kind in ("bytes", "fixed"):
        return lambda raw: _decimal(raw, of.scale)
    if of.logical == "date" and of.kind == "int":
        return lambda n: _day(n) or n
    if _is_uuid(of):
        return lambda raw: UUID(bytes=raw)
    per_second = _per_second_of_day(of)
    if per_second is not None:
        return lambda n: _clock(n, per_second) or n
    unit = _moments(of)
    if unit and of.kind == "long":
        return lambda n: _moment(n, unit) or n
    return None


def refuse(reason: Reason, path: str) -> Read:
    """Returns a reader that refuses every value of a field."""

    def read(raw: bytes, at: int) -> tuple[Any, int]:  # noqa: ARG001
        raise BadRecord(reason.at(path))

    return read


def scalar_reader(of: AvroType, to: FieldType, path: str) -> Read | None:
    """Returns the reader of a type that is not composed as a field; None = no value of it fits."""
    convert = _CONVERSIONS.get(to.form or to.kind)
    read = None if convert is None else convert(of, to, path)
    return then(read, partial(check_scalar, of=to, path=path)) if read is not None and to.members else read


# Conversions: the reader of an Avro type that is not composed as a field; None = no value of it fits.
def _to_bool(of: AvroType, to: FieldType, path: str) -> Read | None:  # noqa: ARG001
    return read_boolean if of.kind == "boolean" else None


def _to_int(of: AvroType, to: FieldType, path: str) -> Read | None:  # noqa: ARG001
    return read_long if of.kind in ("int", "long") else None


def _to_float(of: AvroType, to: FieldType, path: str) -> Read | None:  # noqa: ARG001
    if of.kind in ("int", "long"):
        return then(read_long, float)
    if of.kind not in ("float", "double"):
        return None

    def finite(found: float) -> float:
        if not math.isfinite(found):
            raise BadRecord(Reason.OUT_OF_RANGE.at(path))
        return found

    return then(raw_reader(of), finite)


def _to_decimal(of: AvroType, to: FieldType, path: str) -> Read | None:
    most = 10**to.digits

    def fit(unscaled: int, scale: int) -> Decimal:
        if scale > to.scale:
            unscaled, rest = divmod(unscaled, 10 ** (scale - to.scale))
            if rest:
                raise BadRecord(Reason.OUT_OF_RANGE.at(path))
        else:
            unscaled *= 10 ** (to.scale - scale)
        if not -most < unscaled < most:
            raise BadRecord(Reason.OUT_OF_RANGE.at(path))
        return _scaled(unscaled, to.scale)

    if of.kind in ("int", "long"):
        return then(read_long, lambda n: fit(n, 0))
    if of.logical != "decimal" or of.kind not in ("bytes", "fixed"):
        return None
    return then(raw_reader(of), lambda raw: fit(int.from_bytes(raw, signed=True), of.scale))


def _to_text(of: AvroType, to: FieldType, path: str) -> Read | None:  # noqa: ARG001
    if of.kind == "bytes":
        return read_text if of.logical != "decimal" else None
    return raw_reader(of) if of.kind in ("string", "enum") else None


def _to_uuid(of: AvroType, to: FieldType, path: str) -> Read | None:
    return then(raw_reader(of), lambda raw: str(UUID(bytes=raw))) if _is_uuid(of) else _checked_text(of, to, path)


def _to_time(of: AvroType, to: FieldType, path: str) -> Read | None:
    per_second = _per_second_of_day(of)
    if per_second is None:
        return _checked_text(of, to, path)
    return then(read_long, lambda n: _in_range(_clock(n, per_second), path))


def _checked_text(of: AvroType, to: FieldType, path: str) -> Read | None:
    read = _to_text(of, to, path)
    return None if read is None else then(read, partial(check_scalar, of=to, path=path))


def _to_bytes(of: AvroType, to: FieldType, path: str) -> Read | None:  # noqa: ARG001
    if of.kind == "string":
        return then(read_text, str.encode)
    return raw_reader(of) if of.kind in ("bytes", "fixed") else None


def _to_date(of: AvroType, to: FieldType, path: str) -> Read | None:  # noqa: ARG001
    if of.kind != "int" or of.logical != "date":
        return None
    return then(read_long, lambda n: _in_range(_day(n), path))


def _to_timestamp(of: AvroType, to: FieldType, path: str) -> Read | None:  # noqa: ARG001
    unit = _moments(of)
    if of.kind != "long" or unit is None:
        return None
    return then(read_long, lambda n: _in_range(_moment(n, unit), path))


_CONVERSIONS: dict[str, Callable[[AvroType, FieldType, str], Read | None]] = {
    "bool": _to_bool,
    "int": _to_int,
    "float": _to_float,
    "decimal": _to_decimal,
    "str": _to_text,
    "bytes": _to_bytes,
    "uuid": _to_uuid,
    "time": _to_time,
    "date": _to_date,
    "timestamp": _to_timestamp,
}


def _in_range(found: Any, path: str) -> Any:  # noqa: ANN401
    if found is None:
        raise BadRecord(Reason.OUT_OF_RANGE.at(path))
    return found


def _moments(of: AvroType) -> int | None:
    """Units per second of a timestamp. A local one has no zone; it counts as UTC, as a text without zone does."""
    head, _, tail = of.logical.rpartition("-")
    return _PER_SECOND.get(tail) if head in ("timestamp", "local-timestamp") else None


def _per_second_of_day(of: AvroType) -> int | None:
    """Units per second of a time of the day."""
    return {("int", "time-millis"): 1000, ("long", "time-micros"): 1_000_000}.get((of.kind, of.logical))


def _is_uuid(of: AvroType) -> bool:
    return of.kind == "fixed" and of.size == _UUID_SIZE and of.logical == "uuid"


def _clock(n: int, per_second: int) -> str | None:
    """The text of a time, as Python writes it."""
    seconds, rest = divmod(n, per_second)
    if not 0 <= seconds < _DAY_SECONDS:
        return None
    minutes, second = divmod(seconds, 60)
    return time(*divmod(minutes, 60), second, rest * 1_000_000 // per_second).isoformat()


def _moment(n: int, per_second: int) -> datetime | None:
    """The microsecond that contains a time."""
    try:
        return _EPOCH + timedelta(microseconds=n * 1_000_000 // per_second)
    except OverflowError:
        return None


def _day(n: int) -> date | None:
    try:
        return date.fromordinal(_DAY0 + n)
    except (ValueError, OverflowError):
        return None


def _decimal(raw: bytes, scale: int) -> Decimal | bytes:
    return raw if len(raw) > _LONGEST_NUMBER else _scaled(int.from_bytes(raw, signed=True), scale)


def _scaled(unscaled: int, scale: int) -> Decimal:
    # Not by `scaleb`, which rounds to the digits of the thread's context.
    return Decimal(f"{unscaled}E-{scale}")
