"""Random records of four inputs of a co-process, and a brute-force model of it without product code."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tidemark import CoProcess, DeltaSink, FlatMap, Fold, KafkaSource, Pipeline, Tumbling, Watermark, state
from tidemark.testing import Record

START = datetime(2024, 1, 1, tzinfo=UTC)
KEYS = tuple(UUID(int=n) for n in (1, 2, 3))
INPUTS = ("orders", "payments", "split", "split.small")
WAIT = 5
"""Minutes without a record of a key, after which its timer fires."""


@dataclass(frozen=True)
class Customer:
    """A part of an order: keys may be nested."""

    region: int


@dataclass(frozen=True)
class Order:
    """A record of the first input."""

    id: UUID | None
    customer: Customer
    cents: int
    at: datetime


@dataclass(frozen=True)
class Payment:
    """A record of the second input; a FlatMap makes two outputs of it."""

    order_id: UUID | None
    region: int
    cents: int
    at: datetime


@dataclass(frozen=True)
class Large:
    """A row of the first output of the FlatMap."""

    order: UUID | None
    region: int
    cents: int


@dataclass(frozen=True)
class Small:
    """A row of the second one, which has the same path."""

    order: UUID | None
    region: int
    cents: int
    why: list[str]


@dataclass(frozen=True)
class Step:
    """What the function saw: the input or `quiet`, the amount, and how many records and firings of the key before."""

    name: str
    cents: int
    n: int
    fired: int


class Trail(state.Keyed):
    """Per key."""

    n: int = state.value(0)
    fired: int = state.value(0)
    last: str = state.value("")


class Steps(state.Keyed):
    """Of the rows of the co-process, per window."""

    n: int = state.count()


def split(payment: Payment) -> Iterator[Large | Small]:
    """Emits a row per output, and a second one of the first for large amounts."""
    yield Large(payment.order_id, payment.region, payment.cents + 100)
    yield Small(payment.order_id, payment.region, payment.cents + 200, ["x"] * (payment.cents % 3))
    if payment.cents > 5:
        yield Large(payment.order_id, payment.region, payment.cents + 300)


def follow(key: tuple[UUID, int], records: Iterator[tuple[str, Any]], trail: Trail, *, timers: Any) -> Iterator[Step]:
    """Emits a row for each record."""
    assert isinstance(key[0], UUID)
    expected: dict[str, Any] = {"orders": Order, "payments": Payment, "split": Large, "split.small": Small}
    for name, record in records:
        assert isinstance(record, expected[name])
        yield Step(name, record.cents, trail.n, trail.fired)
        trail.n += 1
        trail.last = name
        if isinstance(record, Order):
            timers.set("quiet", record.at + timedelta(minutes=WAIT))
        if isinstance(record, Payment) and record.cents == 4:
            timers.clear()


def quiet(key: tuple[UUID, int], name: str, at: datetime, trail: Trail) -> Iterator[Step]:
    """Emits a row for a timer."""
    yield Step(name, 0, trail.n, trail.fired)
    trail.fired += 1


def follow_plainly(key: tuple[UUID, int], records: Iterator[tuple[str, Any]], trail: Trail) -> Iterator[Step]:
    """The same without timers; it fails on some records."""
    for name, record in records:
        if record.cents % 10 == 9:
            raise ValueError(name)
        yield Step(name, record.cents, trail.n, 0)
        trail.n += 1
        trail.last = name


@dataclass(frozen=True)
class CoRules:
    """What a case declares, in minutes; without timers, records that the function fails on are dead letters."""

    has_timers: bool = True
    delay: int = 0
    lateness: int = 0


@dataclass(frozen=True)
class Got:
    """A record: topic, partition, key (None = none), region, minute, cents."""

    topic: str
    partition: int
    key: UUID | None
    region: int
    minute: int
    cents: int

    @property
    def record(self) -> Record:
        """The record for a script."""
        at = START + timedelta(minutes=self.minute)
        made: Any = Order(self.key, Customer(self.region), self.cents, at)
        if self.topic == "payments":
            made = Payment(self.key, self.region, self.cents, at)
        return Record(value=made, partition=self.partition)


def co_pipeline(rules: CoRules) -> Pipeline:
    """The co-process, and windows over its rows."""
    watermark = Watermark(delay=f"{rules.delay}m")
    steps = CoProcess(
        "steps",
        inputs=INPUTS,
        key_by={
            "orders": ("id", "customer.region"),
            "payments": ("order_id", "region"),
            "split": ("order", "region"),
            "split.small": ("order", "region"),
        },
        state=Trail,
        function=follow_plainly,
        on_error="dead_letter",
        emits=Step,
        sink=DeltaSink("steps"),
    )
    if rules.has_timers:
        timed: dict[str, Any] = {"function": follow, "on_timer": quiet, "lateness": f"{rules.lateness}m"}
        steps = replace(steps, on_error="fail", **timed)
    return Pipeline(
        name="shop",
        sources={
            "orders": KafkaSource("orders", Order, event_time="at", watermark=watermark),
            "payments": KafkaSource("payments", Payment, event_time="at", watermark=watermark),
        },
        operators=[
            FlatMap("split", input="payments", function=split, emits={"large": Large, "small": Small}),
            steps,
            Fold("counts", key_by="name", state=Steps, input="steps", window=Tumbling("10m"), sink=DeltaSink("counts")),
        ],
        max_dead_letters=1.0,
    )


@dataclass
class OneKey:
    """The memory of a key."""

    n: int = 0
    fired: int = 0
    last: str = ""
    due: float | None = None


@dataclass
class CoModel:
    """What must happen, one checkpoint after the other; minutes since the start."""

    rules: CoRules
    keys: dict[tuple[UUID, int], OneKey] = field(default_factory=dict)
    steps: list[tuple[str, int, int, int]] = field(default_factory=list)
    greatest: dict[tuple[str, int], int] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    frontier: int | None = None
    windows: dict[tuple[str, float], int] = field(default_factory=dict)
    refused: int = 0
    late: int = 0
    before: int | None = None

    def checkpoint(self, batch: Sequence[Got]) -> None:
        """Reads a batch; all partitions that ever had a record count."""
        self.before, self.refused, self.late = self.frontier, 0, 0
        for got in batch:
            place = (got.topic, got.partition)
            self.greatest[place] = max(got.minute, self.greatest.get(place, got.minute))
        for topic in {topic for topic, _ in self.greatest}:
            least = min(at for (of, _), at in self.greatest.items() if of == topic) - self.rules.delay
            self.watermarks[topic] = max(least, self.watermarks.get(topic, least))
        if self.watermarks:
            now = min(self.watermarks.values()) - self.rules.lateness
            self.frontier = now if self.frontier is None else max(now, self.frontier)
        waiting: dict[tuple[UUID, int], list[tuple[Any, ...]]] = {}
        for offset, got in enumerate(batch):
            rows = [(0 if got.topic == "orders" else 1, got.cents, 0)]
            if got.topic == "payments":
                rows += [(2, got.cents + 100, 0), (3, got.cents + 200, 0)]
                rows += [(2, got.cents + 300, 1)] if got.cents > 5 else []
            for number, cents, nth in rows:
                if got.key is None:
                    self.refused += 1
                    continue
                found = (got.minute, number, got.partition, offset, nth, cents)
                waiting.setdefault((got.key, got.region), []).append(found)
        for key in {*self.keys, *waiting}:
            self._key(self.keys.setdefault(key, OneKey()), sorted(waiting.get(key, ())))

    def _key(self, mine: OneKey, waiting: list[tuple[Any, ...]]) -> None:
        for minute, number, _, _, _, cents in waiting:
            self._fire(mine, minute)
            name = INPUTS[number]
            if not self.rules.has_timers and cents % 10 == 9:
                self.refused += 1
                continue
            self._step(name, cents, mine, minute)
            mine.n, mine.last = mine.n + 1, name
            if self.rules.has_timers and name == "orders":
                mine.due = minute + WAIT
                if self.before is not None and mine.due <= self.before:
                    mine.due = self.before + 1 / 60_000  # a time that has passed means the next millisecond
            if self.rules.has_timers and name == "payments" and cents == 4:
                mine.due = None
        self._fire(mine, None)

    def _fire(self, mine: OneKey, up_to: int | None) -> None:
        """Fires the timer if its time has come, before a record of a time."""
        if mine.due is None or self.frontier is None or mine.due > self.frontier:
            return
        if up_to is None or mine.due <= up_to:
            self._step("quiet", 0, mine, mine.due)
            mine.fired, mine.due = mine.fired + 1, None

    def _step(self, name: str, cents: int, mine: OneKey, minute: float) -> None:
        self.steps.append((name, cents, mine.n, mine.fired))
        end = minute // 10 * 10 + 10
        if self.before is not None and end <= self.before:
            self.late += 1
        else:
            self.windows[name, end] = self.windows.get((name, end), 0) + 1

    @property
    def closed(self) -> dict[tuple[str, float], int]:
        """The windows over its rows that have closed."""
        return {key: n for key, n in self.windows.items() if self.frontier is not None and key[1] <= self.frontier}


def agree_on_steps(model: CoModel, state: Sequence[Any], emitted: Sequence[Any]) -> None:
    """Compares the state and the rows of the sink."""
    found = {}
    for r in state:
        timers = len(dict(r.get("timers") or {}))
        found[UUID(str(r["id"])), r["region"]] = (r["n"] or 0, r["fired"] or 0, r["last"] or "", timers)
    expected = {k: (m.n, m.fired, m.last, int(m.due is not None)) for k, m in model.keys.items()}
    assert {k: v for k, v in found.items() if any(v)} == {k: v for k, v in expected.items() if any(v)}
    assert sorted((r["name"], r["cents"], r["n"], r["fired"]) for r in emitted) == sorted(model.steps)
    ids = {(r["_topic"], r["_partition"], r["_offset"], tuple(r["_path"])) for r in emitted}
    assert len(ids) == len(emitted), "each row has an id of its own"


def random_gots(chance: random.Random) -> list[list[Got]]:
    """Batches whose time moves forward, with records that come late, and some without a key."""
    now, found = 0, []
    for _ in range(chance.randrange(2, 6)):
        batch = []
        for _ in range(chance.choice([0, 1, 4, 8])):
            now += chance.choice([0, 0, 1, 2, 5])
            minute = now - chance.choice([0, 0, 1, 3, 9, 25])
            key = chance.choice([*KEYS, *KEYS, *KEYS, None])
            topic, cents = chance.choice(["orders", "payments"]), chance.choice([1, 2, 4, 8, 9])
            batch.append(Got(topic, chance.randrange(2), key, chance.choice([1, 1, 2]), minute, cents))
        now += chance.choice([0, 4, 30])
        found.append(batch)
    return found


def random_co_rules(chance: random.Random) -> CoRules:
    """Random rules."""
    has_timers = chance.random() < 0.7
    return CoRules(
        has_timers=has_timers, delay=chance.choice([0, 1, 4]), lateness=chance.choice([0, 2]) if has_timers else 0
    )


def closed_in(emitted: Sequence[Any]) -> dict[tuple[str, float], int]:
    """The rows of the sink of the windows in the form of `CoModel.closed`."""
    return {(r["name"], (r["window_end"] - START) // timedelta(minutes=1)): r["n"] for r in emitted}
