"""Random sales for folds with windows, and a brute-force model of them without product code."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Session, Sliding, Tumbling, Watermark, state
from tidemark.testing import Record

START = datetime(2024, 1, 1, tzinfo=UTC)
MINUTE = 60_000
EPOCH = int(START.timestamp()) // 60
"""Minutes before the start."""
SHOPS = ("a", "b", "c")
KINDS = ("tumbling", "sliding", "session")


@dataclass(frozen=True)
class Sale:
    """One record."""

    shop: str | None
    cents: int
    at: datetime


class SmallSales(state.Keyed):
    """Per shop and window, without a field that may grow: Spark folds a small batch of these as it reads it."""

    n: int = state.count()
    cents: int | None = state.sum("cents")
    least: int | None = state.min("cents")
    last: int | None = state.latest("cents")


class Sales(state.Keyed):
    """Per shop and window."""

    n: int = state.count()
    cents: int | None = state.sum("cents")
    least: int | None = state.min("cents")
    last: int | None = state.latest("cents")
    seen: list[int] = state.distinct("cents")


class Day(state.Keyed):
    """Of the rows of closed windows."""

    hours: int = state.count()
    cents: int | None = state.sum("cents")


@dataclass(frozen=True)
class Rules:
    """What a case declares, in minutes; `size` is also the gap of sessions."""

    size: int = 10
    every: int = 0
    sessions: bool = False
    updates: bool = False
    keeps_late: bool = False
    day: int = 30
    delay: int = 0
    lateness: int = 0
    is_small: bool = False

    @property
    def window(self) -> Tumbling | Sliding | Session:
        """As a pipeline declares them."""
        if self.sessions:
            return Session(f"{self.size}m")
        return Sliding(f"{self.size}m", every=f"{self.every}m") if self.every else Tumbling(f"{self.size}m")


@dataclass(frozen=True)
class Sent:
    """A sale: partition, shop (None = no key), minute, cents."""

    partition: int
    shop: str | None
    minute: int
    cents: int


def pipeline(rules: Rules, where: str | None = "cents <> 7") -> Pipeline:
    """Windows per shop, windows over their rows, and a fold of them without windows."""
    return Pipeline(
        name="shops",
        source=KafkaSource("sales", Sale, event_time="at", watermark=Watermark(delay=f"{rules.delay}m")),
        operators=[
            Fold(
                "sold",
                key_by="shop",
                state=SmallSales if rules.is_small else Sales,
                where=where,
                window=rules.window,
                lateness=f"{rules.lateness}m",
                sink=DeltaSink("sold"),
                emit="update" if rules.updates else "final",
                late=DeltaSink("late") if rules.keeps_late else None,
            ),
            Fold(
                "days", key_by="shop", state=Day, input="sold", window=Tumbling(f"{rules.day}m"), sink=DeltaSink("days")
            ),
            Fold("ever", key_by="shop", state=Day, input="sold"),
            *([Fold("missed", key_by="shop", state=Day, input="sold.late")] if rules.keeps_late else []),
        ],
        max_dead_letters=1.0,
    )


def record(sent: Sent) -> Record:
    """The record of a sale."""
    value = Sale(sent.shop, sent.cents, START + timedelta(minutes=sent.minute))
    return Record(value=value, partition=sent.partition)


Key = tuple[str, int, int]
"""Shop, and the minutes at which a window begins and ends."""
Found = dict[Key, list[tuple[int, int]]]
"""Minutes and cents of each window."""


@dataclass
class Model:
    """What must happen, one checkpoint after the other; minutes since the start."""

    rules: Rules
    open: Found = field(default_factory=dict)
    closed: Found = field(default_factory=dict)
    greatest: dict[int, int] = field(default_factory=dict)
    watermark: int | None = None
    frontier: int | None = None
    days: dict[Key, list[int]] = field(default_factory=dict)
    closed_days: dict[Key, list[int]] = field(default_factory=dict)
    late: int = 0
    all_late: list[tuple[str, int, int]] = field(default_factory=list)
    updates: list[tuple[Key, int, int]] = field(default_factory=list)
    read: int = 0

    def windows(self, minute: int) -> list[tuple[int, int]]:
        """The windows that hold a minute, by trying all."""
        rules = self.rules
        if rules.sessions:
            return [(minute, minute + rules.size)]
        starts = range(minute - rules.size - 100, minute + 1)
        step = rules.every or rules.size
        return [(s, s + rules.size) for s in starts if (s + EPOCH) % step == 0 and s <= minute < s + rules.size]

    def checkpoint(self, batch: Sequence[Sent]) -> None:
        """Reads a batch; all partitions that ever had a record count."""
        self.late = 0
        touched: set[Key] = set()
        for sale in batch:
            self.read += 1
            self.greatest[sale.partition] = max(sale.minute, self.greatest.get(sale.partition, sale.minute))
            if sale.cents == 7 or sale.shop is None:
                continue
            still = [w for w in self.windows(sale.minute) if self.frontier is None or w[1] > self.frontier]
            if self.rules.sessions and self.frontier is not None and sale.minute < self.frontier:
                still = []
            if not still:
                self.late += 1
                self.all_late.append((sale.shop, sale.minute, sale.cents))
            touched |= {(sale.shop, start, end) for start, end in still}
            for start, end in still:
                self.open.setdefault((sale.shop, start, end), []).append((sale.minute, sale.cents))
        if self.rules.sessions:
            self.open = self._sessions()
        if self.greatest:
            least = min(self.greatest.values()) - self.rules.delay
            self.watermark = least if self.watermark is None else max(self.watermark, least)
            frontier = self.watermark - self.rules.lateness
            self.frontier = frontier if self.frontier is None else max(self.frontier, frontier)
        self._close()
        for key in touched & self.open.keys():
            self.updates.append((key, len(self.open[key]), sum(cents for _, cents in self.open[key])))

    def _sessions(self) -> Found:
        """Sessions of all sales that are not in closed ones: a new one begins after `size` minutes without a sale."""
        found: Found = {}
        for shop in {shop for shop, _, _ in self.open}:
            sales = sorted(sale for key, sales in self.open.items() if key[0] == shop for sale in sales)
            begun: list[list[tuple[int, int]]] = []
            for sale in sales:
                if begun and sale[0] - begun[-1][-1][0] < self.rules.size:
                    begun[-1].append(sale)
                else:
                    begun.append([sale])
            found |= {(shop, s[0][0], s[-1][0] + self.rules.size): s for s in begun}
        return found

    def _close(self) -> None:
        for key in sorted(self.open):
            if self.frontier is not None and key[2] <= self.frontier:
                assert key not in self.closed, "a window closes once"
                self.closed[key] = self.open.pop(key)
                shop, _, end = key
                last = end * MINUTE - 1  # a row of a closed window has the last millisecond of it
                start = last // (self.rules.day * MINUTE) * self.rules.day
                day = (shop, start, start + self.rules.day)
                self.days.setdefault(day, []).append(sum(cents for _, cents in self.closed[key]))
        for key in sorted(self.days):
            if self.frontier is not None and key[2] <= self.frontier:
                assert key not in self.closed_days, "a window of windows closes once"
                self.closed_days[key] = self.days.pop(key)

    def rows(self, of: Found) -> dict[Key, tuple[Any, ...]]:
        """The fields of each window: count, sum, minimum, the latest by time, and the different ones."""
        return {
            key: (
                len(found),
                sum(c for _, c in found),
                min(c for _, c in found),
                {c for m, c in found if m == max(m for m, _ in found)},
                sorted({c for _, c in found}),
            )
            for key, found in of.items()
        }

    @staticmethod
    def sums(of: dict[Key, list[int]]) -> dict[Key, tuple[int, int]]:
        """The fields of each window over windows."""
        return {key: (len(found), sum(found)) for key, found in of.items()}


def key_of(row: Any) -> Key:
    """The key of a row of the product."""
    start, end = ((row[bound] - START) // timedelta(minutes=1) for bound in ("window_start", "window_end"))
    return row["shop"], start, end


def agree(model: Model, rows: Sequence[Any], of: Found) -> None:
    """Compares rows with windows; of several latest sales in one minute any may be the last."""
    expected = model.rows(of)
    found = {key_of(row): row for row in rows}
    assert len(found) == len(rows), "one row per key and window"
    assert found.keys() == expected.keys()
    for key, row in found.items():
        n, cents, least, last, seen = expected[key]
        assert (row["n"], row["cents"], row["least"]) == (n, cents, least), key
        assert model.rules.is_small or sorted(row["seen"]) == seen, key
        assert row["last"] in last


def agree_on_updates(model: Model, rows: Sequence[Any]) -> None:
    """Compares the rows of a sink that are not final with the windows that a checkpoint added to and left open."""
    assert len({repr([row[i] for i in ("_topic", "_partition", "_offset", "_path")]) for row in rows}) == len(rows)
    found = [(key_of(row), row["n"], row["cents"]) for row in rows if not row["is_final"]]
    assert sorted(found) == sorted(model.updates)


def agree_on_late(model: Model, rows: Sequence[Any], missed: Mapping[str, int]) -> None:
    """Compares the rows of the output of late records, and their sum per shop, with the records that were late."""
    late = [(row["shop"], (row["at"] - START) // timedelta(minutes=1), row["cents"]) for row in rows]
    assert sorted(late) == sorted(model.all_late)
    shops = {shop for shop, _, _ in model.all_late}
    assert missed == {shop: sum(cents for s, _, cents in model.all_late if s == shop) for shop in shops}


def finals(rows: Sequence[Any]) -> list[Any]:
    """The rows of closed windows."""
    return [row for row in rows if row.get("is_final", True)]


def random_batches(chance: random.Random, rules: Rules) -> list[list[Sent]]:
    """Batches whose time moves forward, with records that come too late, without a key, or filtered."""
    now, found = 0, []
    for _ in range(chance.randrange(2, 6)):
        batch = []
        for _ in range(chance.choice([0, 1, 6, 12])):
            now += chance.choice([0, 0, 1, 2, 5])
            minute = now - chance.choice([0, 0, 1, 3, 9, 25])
            shop = chance.choice([*SHOPS, *SHOPS, None])
            batch.append(Sent(chance.randrange(2), shop, minute, chance.choice([1, 2, 3, 5, 7])))
        now += chance.choice([0, rules.size, 3 * rules.size])
        found.append(batch)
    return found


def random_rules(chance: random.Random, kind: str | None = None) -> Rules:
    """Random rules of tumbling or sliding windows, or sessions."""
    kind = kind or chance.choice(KINDS)
    size = chance.choice([1, 5, 10, 12])
    steps = [n for n in range(1, size + 1) if size // n <= 5]
    return Rules(
        size=size,
        every=chance.choice(steps) if kind == "sliding" else 0,
        sessions=kind == "session",
        day=chance.choice([15, 20, 30]),
        delay=chance.choice([0, 1, 4]),
        lateness=chance.choice([0, 2, 15]),
        updates=kind != "session" and chance.random() < 0.5,
        keeps_late=chance.random() < 0.5,
        is_small=chance.random() < 0.5,
    )
