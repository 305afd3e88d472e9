"""Commands over a process with timers, in a warehouse on disk: reads, exports, erasures, restores, and refused ones."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.cli import Command
from tests.support.disk import DiskPipeline, ParquetFiles
from tests.support.disk_context import commands_over
from tests.support.timer_cases import START
from tidemark.operations import reads

DECLARATION = """
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemark import DeltaSink, FlatMap, KafkaSource, Pipeline, Process, Watermark, state


@dataclass(frozen=True)
class Beat:
    bus: str
    at: datetime


@dataclass(frozen=True)
class Silent:
    bus: str
    since: datetime


class Bus(state.Keyed):
    last: datetime | None = state.value(None)


def listen(bus, beats, remembered, *, timers):
    for beat in beats:
        remembered.last = beat.at
        timers.set("silent", beat.at + timedelta(minutes=5))
        timers.set("gone", beat.at + timedelta(minutes=60))


def report(bus, name, at, remembered, *, timers):
    if name == "gone":
        remembered.clear()
    yield Silent(bus, at)


def no(row):
    raise ValueError("no")


buses = Pipeline(
    name="buses",
    source=KafkaSource("beats", Beat, event_time="at", watermark=Watermark(delay="1m")),
    operators=[
        Process(
            "watch", key_by="bus", state=Bus, function=listen, on_timer=report, emits=Silent, sink=DeltaSink("silent"),
        ),
        $more
    ],
    max_dead_letters=1.0,
)
"""

FAILING = """
        FlatMap("behind", function=no, input="watch", emits=Silent, sink=DeltaSink("behind"), on_error="dead_letter"),
