"""SQL types as Delta's schema JSON, for exactly the grammar of `FieldType.sql`."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from deltalake import Schema

PARTITION_COLUMNS: tuple[tuple[str, str], ...] = (("_level", "INT"), ("_checkpoint", "BIGINT"))
"""Partition columns of every Tidemark table, after its own columns."""

_PRIMITIVES = {
    "BOOLEAN": "boolean",
    "INT": "integer",
    "BIGINT": "long",
    "DOUBLE": "double",
    "STRING": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
}
_TOKEN = re.compile(r"DECIMAL\(\d+,\d+\)|[A-Z]+|`[A-Za-z0-9_]+`|[<>:,]")


def delta_schema(columns: Sequence[tuple[str, str]]) -> Schema:
    """Returns the Delta schema of (column, SQL type) pairs and the partition columns; every field is nullable."""
    fields = [_field(name, parsed(sql)) for name, sql in (*columns, *PARTITION_COLUMNS)]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def shape(schema: Schema) -> list[tuple[str, Any]]:
    """Returns (name, type) of each field in order, without nullability and metadata, for comparison."""
    return [(f["name"], _bare(f["type"])) for f in json.loads(schema.to_json())["fields"]]


def parsed(sql: str) -> Any:
    """Returns Delta's JSON form of one SQL type.

    Raises:
        ValueError: the type is outside the grammar of `FieldType.sql`.
    """
    if re.sub(r"\s", "", "".join(_TOKEN.findall(sql))) != re.sub(r"\s", "", sql):
        raise ValueError(f"unknown type: {sql!r}")
    tokens = iter(_TOKEN.findall(sql))
    return _type(next(tokens), tokens)


def _type(token: str, rest: Iterator[str]) -> Any:
    if token in _PRIMITIVES:
        return _PRIMITIVES[token]
    if token.startswith("DECIMAL("):
        return token.lower()
    if token == "ARRAY" and next(rest) == "<":  # noqa: S105  (a token of SQL)
        element = _type(next(rest), rest)
        _expect(next(rest), ">")
        return {"type": "array", "elementType": element, "containsNull": True}
    if token == "MAP" and next(rest) == "<":  # noqa: S105
        key = _type(next(rest), rest)
        _expect(next(rest), ",")
        value = _type(next(rest), rest)
        _expect(next(rest), ">")
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if token == "STRUCT" and next(rest) == "<":  # noqa: S105
        return {"type": "struct", "fields": list(_fields(rest))}
    raise ValueError(f"unknown type: {token!r}")


def _fields(rest: Iterator[str]) -> Iterator[dict[str, Any]]:
    separator = ","
    while separator == ",":
        name = next(rest).strip("`")
        _expect(next(rest), ":")
        yield _field(name, _type(next(rest), rest))
        separator = next(rest)
    _expect(separator, ">")


def _expect(found: str, wanted: str) -> None:
    if found != wanted:
        raise ValueError(f"unknown type: expected {wanted!r}, found {found!r}")


def _field(name: str, of: Any) -> dict[str, Any]:
    return {"name": name, "type": of, "nullable": True, "metadata": {}}


def _bare(of: Any) -> Any:
    if isinstance(of, dict) and of["type"] == "struct":
        return [(f["name"], _bare(f["type"])) for f in of["fields"]]
    if isinstance(of, dict) and of["type"] == "array":
        return ["array", _bare(of["elementType"])]
    if isinstance(of, dict) and of["type"] == "map":
        return ["map", _bare(of["keyType"]), _bare(of["valueType"])]
    return of
