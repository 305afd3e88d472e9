"""What a patch writes: values of keys that are set, tombstones of keys that are deleted, as stored rows (H3).

A patch lies above the state that it corrects, as one segment whose rows name the checkpoint that made them. What is
set is all that is known of its key from there on: readers begin a fold's key at its newest value or tombstone, where
the stored schema says that it was patched, and take the newest row of each key of a process, and of each map entry.
So a map entry that is not there any more has a tombstone of its own; the key's would only do until a compaction kept
the key's newest row alone.
"""

from dataclasses import dataclass

from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.sql.fold_columns import key_columns, quoted
from tidemark.sql.initial_state import stored_sql, typed

_UNNUMBERED = 0
"""What `_changed` of the rows says until the checkpoint has an id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchedState:
    """What a patch does to the state of one operator.

    Attributes:
        new: keys set that were not there.
        changed: keys set that come to another value, or to none.
        equal: keys set to what they were.
        deleted: keys deleted that were there.
        absent: keys to be deleted that were not.
        rows: stored rows that are written.
        bytes: of their files.
    """

    new: int
    changed: int
    equal: int
    deleted: int
    absent: int
    rows: int
    bytes: int


def patch_sql(schema: OperatorSchema, given: str, gone: str, at_ms: int) -> str:
    """The rows of keys, in the columns of `run_columns`; `_changed` is not filled in yet.

    Args:
        schema: the stored schema.
        given: relation of the keys that are set, with `given_columns` and `_key_group`.
        gone: relation of the keys that are deleted and have rows, in the same columns.
        at_ms: when keys were accessed, on the operator's clock, in milliseconds.
    """
    values = stored_sql(schema, given, at_ms, _UNNUMBERED)
    return f"{values} UNION ALL {stored_sql(schema, gone, at_ms, _UNNUMBERED, kind='tombstone')}"


def ended_sql(schema: OperatorSchema, beneath: str, made: str) -> str:
    """Tombstones of map entries that the keys of a patch had and have no more; in the columns of `run_columns`.

    Args:
        schema: the stored schema, with maps.
        beneath: relation of all stored rows of these keys.
        made: relation of the rows of `patch_sql`.
    """
    keys = key_columns(schema)
    place = ['"_field"', *(quoted(f"{f.name}__key") for f in schema.maps)]
    same = " AND ".join(f"m.{name} IS NOT DISTINCT FROM e.{name}" for name in (*keys, *place))
    newest = 'arg_max("_kind", "_changed")'
    entries = (
        f'SELECT {", ".join((*keys, *place))}, any_value("_key_group") AS "_key_group" FROM {beneath}'
        f" WHERE \"_field\" IS NOT NULL GROUP BY {', '.join((*keys, *place))} HAVING {newest} <> 'tombstone'"
    )
    held = {name.strip('"'): name for name in place}
    held |= {"_kind": "'tombstone'", "_changed": str(_UNNUMBERED)}
    return f"SELECT {typed(schema, held)} FROM ({entries}) AS e WHERE NOT EXISTS (FROM {made} AS m WHERE {same})"


def numbered_sql(made: str, number: int) -> str:
    """The rows of a patch, once the id of the checkpoint is known that makes them."""
    return f'SELECT * REPLACE (CAST({number} AS BIGINT) AS "_changed") FROM {made}'


def compared_sql(schema: OperatorSchema, given: str, was: str, becomes: str) -> str:
    """One row: how many of the keys that are set are `new`, and how many are `equal`.

    Args:
        schema: the stored schema.
        given: relation of the keys that are set.
        was: relation of what they were, resolved.
        becomes: relation of what they will be, resolved.
    """
    keys = ", ".join(key_columns(schema))
    same = " AND ".join(f"w.{quoted(f.name)} IS NOT DISTINCT FROM b.{quoted(f.name)}" for f in schema.fields)
    had, has = 'w."_changed" IS NOT NULL', 'b."_changed" IS NOT NULL'
    return (
        f"SELECT count(*) FILTER (WHERE NOT ({had}) AND {has}) AS new,"
        f" count(*) FILTER (WHERE ({had}) = ({has}) AND (NOT ({had}) OR ({same}))) AS equal"
        f" FROM {given} AS g LEFT JOIN {was} AS w USING ({keys}) LEFT JOIN {becomes} AS b USING ({keys})"
    )
