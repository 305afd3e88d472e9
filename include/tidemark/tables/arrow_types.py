"""Tidemark's SQL types as Arrow types, so that results of DuckDB have exactly the declared types."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidemark.model.core.types import FieldType
from tidemark.tables.delta_types import parsed

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def arrow_schema(columns: Sequence[tuple[str, str]]) -> pa.Schema:
    """Returns the Arrow schema of (column, SQL type) pairs."""
    return pa.schema([(name, _arrow(parsed(sql))) for name, sql in columns])


def _arrow(of: Any) -> pa.DataType:
    if isinstance(of, dict) and of["type"] == "array":
        return pa.list_(_arrow(of["elementType"]))
    if isinstance(of, dict) and of["type"] == "map":
        return pa.map_(_arrow(of["keyType"]), _arrow(of["valueType"]))
    if isinstance(of, dict):
        return pa.struct([(f["name"], _arrow(f["type"])) for f in of["fields"]])
    if of.startswith("decimal("):
        digits, scale = of.removeprefix("decimal(").rstrip(")").split(",")
        return pa.decimal128(int(digits), int(scale))
    return _PRIMITIVES[of]


def fits(there: pa.DataType, of: FieldType) -> bool:
    """Whether a column holds values of the declared kind; the cast checks whether each of them fits."""
    if of.kind == "struct":
        held = {there.field(n).name: there.field(n).type for n in range(there.num_fields)} if _is_struct(there) else {}
        return all(name in held and fits(held[name], inner) for name, inner in of.fields)
    if of.key is not None and of.element is not None:
        is_map = bool(pa.types.is_map(there))
        return is_map and fits(there.key_type, of.key) and fits(there.item_type, of.element)
    if of.element is not None:
        return _is_list(there) and fits(there.value_type, of.element)
    return any(test(there) for test in _TESTS[of.kind])


def _is_struct(there: pa.DataType) -> bool:
    return bool(pa.types.is_struct(there))


def _is_list(there: pa.DataType) -> bool:
    return bool(pa.types.is_list(there) or pa.types.is_large_list(there))


_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_TESTS = {
    "bool": (pa.types.is_boolean,),
    "int": (pa.types.is_integer,),
    "float": (pa.types.is_floating,),
    "decimal": (pa.types.is_decimal, pa.types.is_integer),
    "str": _TEXT,
    "bytes": _BYTES,
    "date": (pa.types.is_date,),
    "timestamp": (pa.types.is_timestamp,),
}
