"""State from a table: the columns that the table must have, and the stored rows for its rows.

A table has one row per key: the key columns, and a column with the name of each field. Most kinds only need the value
of a field; kinds that cannot continue from the value (`mean`, an author's aggregate) need their accumulators.
"""

from collections.abc import Mapping

from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.sql import quote
from tidemark.model.portable_sql.dialects import DUCKDB
from tidemark.model.schema.operator_schema import OperatorSchema, StoredField, run_columns


def given_columns(schema: OperatorSchema) -> tuple[tuple[str, FieldType], ...]:
    """Returns (column, type) for each column that a table must have; null means unknown, and is not allowed in keys."""
    keys = tuple((k.name, k.type) for k in schema.keys)
    return (*keys, *(column for f in schema.fields for column in f.state_kind.imported_columns(f)))


def stored_sql(schema: OperatorSchema, relation: str, at_ms: int, changed: int, kind: str = "value") -> str:
    """Returns the rows of a state table, in the columns of `run_columns`, from `given_columns` and `_key_group`.

    Args:
        schema: the stored schema.
        relation: the given rows; read once, or once per map.
        at_ms: access time of all keys, on the operator's clock, in milliseconds.
        changed: id for `_changed`.
        kind: for `_kind`; tombstones only have the keys.
    """
    held = {name: sql for f in schema.fields for name, sql in f.state_kind.imported_values(f, at_ms)}
    held |= {"_last_at": f"CAST({at_ms} AS BIGINT)", "_kind": f"'{kind}'", "_changed": f"CAST({changed} AS BIGINT)"}
    parts = [f"SELECT {typed_columns(schema, held)} FROM {relation}"]
    for f in schema.maps:
        own = {k: v for k, v in held.items() if k.startswith("_")} | _entry(f, at_ms)
        entries = f'SELECT *, unnest(map_entries({quote(f.name)})) AS "_entry" FROM {relation}'
        parts.append(f'SELECT {typed_columns(schema, own)} FROM ({entries}) AS "_entries"')
    return " UNION ALL ".join(parts)


def _entry(f: StoredField, at_ms: int) -> dict[str, str]:
    return {
        "_field": f"'{f.name}'",
        f"{f.name}__key": '"_entry".key',
        f.name: '"_entry".value',
        f"{f.name}__at": str(at_ms),
    }


def typed_columns(schema: OperatorSchema, held: Mapping[str, str]) -> str:
    """Returns the columns of `run_columns` in their types: keys and `_key_group` unchanged, others given or null.

    Args:
        schema: the stored schema.
        held: expressions by column.
    """
    own = {*(k.name for k in schema.keys), "_key_group"}
    types = {name: of for f in schema.fields for name, of in f.columns}
    made = []
    for name, sql in run_columns(schema):
        value = quote(name) if name in own else held.get(name, "NULL")
        cast = DUCKDB.type(types[name]) if name in types else sql
        made.append(f"CAST({value} AS {cast}) AS {quote(name)}")
    return ", ".join(made)
