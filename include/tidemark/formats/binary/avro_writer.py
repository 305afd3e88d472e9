"""Writes values in Avro's binary encoding, for tests and for `tidemark.testing`."""

import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from tidemark.formats.binary.avro_schema import AvroType
from tidemark.formats.record_format import fields_of

_EPOCH, _DAY0 = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1).toordinal()

_PER_SECOND_OF_DAY = {"time-millis": 1000, "time-micros": 10**6}


class Unfit(ValueError):  # noqa: N818
    """A value is none of its type."""


def write_value(of: AvroType, value: Any) -> bytes:  # noqa: ANN401
    """Returns a value in Avro's encoding; of a union, the first branch that fits. A missing field gets its default.

    Raises:
        Unfit: it does not fit the type.
    """
    try:
        return _write(of, value)
    except Unfit:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, struct.error) as error:
        raise Unfit(f"{value!r} is no {of.name or of.kind}") from error


def write_long(n: int) -> bytes:
    """Writes an int or a long: zigzag, seven bits a byte."""
    rest, made = (n << 1) ^ (n >> 63), bytearray()
    while rest > 127:
        made.append(rest & 127 | 128)
        rest >>= 7
    made.append(rest)
    return bytes(made)


def _write(of: AvroType, value: Any) -> bytes:  # noqa: ANN401
    if isinstance(value, Enum):
        value = value.value
    match of.kind:
        case "union":
            return _branch(of, value)
        case "record":
            given = {**of.defaults, **fields_of(value)}
            return b"".join(write_value(inner, given[name]) for name, inner in of.fields)
        case "array" | "map":
            return _items(of, value)
        case "enum" if value in of.symbols:
            return write_long(of.symbols.index(value))
        case "int" | "long":
            return write_long(_whole(of, value))
        case "bytes" | "fixed":
            return _raw(of, value)
    return _simple(of, value)


def _simple(of: AvroType, value: Any) -> bytes:  # noqa: ANN401
    match of.kind:
        case "float" | "double" if isinstance(value, int | float):
            return struct.pack("<f" if of.kind == "float" else "<d", value)
        case "boolean" if isinstance(value, bool):
            return bytes([value])
        case "null" if value is None:
            return b""
        case "string" if isinstance(value, str | UUID | time):
            text = value.isoformat() if isinstance(value, time) else str(value)
            return _sized(text.encode("utf-8", "surrogatepass"))
    raise Unfit(f"{value!r} is no {of.name or of.kind}")


def _branch(of: AvroType, value: Any) -> bytes:  # noqa: ANN401
    for n, branch in enumerate(of.branches):
        try:
            return write_long(n) + write_value(branch, value)
        except Unfit:
            continue
    raise Unfit(f"{value!r} fits no branch")


def _items(of: AvroType, value: Any) -> bytes:  # noqa: ANN401
    assert of.items is not None  # noqa: S101  (arrays and maps have items)
    if of.kind == "map":
        names = [key.value if isinstance(key, Enum) else key for key in value]
        items = [
            _sized(name.encode()) + write_value(of.items, inner)
            for name, inner in zip(names, value.values(), strict=True)
        ]
    else:
        items = [write_value(of.items, inner) for inner in value]
    return (write_long(len(items)) + b"".join(items) if items else b"") + write_long(0)


def _whole(of: AvroType, value: Any) -> int:  # noqa: ANN401
    if isinstance(value, datetime):
        per_second = {"millis": 1000, "micros": 10**6, "nanos": 10**9}[of.logical.rpartition("-")[2]]
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(microseconds=1) * per_second // 10**6
    if of.logical in _PER_SECOND_OF_DAY and isinstance(value, str | time):
        at = time.fromisoformat(value) if isinstance(value, str) else value
        midnight = datetime.combine(date.min, time())
        micros = (datetime.combine(date.min, at) - midnight) // timedelta(microseconds=1)
        return micros * _PER_SECOND_OF_DAY[of.logical] // 10**6
    if isinstance(value, date):
        return value.toordinal() - _DAY0
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unfit(f"{value!r} is no {of.kind}")
    return value


def _raw(of: AvroType, value: Any) -> bytes:  # noqa: ANN401
    if of.logical == "decimal":
        sign, digits, exponent = Decimal(value).as_tuple()
        unscaled = (-1 if sign else 1) * int("".join(map(str, digits))) * 10 ** (int(exponent) + of.scale)
        value = int(unscaled).to_bytes(of.size or (int(unscaled).bit_length() + 8) // 8, signed=True)
    elif of.logical == "uuid" and of.kind == "fixed" and isinstance(value, str | UUID):
        value = UUID(str(value)).bytes
    if not isinstance(value, bytes) or (of.kind == "fixed" and len(value) != of.size):
        raise Unfit(f"{value!r} is no {of.kind}")
    return value if of.kind == "fixed" else _sized(value)


def _sized(raw: bytes) -> bytes:
    return write_long(len(raw)) + raw
