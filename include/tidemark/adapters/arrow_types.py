"""SQL types of ours as Arrow types, so that what DuckDB answers has the declared types exactly."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidemark.adapters.delta_types import parsed

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
    """The Arrow schema of (column, SQL type) pairs."""
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
