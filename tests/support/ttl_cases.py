"""Random folds with ttl, lists and deletes, and a brute-force model of them without product code."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.ttl import Clock, Now, Visibility
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.state import Precision
from tidemark.testing import BARRIER, replay
from tidemark.testing.twin.fold import Decoded, Deleted

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START_MS = 1_577_836_800_000
KEYS = ("a", "b", "\u00fc")
CLOCKS: Sequence[Clock] = ("event_time", "event_time", "logical_time")
VISIBILITIES: Sequence[Visibility] = (
    "never_return_expired",
    "never_return_expired",
    "never_return_expired",
    "return_expired_if_not_cleaned_up",
)
"""A choice that appears more than once is more frequent."""
Cents = Annotated[Decimal, Precision(10, 2)]


@dataclass(frozen=True)
class Reading:
    """One record."""

    key: str
    at: datetime
    n: int | None = None
    price: Cents | None = None


@dataclass(frozen=True)
class Event:
    """A record, or a delete if `values` is None, with its position in the log."""

    key: str
    partition: int
    offset: int
    event_ms: int
    values: Mapping[str, Any] | None

    @property
    def record(self) -> Mapping[str, Any]:
        """The values of a record. Fails for a delete, which has none."""
        assert self.values is not None, "a delete has no values"
        return self.values


@dataclass(frozen=True)
class Batch:
    """The events that a checkpoint reads, and its clocks."""

    number: int
    events: tuple[Event, ...]
    watermark_ms: int | None
    watermark_after_ms: int | None
    logical_time_ms: int

    @property
    def now(self) -> Now:
        """The clocks after the checkpoint."""
        return Now(event_time_ms=self.watermark_after_ms, logical_time_ms=self.logical_time_ms)


KINDS: dict[str, tuple[Any, Any]] = {
    "count": (int, lambda ttl: state.count(ttl=ttl) if ttl else state.count()),
    "sum": (int, lambda ttl: state.sum("n", ttl=ttl)),
    "turnover": (Cents, lambda ttl: state.sum("price", ttl=ttl)),
    "min": (int, lambda ttl: state.min("n", ttl=ttl)),
    "max": (Cents, lambda ttl: state.max("price", ttl=ttl)),
    "first": (int, lambda ttl: state.first("n", ttl=ttl)),
    "latest": (int, lambda ttl: state.latest("n", ttl=ttl)),
    "known": (int, lambda ttl: state.latest("n", ignore_nulls=True, ttl=ttl)),
    "mean": (float, lambda ttl: state.mean("n", ttl=ttl)),
    "distinct": (list[int], lambda ttl: state.distinct("n", ttl=ttl)),
    "list": (list[int], lambda ttl: state.list("n", ttl=ttl)),
    "reduced": (int, lambda ttl: state.reduce("sum(n * 2)", ttl=ttl)),
    "spread": (
        int,
        lambda ttl: state.aggregate(
            accumulator={"lo": int, "hi": int, "all": int},
            partial={"lo": "min(n)", "hi": "max(n)", "all": "count(*)"},
            finish="CASE WHEN all > 1 THEN hi - lo END",
            ttl=ttl,
        ),
    ),
    "ratio": (
        float,
        lambda ttl: state.aggregate(
            accumulator={"s": int, "c": int, "any": bool},
            partial={"s": "sum(CASE WHEN n > 0 THEN n ELSE 0 END)", "c": "count(price)", "any": "bool_or(price > 2)"},
            finish="CASE WHEN any THEN s / nullif(c, 0) ELSE -1.5 END",
            ttl=ttl,
        ),
    ),
}


@dataclass(frozen=True)
class TtlCase:
    """A declaration, the batches that it reads, and whether event times end at logical time, as in plans since 0.2."""

    pipeline: Pipeline
    kinds: Mapping[str, str]
    batches: tuple[Batch, ...]
    capped: bool = False

    @property
    def schema(self) -> OperatorSchema:
        """The stored schema of the fold."""
        return self.pipeline.schemas()["folded"]

    def plans(self) -> Iterator[tuple[CheckpointPlan, Batch]]:
        """The plan and the batch of every checkpoint."""
        one = replay(self.pipeline, [[], BARRIER]).checkpoints[0].plan
        for batch in self.batches:
            watermark, logical = batch.watermark_ms, batch.logical_time_ms
            plan = replace(one, id=batch.number, watermark_ms=watermark, logical_time_ms=logical)
            yield replace(plan, caps_event_time=self.capped), batch


def records(batch: Batch) -> list[Decoded | Deleted]:
    """The events as records of the in-memory engine."""
    return [_record(e) for e in batch.events]


def _record(e: Event) -> Decoded | Deleted:
    at, key = _time(e.event_ms), (e.key,)
    if e.values is None:
        return Deleted(topic="t", partition=e.partition, offset=e.offset, event_time=at, key=key)
    return Decoded(topic="t", partition=e.partition, offset=e.offset, event_time=at, fields=e.values, key=key)


def _time(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def random_ttl(chance: random.Random, clock: Clock) -> state.Ttl | None:
    """A random time to live, or None."""
    if chance.random() < 0.25:
        return None
    return state.Ttl(
        ttl=timedelta(milliseconds=chance.choice([1, 2, 5, 5, 10, 10, 40])),
        update=chance.choice(["on_create_and_write", "on_create_and_write", "on_read_and_write", "disabled"]),
        visibility=chance.choice(VISIBILITIES),
        clock=clock,
        clean_up_in_background=chance.random() < 0.7,
    )


def case(seed: int, *, batches: int = 6, most: int = 5) -> TtlCase:
    """A random case."""
    chance = random.Random(seed)
    clock = chance.choice(CLOCKS)
    fields: dict[str, Any] = {}
    hints: dict[str, Any] = {}
    kinds: dict[str, str] = {}
    always = chance.random() < 0.5
    for number in range(chance.randrange(1, 5)):
        kind, name = chance.choice(list(KINDS)), f"f{number}"
        ttl = random_ttl(chance, clock)
        ttl = state.Ttl(ttl=timedelta(milliseconds=5), clock=clock) if ttl is None and always else ttl
        hint, made = KINDS[kind]
        fields[name], kinds[name] = made(ttl), kind
        hints[name] = hint if kind in ("distinct", "list") or (kind == "count" and ttl is None) else hint | None
        if kind == "count" and ttl is not None and ttl.update == "disabled":
            hints[name] = int
    kept = type("Kept", (state.Keyed,), {**fields, "__annotations__": hints, "__module__": __name__})
    deletes = chance.random() < 0.4
    pipeline = Pipeline(
        name="cases",
        source=KafkaSource("t", Reading, event_time="at"),
        operators=[Fold("folded", key_by="key", state=kept, deletes=deletes)],
    )
    capped = chance.random() < 0.5
    return TtlCase(pipeline, kinds, tuple(random_batches(chance, batches, most, deletes, capped)), capped)


def random_batches(
    chance: random.Random, batches: int, most: int, deletes: bool, capped: bool = False
) -> Iterator[Batch]:
    """Random batches of successive checkpoints, with their clocks."""
    keys, busy = KEYS[: chance.randrange(1, 4)], chance.choice([1, 2, most])
    now, offsets, watermark = START_MS, [0, 0], None
    logical = START_MS + (chance.choice([-2, 3, 20, 1000]) if capped else 1000)
    for number in range(1, chance.randrange(1, batches + 1) + 1):
        events, before = [], watermark
        for _ in range(chance.randrange(busy + 1)):
            now += chance.choice([0, 0, 1, 1, 2, 3, 4, 4, 4, 5, 10, 60])
            partition = chance.randrange(2)
            values = None
            at = now + chance.choice([0, 0, 0, -1, -5, -100])
            if not (deletes and chance.random() < 0.25):
                n = chance.choice([None, *range(-3, 4)])
                price = chance.choice([None, Decimal("0.10"), Decimal("-2.50"), Decimal("3.00")])
                values = {"key": "", "at": _time(at), "n": n, "price": price}
                seen = min(at, logical) if capped else at
                watermark = seen if watermark is None else max(watermark, seen)
            else:
                at += chance.choice([-50, 0, 50])
            key = chance.choice(keys)
            values = None if values is None else {**values, "key": key}
            events.append(Event(key, partition, offsets[partition], at, values))
            offsets[partition] += 1
        yield Batch(number, tuple(events), before, watermark, logical)
        logical += chance.choice([0, 1, 3, 4, 4, 5, 10, 50])


# The model: one pass over every access of a key, in order of (checkpoint, access time), without operands or levels.


@dataclass(frozen=True)
class Access:
    """A record since the last delete of its key, and the time when it accessed the state."""

    batch: int
    at: int
    event: Event


def accesses(schema: OperatorSchema, batches: Sequence[Batch], key: str, *, capped: bool) -> list[Access]:
    """All accesses of a key after its last delete."""
    found: list[Access] = []
    for batch in batches:
        mine = sorted((e for e in batch.events if e.key == key), key=lambda e: (e.partition, e.offset))
        deleted = max((n for n, e in enumerate(mine) if e.values is None), default=None)
        if deleted is not None:
            found, mine = [], mine[deleted + 1 :]
        for e in mine:
            at = batch.logical_time_ms
            if schema.clock == "event_time":
                at = min(e.event_ms, batch.logical_time_ms) if capped else e.event_ms
                at = at if batch.watermark_ms is None else max(at, batch.watermark_ms)
            found.append(Access(batch.number, at, e))
    return sorted(found, key=lambda a: (a.batch, a.at))


def expected(made: TtlCase, through: int) -> dict[tuple[str], dict[str, Any]]:
    """The expected state after the checkpoint `through`."""
    schema, batches = made.schema, made.batches[:through]
    now = batches[-1].now.of(schema.clock)
    found = {}
    for key in KEYS:
        history = accesses(schema, batches, key, capped=made.capped)
        if not history:
            continue
        values, present = {}, False
        for f in schema.fields:
            here, values[f.name] = _value(made.kinds[f.name], f.ttl, history, now)
            present = present or here
        if present:
            found[(key,)] = values
    return found


def _value(kind: str, ttl: state.Ttl | None, history: list[Access], now: int | None) -> tuple[bool, Any]:
    ms = None if ttl is None or ttl.visibility != "never_return_expired" or ttl.update == "disabled" else ttl.ms

    def expired(at: int) -> bool:
        if ms is None:
            return False
        assert now is not None, "the clock is set once a record was read"
        return at + ms <= now

    if kind == "list":
        placed = sorted(history, key=lambda a: (a.batch, a.event.partition, a.event.offset))
        kept = [a for a in placed if a.event.record["n"] is not None and not expired(a.at)]
        return ms is None or bool(kept), [a.event.record["n"] for a in kept]
    live: list[Access] = []
    for a in history:
        if ms is not None and live and live[-1].at + ms <= a.at:
            live = []
        live.append(a)
    if expired(live[-1].at):
        return False, [] if kind == "distinct" else None
    return True, _folded(kind, [a.event for a in live])


def _folded(kind: str, events: list[Event]) -> Any:
    field = "price" if kind in ("turnover", "max") else "n"
    events = sorted(events, key=lambda e: (e.event_ms, e.partition, e.offset))
    every = [e.record[field] for e in events]
    known = [v for v in every if v is not None]
    made: dict[str, Callable[[], Any]] = {
        "count": lambda: len(every),
        "sum": lambda: sum(known) if known else None,
        "turnover": lambda: sum(known) if known else None,
        "min": lambda: min(known, default=None),
        "max": lambda: max(known, default=None),
        "first": lambda: every[0],
        "latest": lambda: every[-1],
        "known": lambda: known[-1] if known else None,
        "mean": lambda: sum(known) / len(known) if known else None,
        "distinct": lambda: sorted(set(known)),
        "reduced": lambda: sum(known) * 2 if known else None,
        "spread": lambda: max(known) - min(known) if known and len(every) > 1 else None,
        "ratio": lambda: _ratio(events),
    }
    return made[kind]()


def _ratio(events: list[Event]) -> float | None:
    prices = [e.record["price"] for e in events if e.record["price"] is not None]
    if not any(p > 2 for p in prices):
        return -1.5
    positive: list[int] = [max(e.record["n"] or 0, 0) for e in events]
    return sum(positive) / len(prices)
