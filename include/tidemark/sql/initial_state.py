"""State that is given as a table: the columns that it must have, and the stored rows that come of them (H2).

A table has a row per key: the key columns, and a column per field, called like it. What a field is worth is enough for
most kinds; kinds whose value does not say how to go on (`mean`, an author's aggregate) want their accumulators.
"""

from collections.abc import Mapping

from tidemark.model.core.types import FieldType
from tidemark.model.schema.operator_schema import OperatorSchema, StoredField
from tidemark.portable_sql.dialects import DUCKDB
from tidemark.sql.fold_columns import quoted
from tidemark.sql.resolve import run_columns


def given_columns(schema: OperatorSchema) -> tuple[tuple[str, FieldType], ...]:
    """(column, type) that a table must have; null means that nothing is known, but in keys, where there is none."""
    keys = tuple((k.name, k.type) for k in schema.keys)
    return (*keys, *(column for f in schema.fields for column in f.state_kind.given(f)))


def stored_sql(schema: OperatorSchema, relation: str, at_ms: int, changed: int, kind: str = "value") -> str:
    """The rows of a table of state, in the columns of `run_columns`, of a relation with `given_columns`, `_key_group`.

    Args:
        schema: the stored schema.
        relation: the given rows; read once, or once per map.
        at_ms: when keys were accessed, on the operator's clock, in milliseconds.
        changed: id for `_changed`.
        kind: for `_kind`; of tombstones only the keys are given.
    """
    held = {name: sql for f in schema.fields for name, sql in f.state_kind.stored(f, at_ms)}
    held |= {"_last_at": f"CAST({at_ms} AS BIGINT)", "_kind": f"'{kind}'", "_changed": f"CAST({changed} AS BIGINT)"}
    parts = [f"SELECT {typed(schema, held)} FROM {relation}"]
    for f in schema.maps:
        own = {k: v for k, v in held.items() if k.startswith("_")} | _entry(f, at_ms)
        entries = f'SELECT *, unnest(map_entries({quoted(f.name)})) AS "_entry" FROM {relation}'
        parts.append(f'SELECT {typed(schema, own)} FROM ({entries}) AS "_entries"')
    return " UNION ALL ".join(parts)


def _entry(f: StoredField, at_ms: int) -> dict[str, str]:
    return {
        "_field": f"'{f.name}'",
        f"{f.name}__key": '"_entry".key',
        f.name: '"_entry".value',
        f"{f.name}__at": str(at_ms),
    }


def typed(schema: OperatorSchema, held: Mapping[str, str]) -> str:
    """The columns of `run_columns` in their types: keys and `_key_group` as they are, of others what is held, or null.

    Args:
        schema: the stored schema.
        held: expressions by column.
    """
    own = {*(k.name for k in schema.keys), "_key_group"}
    types = {name: of for f in schema.fields for name, of in f.columns}
    made = []
    for name, sql in run_columns(schema):
        value = quoted(name) if name in own else held.get(name, "NULL")
        cast = DUCKDB.type(types[name]) if name in types else sql
        made.append(f"CAST({value} AS {cast}) AS {quoted(name)}")
    return ", ".join(made)
