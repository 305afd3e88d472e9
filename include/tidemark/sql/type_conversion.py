"""Stored values of an earlier type as values of the current one: more digits, and fields that a dataclass got since.

An added field has its default in old values, or is null. `model.state.evolution` says which changes are legal; readers,
compactions and the twin convert by this module, in SQL of both engines and in Python.
"""

import base64
import json
import re
from functools import partial
from typing import Any

from tidemark.model.core.json_values import value_from_json
from tidemark.model.core.types import FieldType
from tidemark.model.portable_sql.dialects import Dialect

_PLAIN = re.compile("[A-Za-z0-9 _.:+-]*")


def converted_sql(value: str, old: FieldType, new: FieldType, dialect: Dialect, depth: int = 0) -> str:
    """Returns the expression of a stored value in a wider type.

    Args:
        value: the expression of the stored value.
        old: its type.
        new: the wider type.
        dialect: dialect of the engine.
        depth: number of lists and maps around it.
    """
    if old.sql == new.sql:
        return value
    if _has_names_of(old, new):
        return f"CAST({value} AS {dialect.type(new)})"
    if old.element is not None and new.element is not None:
        inner = partial(converted_sql, old=old.element, new=new.element, dialect=dialect, depth=depth + 1)
        var = f"_e{depth}"
        made = dialect.transform_values(value, var, inner) if new.key else dialect.transform(value, var, inner(var))
    else:
        there = dict(old.fields)
        fields = [
            (
                name,
                converted_sql(f'({value})."{name}"', there[name], of, dialect, depth)
                if name in there
                else _added_sql(of, dialect),
            )
            for name, of in new.fields
        ]
        made = f"CASE WHEN {value} IS NULL THEN NULL ELSE {dialect.struct(fields)} END"
    return f"CAST({made} AS {dialect.type(new)})"


def converted_value(value: Any, old: FieldType, new: FieldType) -> Any:
    """Returns a stored value in a wider type; twin of `converted_sql`."""
    if value is None or old.sql == new.sql:
        return value
    if old.element is not None and new.element is not None:
        if new.key is not None:
            return {k: converted_value(v, old.element, new.element) for k, v in value.items()}
        return [converted_value(v, old.element, new.element) for v in value]
    if new.kind != "struct":
        return value
    there = dict(old.fields)
    return {
        name: converted_value(value[name], there[name], of) if name in there else added_value(of)
        for name, of in new.fields
    }


def added_value(of: FieldType) -> Any:
    """Returns the value of an added field in stored values that do not have it."""
    return None if of.default is None else value_from_json(of, json.loads(of.default))


def _has_names_of(old: FieldType, new: FieldType) -> bool:
    inner = zip((t for _, t in old.fields), (t for _, t in new.fields), strict=False)
    elements = [] if old.element is None or new.element is None else [(old.element, new.element)]
    same = [name for name, _ in old.fields] == [name for name, _ in new.fields]
    return same and all(_has_names_of(was, now) for was, now in (*inner, *elements))


def _added_sql(of: FieldType, dialect: Dialect) -> str:
    return f"CAST({_literal(of, added_value(of), dialect)} AS {dialect.type(of)})"


def _literal(of: FieldType, value: Any, dialect: Dialect) -> str:
    if value is None:
        return "NULL"
    if of.kind == "struct":
        return dialect.struct(
            [(name, f"CAST({_literal(t, value[name], dialect)} AS {dialect.type(t)})") for name, t in of.fields]
        )
    if of.element is not None:
        items = ", ".join(f"CAST({_literal(of.element, v, dialect)} AS {dialect.type(of.element)})" for v in value)
        return dialect.array(items)
    if of.kind == "bytes":
        return dialect.from_base64(base64.b64encode(value).decode())
    if of.kind == "str" and not _PLAIN.fullmatch(value):
        # Quotes and backslashes mean something else in each engine.
        return dialect.decode_utf8(dialect.from_base64(base64.b64encode(value.encode()).decode()))
    return f"'{str(value).lower() if of.kind == 'bool' else value}'"
