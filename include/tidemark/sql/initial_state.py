"""State from a table: the columns that the table must have, and the stored rows for its rows.

A table has one row per key: the key columns, and a column with the name of each field. Most kinds only need the value
of a field; kinds that cannot continue from the value (`mean`, an author's aggregate) need their accumulators.
"""

from collections.abc import Mapping
from datetime import datetime

from tidemark.errors import UsageError
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.sql import quote
from tidemark.model.portable_sql.dialects import DUCKDB
from tidemark.model.schema.event_windows import StoredWindow, to_ms
from tidemark.model.schema.operator_schema import OperatorSchema, StoredField, run_columns


def refuse_given_rows(schema: OperatorSchema, what: str, next: str) -> None:
    """Refuses operators whose stored rows no table with a row per key, or per key and window, can give.

    Args:
        schema: the operator.
        what: the operation, as the subject of a sentence.
        next: what to type instead.

    Raises:
        UsageError: it is an interval join, or its windows slide or are sessions.
    """
    window = schema.window
    if window is None or (window.has_row_per_window and schema.interval_join is None):
        return
    has, why = "has", "a row of such a window is stored in parts"
    if schema.interval_join is not None:
        has, why = "is an", "its rows are whole records of both inputs"
    raise UsageError(
        f"{schema.uid} {has} {window.shown}: {what} is not possible, because {why}",
        safe="nothing was written.",
        next=next,
    )


def window_fault(window: StoredWindow, start: datetime, end: datetime, frontier: int | None) -> str | None:
    """Returns why no row can have these bounds; None if it can.

    Args:
        window: the windows of the operator.
        start: of the row.
        end: of the row.
        frontier: windows that end there or before are closed; None = no window is.
    """
    if window.bounds(start) != (start, end):
        return f"{start.isoformat()} to {end.isoformat()} is none of its {window.shown}"
    if frontier is not None and window.closes((to_ms(start), to_ms(end))) <= frontier:
        return f"the window that ends at {end.isoformat()} is closed"
    return None


def timer_faults(schema: OperatorSchema, frontier: int | None) -> list[tuple[str, str]]:
    """Returns conditions over `given_columns` that no row may meet, each with the reason.

    Args:
        schema: the operator.
        frontier: timers up to it have fired; None = none has.
    """
    if schema.timers is None:
        return []
    times = f"map_values({quote(schema.timers.name)})"
    inexact = f"len([t FOR t IN {times} IF t IS NULL OR epoch_us(t) % 1000 <> 0]) > 0"
    found = [(inexact, "a timer has no time in whole milliseconds")]
    if frontier is not None:
        passed = f"len([t FOR t IN {times} IF epoch_ms(t) <= {frontier}]) > 0"
        found.append((passed, "a timer is due up to the frontier, so it would never fire"))
    return found


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
        kind: for `_kind`; tombstones only have the keys. A `value` of a process without any state is a tombstone, as
            a function that leaves nothing writes it: so the newest row of a key says whether it lives.
    """
    held = {name: sql for f in schema.fields for name, sql in f.state_kind.imported_values(f, at_ms)}
    held |= {"_last_at": f"CAST({at_ms} AS BIGINT)", "_kind": f"'{kind}'", "_changed": f"CAST({changed} AS BIGINT)"}
    if kind == "value" and schema.kind == "process":
        held["_kind"] = f"CASE WHEN {' OR '.join(map(_is_given, schema.fields))} THEN 'value' ELSE 'tombstone' END"
    parts = [f"SELECT {typed_columns(schema, held)} FROM {relation}"]
    for f in schema.maps:
        own = {k: v for k, v in held.items() if k.startswith("_")} | _entry(f, at_ms)
        entries = f'SELECT *, unnest(map_entries({quote(f.name)})) AS "_entry" FROM {relation}'
        parts.append(f'SELECT {typed_columns(schema, own)} FROM ({entries}) AS "_entries"')
    return " UNION ALL ".join(parts)


def _is_given(f: StoredField) -> str:
    """Returns the condition that a given row has state in a field of a process."""
    name = quote(f.name)
    if not f.process_kind.is_collection:
        return f"{name} IS NOT NULL"
    return f"coalesce({'cardinality' if f.process_kind.is_stored_by_entry else 'len'}({name}) > 0, false)"


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
