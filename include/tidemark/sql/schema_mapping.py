"""Reads rows of an earlier stored schema as rows of the current one: renames, casts, missing columns.

Readers and compactions select through it, table by table, before anything merges. So every query of `sql.resolve` sees
one set of columns, whichever declaration wrote a row.
"""

from collections.abc import Iterator

from tidemark.model.core.types import FieldType
from tidemark.model.schema.operator_schema import Layout, OperatorSchema, StoredField
from tidemark.portable_sql.dialects import Dialect
from tidemark.sql.fold_columns import quoted
from tidemark.sql.resolve import run_columns


def mapped_sql(schema: OperatorSchema, table: str, relation: str, dialect: Dialect) -> str:
    """Returns the query that turns a table's rows into rows of `run_columns(schema)`, in that order.

    Args:
        schema: the stored schema of the checkpoint that is read.
        table: the table, as a segment names it.
        relation: its stored rows.
        dialect: dialect of the engine.
    """
    wanted = columns(schema, table, dialect)
    selected = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in wanted)
    condition = counts(schema, table)
    return dialect.text(f"SELECT {selected} FROM {relation}{f' WHERE {condition}' if condition else ''}")


def columns(schema: OperatorSchema, table: str, dialect: Dialect) -> list[tuple[str, str]]:
    """Returns (column of `run_columns(schema)`, expression over a table's columns), in order."""
    names, layout = [name for name, _ in run_columns(schema)], schema.layout(table)
    if layout is None:
        return [(name, quoted(name)) for name in names]
    made = {name: sql for f in schema.fields for name, sql in _of_field(f, layout.fields.get(f.name), dialect)}
    if schema.maps:
        made["_field"] = _entry_of(schema, layout) if layout.has_entries else "CAST(NULL AS STRING)"
    return [(name, made.get(name, quoted(name))) for name in names]


def counts(schema: OperatorSchema, table: str) -> str:
    """Returns the condition on the rows that count, which excludes entries of dropped maps; empty if all do."""
    layout = schema.layout(table)
    if layout is None or not layout.has_entries:
        return ""
    kept = ", ".join(f"'{layout.fields[f.name].name}'" for f in schema.maps if f.name in layout.fields)
    return '"_field" IS NULL' + (f' OR "_field" IN ({kept})' if kept else "")


def table_columns(schema: OperatorSchema, table: str) -> tuple[tuple[str, str], ...]:
    """Returns (column, SQL type) of a table, as far as they are read, in no particular order."""
    layout = schema.layout(table)
    if layout is None:
        return run_columns(schema)
    held = {name for f in schema.fields for name, _ in f.columns} | {"_field"}
    own = tuple((name, sql) for name, sql in run_columns(schema) if name not in held)
    entries = (("_field", "STRING"),) if layout.has_entries else ()
    return (*own, *entries, *((name, of.sql) for f in layout.fields.values() for name, of in f.columns))


def absent(field: StoredField) -> tuple[object, ...]:
    """Returns the value of each column of a field in rows that were written without it."""
    found = field.state_kind.absent(field)
    return (*found, None) if field.is_cut else found


def _of_field(field: StoredField, there: StoredField | None, dialect: Dialect) -> Iterator[tuple[str, str]]:
    if there is None:
        for (name, of), value in zip(field.columns, absent(field), strict=True):
            yield name, _literal(of, value, dialect)
        return
    for (name, of), (was, stored) in zip(field.accumulators, there.accumulators, strict=True):
        cast = "" if of.sql == stored.sql else dialect.type(of)
        yield name, f"CAST({quoted(was)} AS {cast})" if cast else quoted(was)
    if field.is_cut:
        cut = quoted(f"{there.name}__cut")
        yield f"{field.name}__cut", cut if there.is_cut else "CAST(NULL AS BOOLEAN)"


def _literal(of: FieldType, value: object, dialect: Dialect) -> str:
    shown = "NULL" if value is None else dialect.or_empty("NULL") if value == () else str(value)
    return f"CAST({shown} AS {dialect.type(of)})"


def _entry_of(schema: OperatorSchema, layout: Layout) -> str:
    names = {layout.fields[f.name].name: f.name for f in schema.maps if f.name in layout.fields}
    renamed = " ".join(f"WHEN '{was}' THEN '{name}'" for was, name in names.items() if was != name)
    return f'CASE "_field" {renamed} ELSE "_field" END' if renamed else '"_field"'
