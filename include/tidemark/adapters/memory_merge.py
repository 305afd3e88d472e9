"""Merging and finishing of a fold's rows in Python: what readers see, what compactions write; the SQL's twin."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemark.adapters.memory_entries import compacted_entries, resolved_entries
from tidemark.adapters.memory_fold import Key, bounded, extreme, live_elements, overflow, picked, summed
from tidemark.model.aggregates import call_of
from tidemark.model.dialects import DUCKDB
from tidemark.model.expressions import refuse_without_spark
from tidemark.model.schema import OperatorSchema, StoredField
from tidemark.model.ttl import Now
from tidemark.model.types import FieldType

Row = Mapping[str, Any]


def compacted(schema: OperatorSchema, rows: Iterable[Row], now: Now, *, deepest: bool) -> list[dict[str, Any]]:
    """One row of merged accumulators per key; of the deepest level values only, without what has expired."""
    if schema.kind == "process":
        return compacted_entries(schema, rows, now, deepest=deepest)
    found = []
    for key, mine in _by_key(schema, rows).items():
        row = _merged(schema, key, mine)
        if not deepest:
            found.append(row)
        elif row["_kind"] != "tombstone":
            kept = [f for f in schema.fields if not (_hidden(f, row, now, schema) and _sweeps(f))]
            for f in schema.fields:
                if f not in kept:
                    row |= dict.fromkeys((name for name, _ in f.accumulators), None)
                elif f.kind == "list" and _sweeps(f):
                    row[f.name] = _elements(f, row, now, schema)
            lists = [f for f in schema.fields if f.kind == "list" and _sweeps(f) and f.ttl and f.ttl.hides]
            if any(f not in lists or row[f.name] for f in kept):
                found.append(row | {"_kind": "value"})
    return found


def resolved(schema: OperatorSchema, rows: Iterable[Row], now: Now) -> dict[Key, dict[str, Any]]:
    """Finished values per live key: key columns, state fields, `_changed`."""
    if schema.kind == "process":
        return resolved_entries(schema, rows, now)
    found: dict[Key, dict[str, Any]] = {}
    for key, mine in _by_key(schema, rows).items():
        row = _merged(schema, key, mine)
        if row["_kind"] == "tombstone" or not any(_is_present(f, row, now, schema) for f in schema.fields):
            continue
        values = {f.name: _finished(f, row, key, now, schema) for f in schema.fields}
        found[key] = {**dict(zip((k.name for k in schema.keys), key, strict=True)), **values}
        found[key]["_changed"] = row["_changed"]
    return found


def _by_key(schema: OperatorSchema, rows: Iterable[Row]) -> dict[Key, list[Row]]:
    by_key: dict[Key, list[Row]] = {}
    for row in rows:
        by_key.setdefault(tuple(row[k.name] for k in schema.keys), []).append(row)
    return {key: sorted(mine, key=lambda r: r["_changed"]) for key, mine in by_key.items()}


def _merged(schema: OperatorSchema, key: Key, rows: Sequence[Row]) -> dict[str, Any]:
    floors = [n for n, row in enumerate(rows) if row["_kind"] != "operand"]
    rows = rows[floors[-1] :] if floors else rows
    made: dict[str, Any] = {k.name: value for k, value in zip(schema.keys, key, strict=True)}
    for f in schema.fields:
        start = _last_cut(f, rows)
        for name, of in f.accumulators:
            made[name] = _merge(f, name, of, key, [row[name] for row in rows[start or 0 :]])
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
    """Index of the last row that the field's history begins at; None where nothing is cut."""
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


def _merge(f: StoredField, name: str, of: FieldType, key: Key, values: Sequence[Any]) -> Any:
    if f.aggregate is not None:
        return _merged_by(f, of, key, values, f.aggregate.merge[[n for n, _ in f.accumulators].index(name)])
    if f.kind in ("first", "latest"):
        return picked(f.kind, values)
    if f.kind in ("min", "max"):
        return extreme(f.kind, values)
    if f.kind == "distinct":
        return sorted({v for held in values if held is not None for v in held})
    if f.kind == "list":
        return [v for held in values if held is not None for v in held]
    return summed(f, of, key, values)


def _merged_by(f: StoredField, of: FieldType, key: Key, values: Sequence[Any], text: str) -> Any:
    """Merged partials of an author's aggregate."""
    refuse_without_spark(f, DUCKDB)
    function, _ = call_of(text)
    known = [v for v in values if v is not None]
    if function in ("bool_and", "bool_or"):
        return None if not known else (all(known) if function == "bool_and" else any(known))
    return summed(f, of, key, known) if function == "sum" else extreme(function, known)


def _finished_by(f: StoredField, row: Row, key: Key) -> Any:
    from tidemark.adapters.memory_portable import Overflow, finished

    try:
        return finished(f, row)
    except Overflow as error:
        raise overflow(f, key, "does not fit 64 bits") from error


def _hidden(f: StoredField, row: Row, now: Now, schema: OperatorSchema) -> bool:
    """Whether a field of a merged row, as a whole, has expired."""
    at = now.of(schema.clock)
    if f.ttl is None or not f.ttl.hides or at is None or f.kind == "list":
        return False
    return bool(row["_last_at"] + f.ttl.ms <= at)


def _elements(f: StoredField, row: Row, now: Now, schema: OperatorSchema) -> list[Any]:
    return live_elements(f, row[f.name] or [], now.of(schema.clock))


def _is_present(f: StoredField, row: Row, now: Now, schema: OperatorSchema) -> bool:
    if f.kind == "list" and f.ttl is not None and f.ttl.hides and now.of(schema.clock) is not None:
        return bool(_elements(f, row, now, schema))
    return not _hidden(f, row, now, schema)


def _sweeps(f: StoredField) -> bool:
    return f.ttl is not None and f.ttl.clean_up_in_background


def _finished(f: StoredField, row: Row, key: Key, now: Now, schema: OperatorSchema) -> Any:
    if f.kind == "list":
        return bounded(f, key, [e["value"] for e in _elements(f, row, now, schema)])
    if _hidden(f, row, now, schema):
        return [] if f.kind == "distinct" else None
    if f.kind == "distinct":
        return bounded(f, key, row[f.name] or [])
    if f.aggregate is not None:
        return _finished_by(f, row, key)
    if f.kind in ("first", "latest"):
        held = row[f.name]
        return None if held is None else held["value"]
    if f.kind == "mean":
        count = row[f"{f.name}__count"]
        return float(row[f"{f.name}__sum"]) / float(count) if count else None
    if f.kind == "sum" and f.over.kind == "decimal" and row[f.name] is not None:
        return summed(f, f.type, key, [row[f.name]])
    return row[f.name]
