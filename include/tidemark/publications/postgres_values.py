"""Columns of a state in PostgreSQL: the type of each, and its values there and back, by Arrow type."""

import base64
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

Convert = Callable[[Any], Any]


def to_json(of: pa.DataType) -> Convert:
    """Returns the function that turns values of a type into JSON values.

    Decimals, dates, times and non-finite floats are text, bytes are base64; a map is an object whose keys are text.
    """
    if pa.types.is_struct(of):
        inner = {of.field(n).name: to_json(of.field(n).type) for n in range(of.num_fields)}
        return _unless_none(lambda value: {name: inner[name](value[name]) for name in inner})
    if pa.types.is_map(of):
        key, item = to_json(of.key_type), to_json(of.item_type)
        return _unless_none(lambda value: {_text(key(k)): item(v) for k, v in dict(value).items()})
    if pa.types.is_list(of):
        element = to_json(of.value_type)
        return _unless_none(lambda value: [element(v) for v in value])
    return _unless_none(_dump)


def from_json(of: pa.DataType) -> Convert:
    """Returns the inverse of `to_json`."""
    if pa.types.is_struct(of):
        inner = {of.field(n).name: from_json(of.field(n).type) for n in range(of.num_fields)}
        return _unless_none(lambda value: {name: inner[name](value[name]) for name in inner})
    if pa.types.is_map(of):
        key, item = from_json(of.key_type), from_json(of.item_type)
        return _unless_none(lambda value: [(key(k), item(v)) for k, v in value.items()])
    if pa.types.is_list(of):
        element = from_json(of.value_type)
        return _unless_none(lambda value: [element(v) for v in value])
    return _unless_none(next((load for test, load in _LOAD if test(of)), _same))


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _text(key: Any) -> str:
    return key if isinstance(key, str) else str(key).lower() if isinstance(key, bool) else str(key)


def _dump(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else repr(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


_LOAD: tuple[tuple[Callable[[pa.DataType], bool], Convert], ...] = (
    (pa.types.is_floating, float),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_timestamp, datetime.fromisoformat),
    (pa.types.is_date, date.fromisoformat),
    (pa.types.is_binary, base64.b64decode),
    (pa.types.is_boolean, lambda value: value == "true" if isinstance(value, str) else value),
    (pa.types.is_integer, int),
)
_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "smallint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_float32, "real"),
    (pa.types.is_float64, "double precision"),
    (pa.types.is_string, "text"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_date, "date"),
)


def postgres_type(of: pa.DataType) -> str:
    """Returns the type of a column; structs, maps, and lists of them are `jsonb`."""
    if pa.types.is_timestamp(of):
        return "timestamp with time zone" if of.tz else "timestamp without time zone"
    if pa.types.is_decimal(of):
        return f"numeric({of.precision},{of.scale})"
    if pa.types.is_list(of):
        inner = postgres_type(of.value_type)
        return "jsonb" if inner == "jsonb" or inner.endswith("[]") else f"{inner}[]"
    return next((name for test, name in _PLAIN if test(of)), "jsonb")


def to_value(of: pa.DataType) -> Convert:
    """Returns the function that turns Python values of a column into those that PostgreSQL takes."""
    return to_json(of) if postgres_type(of) == "jsonb" else lambda value: value


def from_value(of: pa.DataType) -> Convert:
    """Returns the function that turns values of PostgreSQL into Python values of a column."""
    return from_json(of) if postgres_type(of) == "jsonb" else lambda value: value
