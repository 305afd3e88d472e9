"""Values of a state as JSON and back, by Arrow type: for targets that have no structs or maps."""

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
