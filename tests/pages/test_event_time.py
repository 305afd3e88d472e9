"""Watermarks and frontiers of the live timeline, what holds them back, and overdue windows, as a model says."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.trips import settings_of
from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Process, Tumbling, Watermark, state
from tidemark.answers.event_time_facts import EventTimeFacts, OperatorClock
from tidemark.operations import reads
from tidemark.web import details
from tidemark.web.event_time import get_event_time

START = datetime(2024, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DELAY, LATENESS, SIZE, WAIT = 2 * MINUTE, 3 * MINUTE, 10 * MINUTE, 25 * MINUTE


@dataclass(frozen=True)
class Sale:
    """One record."""

    shop: str
    at: datetime


class Sales(state.Keyed):
    """Per shop and window."""

    n: int = state.count()


class Last(state.Keyed):
    """Per shop."""

    n: int = state.value(0)


@dataclass(frozen=True)
class Quiet:
    """A shop without sales."""

    shop: str


def remember(shop: str, sold: Iterator[Sale], last: Last, *, timers: Any) -> None:
    for sale in sold:
        timers.set("quiet", sale.at + WAIT)


def report(shop: str, name: str, at: datetime, last: Last) -> Iterator[Quiet]:
    yield Quiet(shop)


sales = Pipeline(
    name="sales",
    source=KafkaSource("sales", Sale, event_time="at", watermark=Watermark(delay="2m")),
    operators=[
        Fold("windows", key_by="shop", state=Sales, window=Tumbling("10m"), lateness="3m", sink=DeltaSink("closed")),
        Process("quiet", key_by="shop", state=Last, function=remember, on_timer=report, emits=Quiet),
        Fold("hours", key_by="shop", state=Sales, window=Tumbling("1h"), closes_by="logical_time",
             sink=DeltaSink("hours")),
        Fold("plain", key_by="shop", state=Sales),
    ],
)  # fmt: skip


class ClockedSales:
    """The pipeline, its records, and what a model says of them."""

    def __init__(self, path: Path, declared: Pipeline = sales) -> None:
        self.line = DiskPipeline(path / "warehouse", declared, "sales", partitions=2)
        self.context = DiskContext(self.line, settings_of(path))
        self.seen: dict[int, datetime] = {}
        self.frontier: datetime | None = None
        self.late: list[int] = []

    def checkpoint(self, *sent: tuple[int, str, timedelta]) -> int:
        """Sends records (partition, shop, minutes after the start), and completes a checkpoint."""
        late = 0
        for partition, shop, after in sent:
            at = START + after
            self.line.send([(partition, json.dumps({"shop": shop, "at": at.isoformat()}).encode(), 1)])
            end = START + (after // SIZE + 1) * SIZE
            late += self.frontier is not None and end <= self.frontier
            self.seen[partition] = max(at, self.seen.get(partition, at))
        self.late.append(late)
        if self.seen:  # a partition that has had no record yet is idle
            found = min(self.seen.values()) - DELAY - LATENESS
            self.frontier = max(found, self.frontier or found)
        return self.line.checkpoint().id

    def facts(self) -> EventTimeFacts:
        """The answer."""
        return get_event_time(self.context, "sales")

    def operator(self, uid: str) -> OperatorClock:
        """Of one operator."""
        return next(o for o in self.facts().operators if o.uid == uid)


@pytest.fixture
def world(tmp_path: Path) -> ClockedSales:
    return ClockedSales(tmp_path)


def time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def test_clocks_and_overdue_windows_are_those_of_the_model(world: ClockedSales) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    for n in range(6):
        # The second partition is slower, and may have no record.
        sent = [(0, chance.choice("abc"), MINUTE * (12 * n + chance.randrange(12))) for _ in range(4)]
        if n > 0 and chance.random() < 0.7:
            sent.append((1, "d", MINUTE * chance.randrange(12 * n)))
        newest = world.checkpoint(*sent)
        facts = world.facts()
        assert facts.checkpoint == f"chk-{newest}"
        (source,) = facts.sources
        seen = world.seen
        furthest = max(seen.values()) - DELAY
        assert time(source.furthest) == furthest
        assert time(source.watermark) == (None if world.frontier is None else world.frontier + LATENESS)
        assert {p.partition: time(p.seen) for p in source.partitions} == {f"sales-{n}": seen.get(n) for n in (0, 1)}
        check_slowest(world, [p.partition for p in source.partitions if p.holds_back])
        windows = world.operator("windows")
        assert time(windows.frontier) == world.frontier
        assert time(windows.furthest) == furthest - LATENESS
        assert (windows.late, windows.late_to) == (sum(world.late), "dead_letters")
        due(world, newest, "windows", furthest - LATENESS)
        due(world, newest, "quiet", furthest)


def test_a_window_that_ends_where_the_furthest_record_allows_is_overdue(world: ClockedSales) -> None:
    world.checkpoint((0, "a", 5 * MINUTE), (1, "b", MINUTE))
    newest = world.checkpoint((0, "c", 10 * MINUTE + DELAY + LATENESS))
    found = details.list_due_times(world.context, "sales", newest, "windows")
    assert [(time(d.at), d.count, d.overdue) for d in found.first] == [
        (START + 10 * MINUTE, 2, True), (START + 20 * MINUTE, 1, False),
    ]  # fmt: skip
    assert (found.total, found.overdue) == (3, 2)


def check_slowest(world: ClockedSales, held: list[str]) -> None:
    """A partition that has had no record yet is idle, so that none holds the other one back."""
    if len(world.seen) < 2 or world.seen[0] == world.seen[1]:
        assert held == []
    else:
        assert held == [f"sales-{min(world.seen, key=lambda n: world.seen[n])}"]


def due(world: ClockedSales, newest: int, uid: str, furthest: datetime) -> None:
    """What waits by the rows of the state, and which of it is overdue."""
    rows = reads.read_state(world.context, "sales", uid, checkpoint=newest).to_pylist(maps_as_pydicts="strict")
    waiting = (
        [row["window_end"] for row in rows]
        if uid == "windows"
        else [at for row in rows for at in row["timers"].values()]
    )
    found = details.list_due_times(world.context, "sales", newest, uid, 3)
    assert (found.total, time(found.last)) == (len(waiting), max(waiting, default=None))
    assert found.overdue == sum(at <= furthest for at in waiting)
    assert all(d.overdue == (datetime.fromisoformat(d.at) <= furthest) for d in found.first)


def test_the_rules_of_operators_are_shown(world: ClockedSales) -> None:
    world.checkpoint((0, "a", MINUTE), (1, "a", MINUTE))
    found = {o.uid: o for o in world.facts().operators}
    assert set(found) == {"windows", "quiet", "hours"}
    assert (found["windows"].what, found["windows"].windows) == ("windows", "tumbling windows of 10 min")
    assert (found["windows"].closes_by, list(found["windows"].follows)) == (
        "watermark",
        list(sales.sources),
    )
    assert found["windows"].lateness == LATENESS // timedelta(milliseconds=1)
    assert (found["quiet"].what, found["quiet"].windows) == ("timers", "")
    assert (found["hours"].closes_by, found["hours"].furthest) == ("logical_time", None)


def test_a_pipeline_without_clocks_has_none(tmp_path: Path) -> None:
    plain = Pipeline(
        name="sales", source=KafkaSource("sales", Sale, event_time="at"),
        operators=[Fold("plain", key_by="shop", state=Sales)],
    )  # fmt: skip
    world = ClockedSales(tmp_path, plain)
    world.line.checkpoint()
    facts = world.facts()
    assert (facts.checkpoint, facts.sources, facts.operators, facts.recent) == ("chk-1", [], [], 0)
