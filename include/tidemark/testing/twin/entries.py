"""Rows of a process in Python, as readers see and compactions write them; the twin of `sql.map_entries`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.python import is_expired
from tidemark.model.schema.operator_schema import Layout, OperatorSchema, StoredField, run_columns
from tidemark.sql.resolve import absent
from tidemark.sql.type_conversion import converted_value
from tidemark.testing.twin.fold import Key
from tidemark.testing.twin.tables import MemoryTables

# Maps stored rows of any schema to the columns of the current one; the twin of `sql.resolve.mapped_sql`.
Row = Mapping[str, Any]


def newest(schema: OperatorSchema, rows: Iterable[Row]) -> dict[Key, list[Row]]:
    """Returns the newest row of each key and of each entry, by key, without entries below their key's tombstone."""
    found: dict[Key, dict[object, Row]] = {}
    cleared: dict[Key, int] = {}
    for row in rows:
        key = tuple(row[k.name] for k in schema.keys)
        mine, place = found.setdefault(key, {}), _place(row)
        if place not in mine or mine[place]["_changed"] < row["_changed"]:
            mine[place] = row
        if place is None and row["_kind"] == "tombstone":
            cleared[key] = max(row["_changed"], cleared.get(key, 0))
    return {key: [r for r in mine.values() if _stands(r, cleared.get(key, 0))] for key, mine in found.items()}


def values_of(schema: OperatorSchema, rows: Iterable[Row]) -> dict[Key, list[Row]]:
    """Returns the newest value rows by key, from which a process function starts."""
    return {key: [r for r in mine if r["_kind"] != "tombstone"] for key, mine in newest(schema, rows).items()}


def resolved_entries(schema: OperatorSchema, rows: Iterable[Row], now: Now) -> dict[Key, dict[str, Any]]:
    """Returns finished values per live key: key columns, state fields, `_changed`."""
    at = now.of(schema.clock)
    found: dict[Key, dict[str, Any]] = {}
    for key, mine in newest(schema, rows).items():
        own = next((r for r in mine if _entry_of(r) is None and r["_kind"] != "tombstone"), None)
        if own is None:
            continue
        live = {f.name: _live(f, own, mine, at) for f in schema.fields}
        if any(present for _, present in live.values()):
            found[key] = dict(zip((k.name for k in schema.keys), key, strict=True))
            found[key] |= {name: value for name, (value, _) in live.items()}
            found[key]["_changed"] = max(r["_changed"] for r in mine)
    return found


def compacted_entries(schema: OperatorSchema, rows: Iterable[Row], now: Now, *, deepest: bool) -> list[dict[str, Any]]:
    """Returns the rows that a compaction writes; on the deepest level, without tombstones and expired rows."""
    at = now.of(schema.clock)
    found: list[dict[str, Any]] = []
    for mine in newest(schema, rows).values():
        if not deepest:
            found += map(dict, mine)
            continue
        kept = [_swept(schema, r, at) for r in mine if r["_kind"] != "tombstone" and not _is_gone(schema, r, at)]
        entries = any(_entry_of(r) is not None for r in kept)
        found += [r for r in kept if _entry_of(r) is not None or entries or _holds(schema, r)]
    return found


def _place(row: Row) -> object:
    entry = _entry_of(row)
    return None if entry is None else (entry, row[f"{entry}__key"])


def _entry_of(row: Row) -> str | None:
    entry: str | None = row.get("_field")
    return entry


def _stands(row: Row, cleared: int) -> bool:
    return _entry_of(row) is None or bool(row["_changed"] >= cleared)


def _live(f: StoredField, own: Row, mine: Iterable[Row], at: int | None) -> tuple[Any, bool]:
    """Returns a field's value for a reader, and whether it has one."""
    return f.process_kind.read(f, own, [r for r in mine if _entry_of(r) == f.name and r["_kind"] != "tombstone"], at)


def _sweeps(f: StoredField) -> bool:
    return f.ttl is not None and f.ttl.clean_up_in_background


def _is_gone(schema: OperatorSchema, row: Row, at: int | None) -> bool:
    """Returns whether an entry has expired, so that the deepest level drops it."""
    return any(f.name == _entry_of(row) and _sweeps(f) and is_expired(f, row[f"{f.name}__at"], at) for f in schema.maps)


def _swept(schema: OperatorSchema, row: Row, at: int | None) -> dict[str, Any]:
    made = dict(row)
    for f in schema.fields:
        if _entry_of(row) is None and _sweeps(f):
            made |= f.process_kind.drop_expired(f, row, at)
    return made


def _holds(schema: OperatorSchema, row: Row) -> bool:
    return any(f.process_kind.holds(f, row) for f in schema.fields)


def state_rows(tables: MemoryTables, schema: OperatorSchema, handle: StateHandle) -> list[Row]:
    """Returns all rows of a handle, each as a row of the schema.

    Raises:
        StoreError: a file or a version is missing.
    """
    found: list[Row] = []
    for segment in handle:
        found.extend(map_rows(schema, segment.path, tables.rows(StateHandle((segment,)))))
    return found


def map_rows(schema: OperatorSchema, table: str, rows: Iterable[Row]) -> Iterator[Row]:
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
        made |= {
            name: converted_value(row[was], stored, of)
            for (name, of), (was, stored) in zip(f.accumulators, there.accumulators, strict=True)
        }
        if f.is_cut:
            made[f"{f.name}__cut"] = row[f"{there.name}__cut"] if there.is_cut else None
    return made


def _fresh(value: object) -> object:
    return [] if value == () else value
