"""The rows of a patch: values of keys that are set, tombstones of keys that are deleted.

A patch lies above the state that it corrects, as one segment whose rows name the checkpoint that made them. It replaces
all earlier state of a key: if the stored schema says that the state was patched, readers start a fold's key at its
newest value or tombstone. For a process they take the newest row of each key and map entry. So a removed map entry has
its own tombstone: the key's would only work until a compaction kept the key's newest row alone.
"""

from dataclasses import dataclass

from tidemark.model.kinds.base.sql import key_columns, quote
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.sql.initial_state import stored_sql, typed_columns

_UNNUMBERED = 0
"""`_changed` of the rows until the checkpoint has an id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchedState:
    """The effect of a patch on the state of one operator.

    Attributes:
        new: keys set that did not exist.
        changed: keys set to another value, or to none.
        equal: keys set to their previous value.
        deleted: keys deleted that existed.
        absent: keys to delete that did not exist.
        rows: number of stored rows that are written.
        bytes: size of their files.
    """

    new: int
    changed: int
    equal: int
    deleted: int
    absent: int
    rows: int
    bytes: int


def patch_sql(schema: OperatorSchema, given: str, gone: str, at_ms: int) -> str:
    """Returns the rows of keys, in the columns of `run_columns`, with `_changed` not filled in yet.

    Args:
        schema: the stored schema.
        given: relation of the keys that are set, with `given_columns` and `_key_group`.
        gone: relation of the keys that are deleted and have rows, in the same columns.
        at_ms: access time of the keys, on the operator's clock, in milliseconds.
    """
    values = stored_sql(schema, given, at_ms, _UNNUMBERED)
    return f"{values} UNION ALL {stored_sql(schema, gone, at_ms, _UNNUMBERED, kind='tombstone')}"


def ended_sql(schema: OperatorSchema, beneath: str, made: str) -> str:
    """Returns tombstones of map entries that the patch removes from its keys, in the columns of `run_columns`.

    Args:
        schema: the stored schema, with maps.
        beneath: relation of all stored rows of these keys.
        made: relation of the rows of `patch_sql`.
    """
    keys = key_columns(schema)
    place = ['"_field"', *(quote(f"{f.name}__key") for f in schema.maps)]
    same = " AND ".join(f"m.{name} IS NOT DISTINCT FROM e.{name}" for name in (*keys, *place))
    newest = 'arg_max("_kind", "_changed")'
    entries = (
        f'SELECT {", ".join((*keys, *place))}, any_value("_key_group") AS "_key_group" FROM {beneath}'
        f" WHERE \"_field\" IS NOT NULL GROUP BY {', '.join((*keys, *place))} HAVING {newest} <> 'tombstone'"
    )
    held = {name.strip('"'): name for name in place}
    held |= {"_kind": "'tombstone'", "_changed": str(_UNNUMBERED)}
    return (
        f"SELECT {typed_columns(schema, held)} FROM ({entries}) AS e WHERE NOT EXISTS (FROM {made} AS m WHERE {same})"
    )


def numbered_sql(made: str, number: int) -> str:
    """Returns the rows of a patch, with the id of the checkpoint that makes them."""
    return f'SELECT * REPLACE (CAST({number} AS BIGINT) AS "_changed") FROM {made}'


def compared_sql(schema: OperatorSchema, given: str, was: str, becomes: str) -> str:
    """Returns one row: how many of the keys that are set are `new`, and how many are `equal`.

    Args:
        schema: the stored schema.
        given: relation of the keys that are set.
        was: relation of their previous state, resolved.
        becomes: relation of their future state, resolved.
    """
    keys = ", ".join(key_columns(schema))
    same = " AND ".join(f"w.{quote(f.name)} IS NOT DISTINCT FROM b.{quote(f.name)}" for f in schema.fields)
    had, has = 'w."_changed" IS NOT NULL', 'b."_changed" IS NOT NULL'
    return (
        f"SELECT count(*) FILTER (WHERE NOT ({had}) AND {has}) AS new,"
        f" count(*) FILTER (WHERE ({had}) = ({has}) AND (NOT ({had}) OR ({same}))) AS equal"
        f" FROM {given} AS g LEFT JOIN {was} AS w USING ({keys}) LEFT JOIN {becomes} AS b USING ({keys})"
    )
