"""Random orders for a process with timers, and a brute-force model of it without product code."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Process, Tumbling, Watermark, state
from tidemark.testing import Record

START = datetime(2024, 1, 1, tzinfo=UTC)
MINUTE = 60_000
AGAIN, BACK = "again", "back"
"""Timers that set themselves again seven minutes later, and one that sets another for the past."""


@dataclass(frozen=True)
class Order:
    """One record, as an order to the function."""

    desk: str | None
    does: str
    name: str
    minutes: int
    at: datetime


@dataclass(frozen=True)
class Fired:
    """A timer that fired, with the state that it saw."""

    desk: str
    name: str
    at: datetime
    seen: int
    calls: int


@dataclass(frozen=True)
class Said:
    """What the function said about a record."""

    desk: str
    seen: int
    fired: int


class Desk(state.Keyed):
    """Per desk."""

    seen: int = state.value(0)
    calls: int = state.value(0)
    fired: int = state.value(0)


class Alarms(state.Keyed):
    """Of timers that fired, per desk and window."""

    n: int = state.count()


def follow(desk: str, orders: Iterator[Order], remembered: Desk, *, timers: Any) -> Iterator[Said]:
    """Does what the orders say."""
    remembered.calls += 1
    for order in orders:
        remembered.seen += 1
        if order.does == "set":
            timers.set(order.name, order.at + timedelta(minutes=order.minutes))
        elif order.does == "cancel":
            timers.cancel(order.name)
        elif order.does == "clear":
            timers.clear()
        elif order.does == "forget":
            remembered.clear()
        elif order.does == "stop":
            return
        else:
            yield Said(desk, remembered.seen, remembered.fired)


def alarm(desk: str, name: str, at: datetime, remembered: Desk, *, timers: Any) -> Iterator[Fired]:
    """Says so, and sets further timers."""
    remembered.fired += 1
    yield Fired(desk, name, at, remembered.seen, remembered.calls)
    if name == AGAIN:
        timers.set(AGAIN, at + timedelta(minutes=7))
    if name == BACK:
        timers.set("behind", at - timedelta(minutes=20))
        timers.cancel("x")


@dataclass(frozen=True)
class Rules:
    """The declared options of a case, in minutes."""

    delay: int = 0
    lateness: int = 0


@dataclass(frozen=True)
class Sent:
    """An order: partition, desk (None = no key), minute, the order, name, minutes."""

    partition: int
    desk: str | None
    minute: int
    does: str = "say"
    name: str = "x"
    minutes: int = 0


def pipeline(rules: Rules) -> Pipeline:
    """The process, and windows over the timers that fired."""
    return Pipeline(
        name="desks",
        source=KafkaSource("orders", Order, event_time="at", watermark=Watermark(delay=f"{rules.delay}m")),
        operators=[
            Process(
                "desks",
                key_by="desk",
                state=Desk,
                function=follow,
                on_timer=alarm,
                lateness=f"{rules.lateness}m",
                emits={"fired": Fired, "said": Said},
                sinks={"fired": DeltaSink("fired"), "said": DeltaSink("said")},
            ),
            Fold(
                "alarms", key_by="desk", state=Alarms, input="desks", window=Tumbling("10m"), sink=DeltaSink("alarms")
            ),
        ],
        max_dead_letters=1.0,
    )


def record(sent: Sent) -> Record:
    """The record of an order."""
    at = START + timedelta(minutes=sent.minute)
    return Record(value=Order(sent.desk, sent.does, sent.name, sent.minutes, at), partition=sent.partition)


@dataclass
class OneDesk:
    """The memory of a desk."""

    seen: int = 0
    calls: int = 0
    fired: int = 0
    timers: dict[str, int] = field(default_factory=dict)


@dataclass
class Model:
    """What must happen, one checkpoint after the other; times are milliseconds since the start."""

    rules: Rules
    desks: dict[str, OneDesk] = field(default_factory=dict)
    fired: list[tuple[str, str, int, int, int]] = field(default_factory=list)
    said: list[tuple[str, int, int]] = field(default_factory=list)
    greatest: dict[int, int] = field(default_factory=dict)
    watermark: int | None = None
    frontier: int | None = None
    alarms: dict[tuple[str, int], int] = field(default_factory=dict)
    firings: int = 0

    def checkpoint(self, batch: Sequence[Sent]) -> None:
        """Reads a batch; all partitions that ever had a record count."""
        before = self.frontier
        for sent in batch:
            now = sent.minute * MINUTE
            self.greatest[sent.partition] = max(now, self.greatest.get(sent.partition, now))
        if self.greatest:
            least = min(self.greatest.values()) - self.rules.delay * MINUTE
            self.watermark = least if self.watermark is None else max(self.watermark, least)
            found = self.watermark - self.rules.lateness * MINUTE
            self.frontier = found if before is None else max(before, found)
        self.firings = 0
        for desk in sorted({*self.desks, *(s.desk for s in batch if s.desk is not None)}):
            self._desk(desk, before, [s for s in batch if s.desk == desk])

    def _desk(self, name: str, before: int | None, batch: Sequence[Sent]) -> None:
        """Goes through one timeline of records and timers, looking for what comes next after each step."""
        mine = self.desks.setdefault(name, OneDesk())
        # Sorting keeps the order of offsets within a partition.
        waiting = sorted(batch, key=lambda s: (s.minute, s.partition))
        called, stopped = False, False
        while True:
            due = sorted((at, timer) for timer, at in mine.timers.items() if self.frontier is not None)
            due = [d for d in due if d[0] <= (self.frontier or 0)]
            if due and (not waiting or due[0][0] <= waiting[0].minute * MINUTE):
                self._fire(name, mine, before, *due[0])
                called = stopped = False
            elif waiting:
                sent = waiting.pop(0)
                if not called:
                    mine.calls += 1
                    called = True
                if not stopped:
                    stopped = self._follow(name, mine, before, sent)
            else:
                return

    def _fire(self, name: str, mine: OneDesk, before: int | None, at: int, timer: str) -> None:
        del mine.timers[timer]
        mine.fired += 1
        self.firings += 1
        self.fired.append((name, timer, at, mine.seen, mine.calls))
        end = at // (10 * MINUTE) * 10 * MINUTE + 10 * MINUTE
        self.alarms[name, end] = self.alarms.get((name, end), 0) + 1
        if timer == AGAIN:
            self._set(mine, before, AGAIN, at + 7 * MINUTE)
        if timer == BACK:
            self._set(mine, before, "behind", at - 20 * MINUTE)
            mine.timers.pop("x", None)

    def _follow(self, name: str, mine: OneDesk, before: int | None, sent: Sent) -> bool:
        """Returns whether the function ends, so that it sees no more records before the next firing."""
        mine.seen += 1
        if sent.does == "set":
            self._set(mine, before, sent.name, (sent.minute + sent.minutes) * MINUTE)
        elif sent.does == "cancel":
            mine.timers.pop(sent.name, None)
        elif sent.does == "clear":
            mine.timers.clear()
        elif sent.does == "forget":
            mine.seen = mine.calls = mine.fired = 0
        elif sent.does == "say":
            self.said.append((name, mine.seen, mine.fired))
        return sent.does == "stop"

    @staticmethod
    def _set(mine: OneDesk, before: int | None, timer: str, at: int) -> None:
        mine.timers[timer] = at if before is None else max(at, before + 1)

    @property
    def closed(self) -> dict[tuple[str, int], int]:
        """The closed windows over timers that fired."""
        return {key: n for key, n in self.alarms.items() if self.frontier is not None and key[1] <= self.frontier}


def ms(at: datetime) -> int:
    """Milliseconds since the start."""
    return (at - START) // timedelta(milliseconds=1)


def agree(model: Model, found: "Found") -> None:
    """Compares everything that a checkpoint left."""
    desks = {
        name: (d.seen, d.calls, d.fired, d.timers)
        for name, d in model.desks.items()
        if d.seen or d.calls or d.fired or d.timers
    }
    rows = {
        r["desk"]: (
            r["seen"] or 0,
            r["calls"] or 0,
            r["fired"] or 0,
            {n: ms(at) for n, at in dict(r["timers"]).items()},
        )
        for r in found.state
    }
    assert {k: v for k, v in rows.items() if v != (0, 0, 0, {})} == desks
    fired = [(r["desk"], r["name"], ms(r["at"]), r["seen"], r["calls"]) for r in found.fired]
    assert sorted(fired) == sorted(model.fired), "each timer fires once, with the state of its time"
    said = [(r["desk"], r["seen"], r["fired"]) for r in found.said]
    assert sorted(said) == sorted(model.said)
    for row in found.fired:
        assert row["_topic"] == "timers/desks" and row["_offset"] == row["at"].timestamp() * 1000
    places = [(r["_topic"], r["_partition"], r["_offset"], tuple(r["_path"])) for r in (*found.fired, *found.said)]
    assert len(set(places[: len(fired)])) == len(fired) and len(set(places[len(fired) :])) == len(said), "ids differ"
    closed = {(r["desk"], ms(r["window_end"])): r["n"] for r in found.alarms}
    assert closed == model.closed, "no timer that fired is late behind it"


@dataclass(frozen=True)
class Found:
    """What a checkpoint left: rows of the state, and of three sinks."""

    state: Sequence[Any]
    fired: Sequence[Any]
    said: Sequence[Any]
    alarms: Sequence[Any]


def random_batches(chance: random.Random) -> list[list[Sent]]:
    """Batches whose time moves forward, with records that come late, and some without a key."""
    now, found = 0, []
    for _ in range(chance.randrange(2, 6)):
        batch = []
        for _ in range(chance.choice([0, 1, 6, 12])):
            now += chance.choice([0, 0, 1, 2, 5])
            does = chance.choice(["set"] * 6 + ["say", "say", "cancel", "clear", "forget", "stop"])
            batch.append(
                Sent(
                    chance.randrange(2),
                    chance.choice(["a", "a", "b", "c", None]) if chance.random() < 0.9 else None,
                    now - chance.choice([0, 0, 1, 3, 9, 25]),
                    does,
                    chance.choice(["x", "x", "y", AGAIN, BACK]),
                    chance.choice([-10, 0, 1, 2, 4, 10, 30]),
                )
            )
        now += chance.choice([0, 4, 30])
        found.append(batch)
    return found


def random_rules(chance: random.Random) -> Rules:
    """Random rules."""
    return Rules(delay=chance.choice([0, 1, 4]), lateness=chance.choice([0, 2, 15]))
