"""Accumulators in Python: the partial over a batch (A5, A6); twin of the SQL."""

import decimal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from math import isnan
from typing import Any

from tidemark.errors import StateOverflowError
from tidemark.model.key_groups import key_group
from tidemark.model.plan import CheckpointPlan
from tidemark.model.schema import OperatorSchema, StoredField
from tidemark.model.sinks import PER_RECORD
from tidemark.model.ttl import Now
from tidemark.model.types import FieldType

Key = tuple[Any, ...]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WIDE = decimal.Context(prec=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A good record with its position."""

    topic: str
    partition: int
    offset: int
    event_time: datetime
    fields: Mapping[str, Any]
    n: int = 0
    emitted: bool = False

    @property
    def position(self) -> tuple[str, int, int, int]:
        """Topic, partition, offset, and the number among those emitted for it: unique in a batch."""
        return (self.topic, self.partition, self.offset, self.n)

    @property
    def kept_offset(self) -> int:
        """What is kept of offset and number beside a value: of a number the last digit only."""
        return self.offset * PER_RECORD + self.n % PER_RECORD if self.emitted else self.offset

    def at(self, path: str) -> Any:
        """The field at a dotted path; null where a step of it is."""
        found: Any = self.fields
        for step in path.split("."):
            found = None if found is None else found[step]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """A record without a value: everything of a key that lies before it does not count.

    `event_time` is the Kafka timestamp; `key` is what an operator reads from the message key.
    """

    topic: str
    partition: int
    offset: int
    event_time: datetime
    key: Key


def folded(
    schema: OperatorSchema, records: Iterable[Decoded | Deleted], plan: CheckpointPlan, now: Now
) -> list[dict[str, Any]]:
    """The run of a batch: one row per key, of merge operands, or of what follows a delete; by (key group, key).

    Args:
        schema: the stored schema.
        records: what the operator applies.
        plan: the plan.
        now: the clocks after the batch: what has expired by then does not count against a limit.
    """
    by_key: dict[Key, list[Decoded | Deleted]] = {}
    for record in records:
        key = record.key if isinstance(record, Deleted) else key_of(schema, record)
        by_key.setdefault(key, []).append(record)
    rows = [_row(schema, key, found, plan, now.of(schema.clock)) for key, found in by_key.items()]
    return sorted(rows, key=lambda r: (r["_key_group"], tuple(r[k.name] for k in schema.keys)))


def key_of(schema: OperatorSchema, record: Decoded) -> Key:
    """The record's key for an operator; a null in it makes the record a dead letter."""
    return tuple(record.at(k.source) for k in schema.keys)


def access_ms(schema: OperatorSchema, record: Decoded | Deleted, plan: CheckpointPlan) -> int:
    """When a record accesses its key's state, in milliseconds on the operator's clock (`model.ttl`)."""
    if schema.clock == "logical_time":
        return plan.logical_time_ms
    at = (record.event_time - _EPOCH) // timedelta(milliseconds=1)
    return at if plan.watermark_ms is None else max(at, plan.watermark_ms)


def _row(
    schema: OperatorSchema, key: Key, found: Sequence[Decoded | Deleted], plan: CheckpointPlan, now: int | None
) -> dict[str, Any]:
    row: dict[str, Any] = {k.name: value for k, value in zip(schema.keys, key, strict=True)}
    gone, records = _since_delete(found)
    placed = [(access_ms(schema, r, plan), r) for r in records]
    times = sorted(at for at, _ in placed) or [access_ms(schema, r, plan) for r in gone]
    for f in schema.fields:
        began = times[0] if not f.is_cut or f.ttl is None else last_start(times, f.ttl.ms)
        counted = [(at, r) for at, r in placed if at >= began]
        row |= zip((name for name, _ in f.accumulators), _partial(f, key, counted, now), strict=True)
        if f.is_cut:
            row[f"{f.name}__cut"] = began > times[0]
    row |= {"_first_at": times[0] if times[0] != times[-1] else None, "_last_at": times[-1]}
    row["_kind"] = "operand" if not gone else "value" if records else "tombstone"
    return row | {"_changed": plan.id, "_key_group": key_group(key, schema.key_groups)}


def _since_delete(found: Sequence[Decoded | Deleted]) -> tuple[list[Deleted], list[Decoded]]:
    """The last delete of a key in a batch, if there is one, and the records behind it."""
    gone: list[Deleted] = []
    records: list[Decoded] = []
    for r in sorted(found, key=lambda r: (r.topic, r.partition, r.offset)):
        if isinstance(r, Deleted):
            gone, records = [r], []
        else:
            records.append(r)
    return gone, records


def last_start(times: Sequence[int], ttl_ms: int) -> int:
    """Where the history of ascending access times begins: behind the last gap of `ttl_ms` or more."""
    began = times[0]
    for before, at in pairwise(times):
        if at - before >= ttl_ms:
            began = at
    return began


def _partial(f: StoredField, key: Key, placed: Sequence[tuple[int, Decoded]], now: int | None) -> list[Any]:
    records = [r for _, r in placed]
    if f.aggregate is not None:
        return aggregated(f, key, records)
    if f.kind == "count":
        return [len(records)]
    if f.kind == "list":
        ordered = sorted(placed, key=lambda p: p[1].position)
        found = [{"at": at, "value": r.at(f.source)} for at, r in ordered if r.at(f.source) is not None]
        # What has expired by the key's own last access has expired for every reader.
        found = live_elements(f, found, max((at for at, _ in placed), default=None))
        return [found if len(found) <= f.limit else bounded(f, key, live_elements(f, found, now))]
    if f.kind in ("first", "latest"):
        counted = [r for r in records if not _skipped(f, r)]
        pick = min if f.kind == "first" else max
        return [_kept(pick(counted, key=lambda r: (r.event_time, r.position)), f.source) if counted else None]
    values = [v for r in records if (v := r.at(f.source)) is not None]
    if f.kind == "distinct":
        found = sorted(set(values))
        hidden = len(found) > f.limit and not live_elements(f, [{"at": max(at for at, _ in placed)}], now)
        return [[] if hidden else bounded(f, key, found)]
    if f.kind == "mean":
        return [summed(f, f.accumulators[0][1], key, values), len(values)]
    return [summed(f, f.accumulators[0][1], key, values) if f.kind == "sum" else extreme(f.kind, values)]


def aggregated(f: StoredField, key: Key, records: Sequence[Decoded]) -> list[Any]:
    """The accumulators of an author's aggregate.

    Raises:
        StateOverflowError: an integer leaves 64 bits.
        UsageError: the field is declared `spark_only`.
    """
    # DuckDB is imported where it is needed: most pipelines do without.
    from tidemark.adapters.memory_portable import Overflow, partials

    paths = [path for path, _ in f.aggregate.inputs] if f.aggregate else []
    try:
        return partials(f, [{path: r.at(path) for path in paths} for r in records])
    except Overflow as error:
        raise overflow(f, key, "does not fit 64 bits") from error


def _skipped(f: StoredField, record: Decoded) -> bool:
    return f.ignore_nulls and record.at(f.source) is None


def _kept(r: Decoded, source: str) -> dict[str, Any]:
    return {
        "at": r.event_time,
        "topic": r.topic,
        "partition": r.partition,
        "offset": r.kept_offset,
        "value": r.at(source),
    }


def bounded(f: StoredField, key: Key, values: list[Any]) -> list[Any]:
    """The values, if the field's limit allows so many.

    Raises:
        StateOverflowError: it does not.
    """
    if len(values) > f.limit:
        raise overflow(f, key, f"has {len(values)} values, its limit is {f.limit}")
    return values


def picked(kind: str, found: Sequence[Any]) -> Any:
    """The first or the latest of placed values; null where there is none."""
    known = [p for p in found if p is not None]
    return None if not known else (min if kind == "first" else max)(known, key=comparable)


def comparable(value: Any) -> tuple[Any, ...]:
    """A value as Spark compares it: null before all, structs and lists member by member."""
    if value is None:
        return ()
    if isinstance(value, Mapping | list):
        members = value.values() if isinstance(value, Mapping) else value
        return (False, *map(comparable, members))
    return (isinstance(value, float) and isnan(value), value)


def extreme(kind: str, values: Sequence[Any]) -> Any:
    """The least or the greatest value that is not null."""
    known = [v for v in values if v is not None]
    return None if not known else (min(known) if kind == "min" else max(known))


def live_elements(f: StoredField, elements: Sequence[Any], now: int | None) -> list[Any]:
    """The elements of a list that are not expired."""
    if f.ttl is None or not f.ttl.hides or now is None:
        return list(elements)
    return [e for e in elements if e["at"] + f.ttl.ms > now]


def summed(f: StoredField, of: FieldType, key: Key, values: Iterable[Any]) -> Any:
    """The exact sum of values that are not null; null where there is none.

    Raises:
        StateOverflowError: it does not fit its type.
    """
    known = [v for v in values if v is not None]
    if not known:
        return None
    if of.kind == "decimal":
        total = Decimal(0)
        for value in known:
            total = _WIDE.add(total, value)
        if abs(total) >= Decimal(10) ** (of.digits - of.scale):
            raise overflow(f, key, f"does not fit {of.digits} digits")
        return total
    found = sum(known)
    if of.kind == "int" and not -(2**63) <= found < 2**63:
        raise overflow(f, key, "does not fit 64 bits")
    return found


def overflow(f: StoredField, key: Key, why: str) -> StateOverflowError:
    """The error of a field that does not fit."""
    return StateOverflowError(
        f"state overflow: {f.name} of key ({', '.join(map(str, key))}) {why}",
        safe="every completed checkpoint is intact; nothing was published.",
        next="declare a wider type or a higher limit, or filter the key's records.",
    )