"""


class TimedBuses:
    """The command line over a warehouse."""

    def __init__(self, home: Path) -> None:
        self.tidemark = Command(home=home, broker="nowhere:1", spark="local[1]")
        self.declare("")
        found = self.tidemark.context.pipeline("buses")
        self.disk = DiskPipeline(self.tidemark.warehouse, found, "beats", partitions=1)

    def declare(self, more: str) -> None:
        self.tidemark.declare(DECLARATION, file="buses.py", more=more)

    def run(self, *beats: tuple[str, int]) -> Any:
        """A checkpoint over heartbeats: (bus, minute)."""
        for bus, minute in beats:
            at = START + timedelta(minutes=minute)
            value = json.dumps({"bus": bus, "at": at.isoformat()}).encode()
            self.disk.send([(0, value, int(at.timestamp() * 1000))])
        return self("run", "buses", "--json").ok().json

    def __call__(self, *words: str) -> Any:
        with commands_over(self.disk):
            return self.tidemark(*words)

    def fired(self) -> list[tuple[str, int]]:
        """The rows of the sink: bus, minute of the timer."""
        newest = reads.get_checkpoint(self.tidemark.context, "buses")
        rows = ParquetFiles(str(self.tidemark.warehouse), {}).rows(newest.sinks["watch"].handle)
        return sorted((r["bus"], (r["since"] - START) // timedelta(minutes=1)) for r in rows)


@pytest.fixture
def line(tmp_path: Path) -> TimedBuses:
    """Three checkpoints; a is silent from minute 0 on, b until minute 20."""
    made = TimedBuses(tmp_path)
    made.run(("a", 0), ("b", 1))
    made.run(("b", 10))
    made.run(("b", 20), ("c", 20))
    return made


TIMERS = "SELECT bus, unnest(map_keys(timers)) AS name, unnest(map_values(timers)) AS at FROM {} ORDER BY 1, 2"


def timers(line: TimedBuses, relation: str = "watch") -> list[tuple[str, str, str]]:
    rows = line("state", "sql", "buses", TIMERS.format(relation), "--json").ok().json
    return [(r["bus"], r["name"], r["at"][11:16]) for r in rows]


def test_reads_show_timers_and_the_frontier(line: TimedBuses) -> None:
    assert line.fired() == [("a", 5), ("b", 6), ("b", 15)]
    assert timers(line) == [
        ("a", "gone", "01:00"),
        ("b", "gone", "01:20"),
        ("b", "silent", "00:25"),
        ("c", "gone", "01:20"),
        ("c", "silent", "00:25"),
    ]
    assert timers(line, "watch_at(1)")[0] == ("a", "gone", "01:00")
    shown = line("state", "show", "buses", "watch", "--key", "a", "--json").ok().json
    assert [list(dict(row["timers"])) for row in shown] == [["gone"]]
    query = "SELECT checkpoint, frontier, fired FROM checkpoint_states ORDER BY 1"
    found = line("state", "sql", "buses", query, "--json").ok().json
    assert [(row["frontier"][11:16], row["fired"]) for row in found] == [("00:00", 0), ("00:09", 2), ("00:19", 1)]
    told = line("state", "diff", "buses", "watch", "--from", "1", "--to", "3", "--inserts", "--json").ok().json
    assert {(r["key"]["bus"], r["change"]) for r in told["rows"]} == {
        ("a", "updated"),
        ("b", "updated"),
        ("c", "inserted"),
    }


def test_a_compaction_changes_no_timer_and_none_comes_back(line: TimedBuses) -> None:
    before = timers(line)
    line("compact", "buses", "--full").ok()
    line.run(("d", 21))
    assert [row for row in timers(line) if row[0] != "d"] == before
    line("verify", "buses").ok()
    line.run(("d", 90))
    due = {"a": [5, 60], "b": [6, 15, 25, 80], "c": [25, 80], "d": [26, 81]}
    assert line.fired() == [(bus, minute) for bus, minutes in due.items() for minute in minutes]
    assert {bus for bus, _, _ in timers(line)} == {"d"}


def test_a_restore_takes_the_sink_back_and_fires_again(line: TimedBuses) -> None:
    line("restore", "buses", "--checkpoint", "1", "--restore-sinks", "--execute").ok()
    assert line.fired() == []
    line.run()
    # The beats of the minutes 10 and 20 are one batch now, and the timers of the minutes 6 and 15 fire between them.
    assert line.fired() == [("a", 5), ("b", 6), ("b", 15)]


def test_a_restore_that_keeps_the_sink_fires_no_timer_twice(line: TimedBuses) -> None:
    before, fired = timers(line), line.fired()
    line("restore", "buses", "--checkpoint", "1", "--execute").ok()
    line.run()
    line.run()
    assert (timers(line), line.fired()) == (before, fired)
    line.run(("b", 30))
    assert line.fired() == sorted([*fired, ("b", 25), ("c", 25)])


def test_an_export_takes_timers_and_frontier_along(line: TimedBuses, tmp_path: Path) -> None:
    line("export", "buses", "--to", str(tmp_path / "out")).ok()
    told = json.loads((tmp_path / "out" / "export.json").read_text())["body"]
    assert told["clocks"]["watch"]["watermark_ms"] == int((START + timedelta(minutes=19)).timestamp() * 1000)
    other = TimedBuses(tmp_path / "other")
    other("import", str(tmp_path / "out"), "--as", "buses", "--execute").ok()
    assert timers(other) == timers(line)


def test_an_erasure_deletes_the_timers_of_a_key(line: TimedBuses) -> None:
    line("erase", "buses", "watch", "--key", "a", "--execute").ok()
    assert {bus for bus, _, _ in timers(line)} == {"b", "c"}
    line.run(("b", 90))
    assert ("a", 60) not in line.fired()


def test_letters_behind_timers_are_kept_and_their_redrive_is_refused(line: TimedBuses) -> None:
    line.declare(FAILING)
    line.disk.pipeline = line.tidemark.context.pipeline("buses")
    line.run(("b", 30))
    assert "process_failed" in line("dead-letters", "list", "buses", "behind").ok().out
    refused = line("dead-letters", "redrive", "buses", "behind", "--out-of-order", "--execute")
    refused.failed(2, "behind gets rows of the timers of watch", "backfill")
    line("dead-letters", "redrive", "buses", "watch", "--execute").failed(2, "its timers fire", "--out-of-order")


def test_a_patch_deletes_a_key_with_its_timers(line: TimedBuses, tmp_path: Path) -> None:
    table = tmp_path / "gone.parquet"
    pq.write_table(pa.table({"bus": ["b"]}), table)
    patch = ("savepoint", "patch", "buses", "chk-3", "--as", "p", "--delete", f"watch={table}", "--json")
    (planned,) = line(*patch).ok().json["states"]
    assert (planned["deleted"], planned["new"]) == (1, 0)
    made = line(*patch, "--execute").ok().json["checkpoint"]
    assert {bus for bus, _, _ in timers(line)} == {"a", "b", "c"}, "the live timeline keeps it"
    assert {bus for bus, _, _ in timers(line, f"watch_at({made.removeprefix('chk-')})")} == {"a", "c"}
