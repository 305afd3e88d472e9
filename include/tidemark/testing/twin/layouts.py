"""Maps stored rows of any schema to the columns of the current one; the twin of `model.layouts` in Python."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.schema.operator_schema import Layout, OperatorSchema
from tidemark.sql.resolve import run_columns
from tidemark.sql.schema_mapping import absent
from tidemark.testing.twin.tables import MemoryTables

Row = Mapping[str, Any]


def state_rows(tables: MemoryTables, schema: OperatorSchema, handle: StateHandle) -> list[Row]:
    """Returns all rows of a handle, each as a row of the schema.

    Raises:
        StoreError: a file or a version is missing.
    """
    found: list[Row] = []
    for segment in handle:
        found.extend(mapped(schema, segment.path, tables.rows(StateHandle((segment,)))))
    return found


def mapped(schema: OperatorSchema, table: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Yields a table's rows as rows of the schema."""
    layout = schema.layout(table)
    return iter(rows) if layout is None else (_mapped(schema, layout, r) for r in rows if _counts(schema, layout, r))


def _counts(schema: OperatorSchema, layout: Layout, row: Row) -> bool:
    entry = row["_field"] if layout.has_entries else None
    return entry is None or entry in _entries(schema, layout)


def _entries(schema: OperatorSchema, layout: Layout) -> dict[str, str]:
    """Returns the current names of maps by their stored names."""
    return {layout.fields[f.name].name: f.name for f in schema.maps if f.name in layout.fields}


def _mapped(schema: OperatorSchema, layout: Layout, row: Row) -> Row:
    held = {name for f in schema.fields for name, _ in f.columns} | {"_field"}
    made = {name: row[name] for name, _ in run_columns(schema) if name not in held}
    if schema.maps:
        entry = row["_field"] if layout.has_entries else None
        made["_field"] = None if entry is None else _entries(schema, layout)[entry]
    for f in schema.fields:
        there = layout.fields.get(f.name)
        if there is None:
            made |= {name: _fresh(value) for (name, _), value in zip(f.columns, absent(f), strict=True)}
            continue
        made |= {name: row[was] for (name, _), (was, _) in zip(f.accumulators, there.accumulators, strict=True)}
        if f.is_cut:
            made[f"{f.name}__cut"] = row[f"{there.name}__cut"] if there.is_cut else None
    return made


def _fresh(value: object) -> object:
    return [] if value == () else value
