"""Rows of closed windows and fired timers lead to the records that made them, and pages show what is due next."""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.trips import settings_of
from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Process, Session, Sliding, Tumbling, Watermark, state
from tidemark.declare.windows import Window
from tidemark.errors import NotFoundError, UsageError
from tidemark.operations import reads, sinks
from tidemark.web import details
from tidemark.web.sink_rows import find_sink_origin, read_due_records

START = datetime(2024, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DISORDER = 15
"""Minutes by which a record may come behind another one; the watermark waits as long, so none is late."""
QUIET = timedelta(minutes=25)


@dataclass(frozen=True)
class Sale:
    """One record."""

    shop: str
    cents: int
    at: datetime


class Sales(state.Keyed):
    """Per shop and window."""

    n: int = state.count()


class Last(state.Keyed):
    """Per shop."""

    sales: int = state.value(0)


@dataclass(frozen=True)
class Quiet:
    """A shop without sales."""

    shop: str
    sales: int


@dataclass(frozen=True)
class Other:
    """A row whose column has the name of the key, and another value."""

    shop: str


def remember(shop: str, sold: Iterator[Sale], last: Last, *, timers: Any) -> None:
    for sale in sold:
        last.sales += 1
        timers.set("quiet", sale.at + QUIET)


def report(shop: str, name: str, at: datetime, last: Last) -> Iterator[Quiet]:
    yield Quiet(shop, last.sales)


def mislead(shop: str, sold: Iterator[Sale], last: Last, *, timers: Any) -> None:
    remember(shop, sold, last, timers=timers)


def misreport(shop: str, name: str, at: datetime, last: Last) -> Iterator[Other]:
    yield Other(f"not {shop}")


def pipeline(window: Window) -> Pipeline:
    timed: dict[str, Any] = {"key_by": "shop", "state": Last}
    return Pipeline(
        name="sales",
        source=KafkaSource("sales", Sale, event_time="at", watermark=Watermark(delay=f"{DISORDER}m")),
        operators=[
            Fold("windows", key_by="shop", state=Sales, window=window, sink=DeltaSink("closed")),
            Process("quiet", function=remember, on_timer=report, emits=Quiet, sink=DeltaSink("quiet"), **timed),
            Process("other", function=mislead, on_timer=misreport, emits=Other, sink=DeltaSink("other"), **timed),
            Fold("plain", key_by="shop", state=Sales),
        ],
    )


class SalesContext(DiskContext):
    """Finds the declaration in the pipeline on disk."""

    def pipeline(self, name: str) -> Pipeline:
        return self.line.pipeline


Sent = list[tuple[str, datetime]]
WINDOWS: dict[str, Window] = {
    "tumbling": Tumbling("10m"),
    "sliding": Sliding("20m", every="5m"),
    "session": Session("6m"),
}


def made(window: Window, path: Path, seed: int) -> tuple[DiskContext, Sent]:
    """A pipeline with some checkpoints, and its records by offset."""
    chance, sent = random.Random(seed), Sent()
    line = DiskPipeline(path / "warehouse", pipeline(window), "sales", partitions=1)
    for n in range(6):
        for _ in range(chance.randrange(1, 15)):
            at = START + MINUTE * (n * 20 + chance.randrange(-DISORDER, 1)) + timedelta(seconds=chance.randrange(60))
            sent.append((chance.choice("abc"), max(at, START)))
            body = {"shop": sent[-1][0], "cents": 1, "at": sent[-1][1].isoformat()}
            line.send([(0, json.dumps(body).encode(), 1)])
        line.checkpoint()
    return SalesContext(line, settings_of(path)), sent


@pytest.mark.parametrize("kind", WINDOWS)
def test_a_closed_row_leads_to_exactly_its_records(kind: str, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    context, sent = made(WINDOWS[kind], tmp_path, seed)
    rows = sinks.read_sink(context, "sales", "closed").to_pylist()
    assert rows
    for row in random.Random(seed).sample(rows, min(len(rows), 6)):
        where = {"shop": row["shop"], "window_end": row["window_end"].isoformat()}
        origin = find_sink_origin(context, "sales", "closed", row["_checkpoint"], where)
        (only,) = origin.rows
        assert only.due is not None and (only.due.operator, only.due.what) == ("windows", "window")
        bounds = [row[name].isoformat() for name in ("window_start", "window_end")]
        assert list(only.due.key) == [row["shop"], *bounds]
        assert datetime.fromisoformat(only.due.at) == row["window_end"]
        pages = read_due_records(context, "sales", origin, only, 100)
        found = sorted(record.offset for page in pages for record in page.records)
        assert found == [
            offset
            for offset, (shop, at) in enumerate(sent)
            if shop == row["shop"] and row["window_start"] <= at < row["window_end"]
        ]
        assert len(found) == row["n"] and all(page.by_key for page in pages)
        some = read_due_records(context, "sales", origin, only, 1)
        assert sum(len(page.records) for page in some) == 1


def test_the_records_of_a_session_are_found_that_grew_and_of_one_that_was_two(tmp_path: Path) -> None:
    line = DiskPipeline(tmp_path / "warehouse", pipeline(WINDOWS["session"]), "sales", partitions=1)
    for minutes in ((20,), (24, 32), (28,), (60,)):
        for minute in minutes:
            body = {"shop": "a", "cents": 1, "at": (START + MINUTE * minute).isoformat()}
            line.send([(0, json.dumps(body).encode(), 1)])
        line.checkpoint()
    context = SalesContext(line, settings_of(tmp_path))
    (row,) = sinks.read_sink(context, "sales", "closed").to_pylist()
    origin = find_sink_origin(context, "sales", "closed", row["_checkpoint"], {"shop": "a"})
    pages = read_due_records(context, "sales", origin, origin.rows[0], 100)
    assert [[r.offset for r in page.records] for page in pages] == [[], [3], [1, 2], [0]]


@dataclass(frozen=True)
class When:
    """A part of a record."""

    at: datetime


@dataclass(frozen=True)
class Deal:
    """A record whose event time is nested, or that of Kafka."""

    shop: str
    when: When


@pytest.mark.parametrize("event_time", ["when.at", None])
def test_records_of_a_window_are_found_wherever_their_event_time_is(event_time: str | None, tmp_path: Path) -> None:
    hours = Fold("hours", key_by="shop", state=Sales, window=Tumbling("1h"), sink=DeltaSink("closed"))
    source = KafkaSource("deals", Deal, event_time=event_time, watermark=Watermark())
    line = DiskPipeline(
        tmp_path / "warehouse", Pipeline(name="deals", source=source, operators=[hours]), "deals", partitions=1
    )
    for minutes in ((0, 30, 59), (30, 61, 65), (59, 200)):
        for minute in minutes:
            at = START + MINUTE * minute
            other = START + timedelta(days=1)
            body = {"shop": "a", "when": {"at": (at if event_time else other).isoformat()}}
            line.send([(0, json.dumps(body).encode(), int((other if event_time else at).timestamp() * 1000))])
        line.checkpoint()
    context = SalesContext(line, settings_of(tmp_path))
    found = {}
    for row in sinks.read_sink(context, "deals", "closed").to_pylist():
        where = {"window_end": row["window_end"].isoformat()}
        origin = find_sink_origin(context, "deals", "closed", row["_checkpoint"], where)
        pages = read_due_records(context, "deals", origin, origin.rows[0], 100)
        found[row["window_start"]] = [r.offset for page in pages for r in page.records]
    assert found == {START: [3, 0, 1, 2], START + MINUTE * 60: [4, 5]}, "newest checkpoint first"


def test_a_fired_timer_leads_to_the_records_of_its_key(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    context, sent = made(WINDOWS["tumbling"], tmp_path, seed)
    rows = sinks.read_sink(context, "sales", "quiet").to_pylist()
    times = defaultdict[str, list[datetime]](list)
    for shop, at in sent:
        times[shop].append(at)
    for row in rows:
        origin = find_sink_origin(context, "sales", "quiet", row["_checkpoint"], {"shop": row["shop"]})
        for only in origin.rows:
            assert only.due is not None and (only.due.what, list(only.due.key)) == ("timer", [row["shop"]])
            assert datetime.fromisoformat(only.due.at) - QUIET in times[row["shop"]]
            pages = read_due_records(context, "sales", origin, only, 100)
            assert {sent[record.offset][0] for page in pages for record in page.records} == {row["shop"]}


def test_a_column_with_the_name_of_the_key_and_another_value_is_no_key(tmp_path: Path) -> None:
    context, _ = made(WINDOWS["tumbling"], tmp_path, 5)
    rows = sinks.read_sink(context, "sales", "other").to_pylist()
    assert rows, "with this seed a timer fires"
    origin = find_sink_origin(context, "sales", "other", rows[0]["_checkpoint"], {})
    assert all(row.due is not None and list(row.due.key) == [] for row in origin.rows)


@pytest.mark.parametrize("kind", WINDOWS)
def test_open_windows_and_timers_are_shown_by_the_time_at_which_they_are_due(kind: str, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    context, _ = made(WINDOWS[kind], tmp_path, seed)
    newest = reads.get_checkpoint(context, "sales")
    for checkpoint in (newest.id, newest.id - 2):
        open_ = reads.read_state(context, "sales", "windows", checkpoint=checkpoint).to_pylist()
        check(context, checkpoint, "windows", [(row["window_end"], row["shop"]) for row in open_])
        timed = reads.read_state(context, "sales", "quiet", checkpoint=checkpoint).to_pylist(maps_as_pydicts="strict")
        timers = [(at, f"{name} of {row['shop']}") for row in timed for name, at in row["timers"].items()]
        check(context, checkpoint, "timers", timers)


def check(context: DiskContext, checkpoint: int, what: str, waiting: list[tuple[datetime, str]]) -> None:
    uid = {"windows": "windows", "timers": "quiet"}[what]
    for limit in (2, 100):
        due = details.list_due_times(context, "sales", checkpoint, uid, limit)
        assert (due.uid, due.what, due.total) == (uid, what, len(waiting))
        expected = sorted(Counter(at for at, _ in waiting).items())[:limit]
        assert [(datetime.fromisoformat(d.at), d.count) for d in due.first] == expected
        for d in due.first:
            at = datetime.fromisoformat(d.at)
            assert list(d.some) == sorted(key for then, key in waiting if then == at)[:3]
        assert due.frontier is None or all(d.at > due.frontier for d in due.first)
        hidden = details.list_due_times(context, "sales", checkpoint, uid, limit, with_keys=False)
        assert hidden == replace(due, first=[replace(d, some=[]) for d in due.first])


def test_an_operator_without_a_frontier_has_nothing_that_waits(tmp_path: Path) -> None:
    context, _ = made(WINDOWS["tumbling"], tmp_path, 1)
    with pytest.raises(UsageError, match="plain has neither windows nor timers"):
        details.list_due_times(context, "sales", 1, "plain")
    with pytest.raises(NotFoundError, match="no operator 'nothing'"):
        details.list_due_times(context, "sales", 1, "nothing")
    shown = {task.uid: task.is_clocked for task in details.get_details(context, "sales", 1).tasks}
    assert shown == {"windows": True, "quiet": True, "other": True, "plain": False}
