"""Accumulators in Python: partial over a batch, merge of stored rows, finished value (A5, A6): twin of the SQL."""

import decimal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from tidemark.errors import StateOverflowError
from tidemark.model.key_groups import key_group
from tidemark.model.schema import OperatorSchema, StoredField
from tidemark.model.types import FieldType

Key = tuple[Any, ...]
_WIDE = decimal.Context(prec=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A good record with its position."""

    topic: str
    partition: int
    offset: int
    event_time: datetime
    fields: Mapping[str, Any]

    def at(self, path: str) -> Any:
        """The field at a dotted path; null where a step of it is."""
        found: Any = self.fields
        for step in path.split("."):
            found = None if found is None else found[step]
        return found


def folded(schema: OperatorSchema, records: Iterable[Decoded], checkpoint: int) -> list[dict[str, Any]]:
    """The run of a batch: one row of merge operands per key, sorted by (key group, key)."""
    by_key: dict[Key, list[Decoded]] = {}
    for record in records:
        by_key.setdefault(key_of(schema, record), []).append(record)
    rows = [_row(schema, key, found, checkpoint) for key, found in by_key.items()]
    return sorted(rows, key=lambda r: (r["_key_group"], tuple(r[k.name] for k in schema.keys)))


def key_of(schema: OperatorSchema, record: Decoded) -> Key:
    """The record's key for an operator; a null in it makes the record a dead letter."""
    return tuple(record.at(k.source) for k in schema.keys)


def merged(schema: OperatorSchema, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row of merged accumulators per key: what a compaction writes."""
    by_key: dict[Key, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_key.setdefault(tuple(row[k.name] for k in schema.keys), []).append(row)
    return [_merged_row(schema, key, found) for key, found in by_key.items()]


def resolved(schema: OperatorSchema, rows: Iterable[Mapping[str, Any]]) -> dict[Key, dict[str, Any]]:
    """Finished values per live key: key columns, state fields, `_changed`."""
    found: dict[Key, dict[str, Any]] = {}
    for row in merged(schema, rows):
        key = tuple(row[k.name] for k in schema.keys)
        values = {f.name: _finished(f, row, key) for f in schema.fields}
        found[key] = {**dict(zip((k.name for k in schema.keys), key, strict=True)), **values}
        found[key]["_changed"] = row["_changed"]
    return found


def _row(schema: OperatorSchema, key: Key, records: Sequence[Decoded], checkpoint: int) -> dict[str, Any]:
    row: dict[str, Any] = {k.name: value for k, value in zip(schema.keys, key, strict=True)}
    for f in schema.fields:
        row |= zip((name for name, _ in f.accumulators), _partial(f, key, records), strict=True)
    return row | {"_kind": "operand", "_changed": checkpoint, "_key_group": key_group(key, schema.key_groups)}


def _partial(f: StoredField, key: Key, records: Sequence[Decoded]) -> list[Any]:
    if f.kind == "count":
        return [len(records)]
    if f.kind in ("first", "latest"):
        return [_picked(f.kind, [_position(r, f.source) for r in records if not _skipped(f, r)])]
    values = [v for r in records if (v := r.at(f.source)) is not None]
    if f.kind == "distinct":
        return [_distinct(f, key, values)]
    if f.kind == "mean":
        return [_sum(f, f.accumulators[0][1], key, values), len(values)]
    return [_sum(f, f.accumulators[0][1], key, values) if f.kind == "sum" else _extreme(f.kind, values)]


def _skipped(f: StoredField, record: Decoded) -> bool:
    return f.ignore_nulls and record.at(f.source) is None


def _position(r: Decoded, source: str) -> dict[str, Any]:
    return {
        "at": r.event_time,
        "topic": r.topic,
        "partition": r.partition,
        "offset": r.offset,
        "value": r.at(source),
    }


def _picked(kind: str, found: Sequence[Any]) -> Any:
    ordered = sorted(
        (p for p in found if p is not None), key=lambda p: (p["at"], p["topic"], p["partition"], p["offset"])
    )
    return None if not ordered else ordered[0 if kind == "first" else -1]


def _extreme(kind: str, values: Sequence[Any]) -> Any:
    known = [v for v in values if v is not None]
    return None if not known else (min(known) if kind == "min" else max(known))


def _distinct(f: StoredField, key: Key, values: Iterable[Any]) -> list[Any]:
    found = sorted(set(values))
    if len(found) > f.limit:
        raise _overflow(f, key, f"has {len(found)} values, its limit is {f.limit}")
    return found


def _sum(f: StoredField, of: FieldType, key: Key, values: Iterable[Any]) -> Any:
    known = [v for v in values if v is not None]
    if not known:
        return None
    if of.kind == "decimal":
        total = Decimal(0)
        for value in known:
            total = _WIDE.add(total, value)
        if abs(total) >= Decimal(10) ** (of.digits - of.scale):
            raise _overflow(f, key, f"does not fit {of.digits} digits")
        return total
    found = sum(known)
    if of.kind == "int" and not -(2**63) <= found < 2**63:
        raise _overflow(f, key, "does not fit 64 bits")
    return found


def _merged_row(schema: OperatorSchema, key: Key, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {k.name: value for k, value in zip(schema.keys, key, strict=True)}
    for f in schema.fields:
        for name, of in f.accumulators:
            made[name] = _merge(f, of, key, [row[name] for row in rows])
    made["_kind"] = "operand"
    made["_changed"] = max(row["_changed"] for row in rows)
    made["_key_group"] = rows[0]["_key_group"]
    return made


def _merge(f: StoredField, of: FieldType, key: Key, values: Sequence[Any]) -> Any:
    if f.kind in ("first", "latest"):
        return _picked(f.kind, values)
    if f.kind in ("min", "max"):
        return _extreme(f.kind, values)
    if f.kind == "distinct":
        return _distinct(f, key, [v for held in values if held is not None for v in held])
    return _sum(f, of, key, values)


def _finished(f: StoredField, row: Mapping[str, Any], key: Key) -> Any:
    if f.kind in ("first", "latest"):
        held = row[f.name]
        return None if held is None else held["value"]
    if f.kind == "mean":
        count = row[f"{f.name}__count"]
        return float(row[f"{f.name}__sum"]) / float(count) if count else None
    if f.kind == "sum" and f.over.kind == "decimal" and row[f.name] is not None:
        return _sum(f, f.type, key, [row[f.name]])
    return row[f.name]


def _overflow(f: StoredField, key: Key, why: str) -> StateOverflowError:
    return StateOverflowError(
        f"state overflow: {f.name} of key ({', '.join(map(str, key))}) {why}",
        safe="every completed checkpoint is intact; nothing was published.",
        next="declare a wider type or a higher limit, or filter the key's records.",
    )
