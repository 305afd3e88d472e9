"""Columns of a state in PostgreSQL: the type of each, and its values there and back, by Arrow type."""

from collections.abc import Callable

import pyarrow as pa

from tidemark.publications.json_rows import Convert, from_json, to_json

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
