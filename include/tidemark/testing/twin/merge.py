"""Merges and finishes a fold's rows in Python, for readers and compactions; the twin of the SQL."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.sql import limited_schema
from tidemark.model.schema.event_windows import END, to_ms
from tidemark.model.schema.operator_schema import OperatorSchema, StoredField
from tidemark.testing.twin.entries import compacted_entries, resolved_entries
from tidemark.testing.twin.fold import Key, of_key

Row = Mapping[str, Any]


def compact_rows(schema: OperatorSchema, rows: Iterable[Row], now: Now, *, deepest: bool) -> list[dict[str, Any]]:
    """Returns one row of merged accumulators per key; on the deepest level, only values that have not expired."""
    if schema.kind == "process":
        return compacted_entries(schema, rows, now, deepest=deepest)
    found, at = [], now.of(schema.clock)
    for key, mine in _by_key(schema, _kept_rows(schema, rows, now, deepest=deepest)).items():
        row = _merged(schema, key, mine)
        if not deepest:
            found.append(row)
        elif row["_kind"] != "tombstone" and any(not _sweeps(f) or _is_present(f, row, at) for f in schema.fields):
            swept = {name: v for f in schema.fields if _sweeps(f) for name, v in f.fold_kind.swept(f, at, row).items()}
            found.append(row | swept | {"_kind": "value"})
    return found


def resolve_rows(schema: OperatorSchema, rows: Iterable[Row], now: Now) -> dict[Key, dict[str, Any]]:
    """Returns finished values per live key: key columns, state fields, `_changed`."""
    if schema.kind == "process":
        return resolved_entries(schema, rows, now)
    found: dict[Key, dict[str, Any]] = {}
    at = now.of(schema.clock)
    for key, mine in _by_key(schema, open_rows(schema, rows, now)).items():
        row = _merged(schema, key, mine)
        if row["_kind"] == "tombstone" or not any(_is_present(f, row, at) for f in schema.fields):
            continue
        values = {f.name: f.fold_kind.read(f, of_key(key, at), row) for f in schema.fields}
        found[key] = {**dict(zip((k.name for k in schema.keys), key, strict=True)), **values}
        found[key]["_changed"] = row["_changed"]
    return found


def open_rows(schema: OperatorSchema, rows: Iterable[Row], now: Now) -> Iterable[Row]:
    """Returns the rows with the bounds of their windows, of those that are not closed."""
    frontier = now.frontiers.get(schema.uid)
    if schema.window is None:
        return rows
    found = schema.window.windows(rows, lambda row: tuple(row[k.name] for k in schema.own_keys))
    return (row for row in found if frontier is None or to_ms(row[END]) > frontier)


def _kept_rows(schema: OperatorSchema, rows: Iterable[Row], now: Now, *, deepest: bool) -> Iterable[Row]:
    """Returns the rows that a compaction keeps; of sessions it knows only on the deepest level which are closed."""
    window, frontier = schema.window, now.frontiers.get(schema.uid)
    if window is None:
        return rows
    if window.is_merged:
        return open_rows(schema, rows, now if deepest else Now())
    return (row for row in rows if window.outlives(row, frontier))


def _by_key(schema: OperatorSchema, rows: Iterable[Row]) -> dict[Key, list[Row]]:
    by_key: dict[Key, list[Row]] = {}
    for row in rows:
        by_key.setdefault(tuple(row[k.name] for k in schema.keys), []).append(row)
    return {key: sorted(mine, key=lambda r: r["_changed"]) for key, mine in by_key.items()}


def _merged(schema: OperatorSchema, key: Key, rows: Sequence[Row]) -> dict[str, Any]:
    floors = [] if schema.is_plain else [n for n, row in enumerate(rows) if row["_kind"] != "operand"]
    rows = rows[floors[-1] :] if floors else rows
    made: dict[str, Any] = {k.name: value for k, value in zip(schema.keys, key, strict=True)}
    for f in schema.fields:
        start = _last_cut(f, rows)
        for n, (name, _) in enumerate(f.accumulators):
            made[name] = f.fold_kind.merge(f, of_key(key, None), n, [row[name] for row in rows[start or 0 :]])
        if f.is_cut:
            made[f"{f.name}__cut"] = start is not None
    live = [row for row in rows if row["_kind"] != "tombstone"]
    began, ended = min(map(_began, live or rows)), max(row["_last_at"] for row in live or rows)
    made |= {"_first_at": None if began == ended else began, "_last_at": ended}
    made["_kind"] = "operand" if not floors else "value" if live else "tombstone"
    made["_changed"] = max(row["_changed"] for row in rows)
    made["_key_group"] = rows[0]["_key_group"]
    return made


def _last_cut(f: StoredField, rows: Sequence[Row]) -> int | None:
    """Returns the index of the last row that begins the field's history; None if the history is complete."""
    if not f.is_cut or f.ttl is None:
        return None
    found = None
    for n, row in enumerate(rows):
        gap = _began(row) - rows[n - 1]["_last_at"] if n else 0
        if row[f"{f.name}__cut"] or gap >= f.ttl.ms:
            found = n
    return found


def _began(row: Row) -> int:
    first = row["_first_at"]
    return int(row["_last_at"] if first is None else first)


def _is_present(f: StoredField, row: Row, at: int | None) -> bool:
    return not f.fold_kind.is_hidden(f, at, row)


def _sweeps(f: StoredField) -> bool:
    return f.ttl is not None and f.ttl.clean_up_in_background


# Checks the limits of fields over a batch and the state below it; the twin of `engine.compute.LimitCheck`.
def refuse_overflow(schema: OperatorSchema, run: Sequence[Row], below: Iterable[Row], now: Now) -> None:
    """Raises an error if the state of a key, with this run, would be too large for readers.

    Args:
        schema: the stored schema of the fold.
        run: the rows of the batch.
        below: the rows of the batch's input handle.
        now: the clocks after the batch.

    Raises:
        StateOverflowError: a field is over its limit; the message names the field and the key.
    """
    found = limited_schema(schema)
    if found is None:
        return
    names = [k.name for k in schema.found_by]
    touched = {tuple(row[name] for name in names) for row in run if _adds(found, row)}
    resolve_rows(found, [row for row in (*run, *below) if tuple(row[name] for name in names) in touched], now)


def _adds(schema: OperatorSchema, row: Row) -> bool:
    """See `model.kinds.base.sql.adds_sql`."""
    return row["_kind"] == "operand" and any(row[f.accumulators[0][0]] not in (None, []) for f in schema.fields)
