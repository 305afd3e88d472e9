"""Windows and timers that a patch, a transform or a bootstrap gives close and fire as if the records had made them."""

import copy
import json
import os
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext, commands_over
from tests.support.scale import SCALE
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.errors import UsageError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.operations.savepoint_states import patch as patches
from tidemark.operations.savepoint_states import transform as transforms
from tidemark.operations.savepoint_states.patch import PatchRequest
from tidemark.operations.savepoint_states.transform import TransformRequest
from tidemark.readers.checkpoint_reader import read_checkpoint
from tidemark.readers.sink_reader import read_sink
from tidemark.sql.initial_state import given_columns
from tidemark.tables.delta_tables import arrow_schema

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
START = datetime(2024, 5, 1, tzinfo=UTC)
SIZE, DELAY, QUIET = timedelta(hours=6), timedelta(hours=2), timedelta(hours=9)
SENSORS = "abcd"
NOWHERE = ("127.0.0.1:1", "sc://127.0.0.1:1")
DECLARATION = '''
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Process, Session, Sliding, Tumbling, Watermark, state


@dataclass(frozen=True)
class Reading:
    """One record."""

    sensor: str
    value: int
    at: datetime


class Sensor(state.Keyed):
    """Per sensor and window."""

    n: int = state.count()
    total: int | None = state.sum("value")


class Kept(state.Keyed):
    """Per sensor."""

    total: int = state.value(0)


@dataclass(frozen=True)
class Quiet:
    """A sensor that is quiet."""

    sensor: str
    total: int
    at: datetime


def keep(sensor: str, readings: Iterator[Reading], kept: Kept, *, timers: Any) -> None:
    for reading in readings:
        kept.total += reading.value
        timers.set("quiet", reading.at + timedelta(hours=9))


def report(sensor: str, name: str, at: datetime, kept: Kept) -> Iterator[Quiet]:
    yield Quiet(f"{sensor} {name}", kept.total, at)


timed = Pipeline(
    name="$name",
    source=KafkaSource("readings", Reading, event_time="at", watermark=Watermark(delay="2h")),
    operators=[
        Fold("windows", key_by="sensor", state=Sensor, window=Tumbling("6h"), sink=DeltaSink("closed")),
        Process(
            "quiet", key_by="sensor", state=Kept, function=keep, on_timer=report, emits=Quiet, sink=DeltaSink("quiet")
        ),
        Fold("sliding", key_by="sensor", state=Sensor, window=Sliding("6h", every="2h")),
        Fold("sessions", key_by="sensor", state=Sensor, window=Session("2h")),
    ],
)
'''
Reading = tuple[str, int, datetime]
Rows = list[dict[str, Any]]


@dataclass
class Model:
    """A brute force of both operators: what is open or set, and what has been emitted."""

    frontier: datetime | None = None
    windows: dict[tuple[str, datetime], dict[str, Any]] = field(default_factory=dict)
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)
    closed: Rows = field(default_factory=list)
    quiet: Rows = field(default_factory=list)

    def checkpoint(self, readings: list[Reading]) -> None:
        """Applies the records in order of time, then moves the frontier."""
        before, after = self.frontier, max([*([self.frontier] if self.frontier else []), readings[-1][2] - DELAY])
        for sensor, value, at in readings:
            self._fire(sensor, min(at, after))
            start = START + (at - START) // SIZE * SIZE
            row = self.windows.setdefault((sensor, start), {"n": 0, "total": None})
            row["n"], row["total"] = row["n"] + 1, (row["total"] or 0) + value
            kept = self.kept.setdefault(sensor, {"total": 0, "timers": {}})
            kept["total"] += value
            due = at + QUIET
            kept["timers"]["quiet"] = due if before is None or due > before else before + timedelta(milliseconds=1)
        for sensor in self.kept:
            self._fire(sensor, after)
        for sensor, start in [place for place in self.windows if place[1] + SIZE <= after]:
            row = self.windows.pop((sensor, start))
            self.closed.append({"sensor": sensor, "window_start": start, "window_end": start + SIZE, **row})
        self.frontier = after

    def _fire(self, sensor: str, until: datetime) -> None:
        kept = self.kept.get(sensor, {"timers": {}})
        for at, name in sorted((at, name) for name, at in kept["timers"].items() if at <= until):
            del kept["timers"][name]
            self.quiet.append({"sensor": f"{sensor} {name}", "total": kept["total"], "at": at})

    def states(self) -> dict[str, Rows]:
        """The state of both operators."""
        windows = [
            {"sensor": sensor, "window_start": start, "window_end": start + SIZE, **row}
            for (sensor, start), row in self.windows.items()
        ]
        return {"windows": windows, "quiet": [{"sensor": sensor, **kept} for sensor, kept in self.kept.items()]}


class Timed:
    """The pipeline on disk, and a model per checkpoint."""

    def __init__(self, folder: Path, chance: random.Random, name: str = "timed") -> None:
        self.folder, self.chance, self.name = folder, chance, name
        self.tidemark = Command(folder, *NOWHERE)
        self.tidemark.declare(DECLARATION, file="timed.py", name=name)
        declared = self.tidemark.context.pipeline(name)
        self.line = DiskPipeline(self.tidemark.warehouse, declared, "readings", partitions=1)
        self.context = DiskContext(self.line, self.tidemark.settings)
        self.readings: list[Reading] = []
        self.models: dict[int, tuple[int, Model]] = {0: (0, Model())}

    def send(self) -> None:
        """Some readings, each up to two hours after the one before."""
        for _ in range(self.chance.randrange(1, 7)):
            last = self.readings[-1][2] if self.readings else START
            at = last + timedelta(minutes=self.chance.randrange(1, 120))
            self.readings.append((self.chance.choice(SENSORS), self.chance.randrange(9), at))
            sensor, value, _ = self.readings[-1]
            body = {"sensor": sensor, "value": value, "at": at.isoformat()}
            self.line.send([(0, json.dumps(body).encode(), 0)])

    def checkpoint(self, timeline: str | None = None) -> Checkpoint:
        """Some readings more, and a checkpoint over all that its timeline has not read."""
        self.send()
        done = self.line.checkpoint(timeline=timeline)
        read, model = copy.deepcopy(self.models[done.plan.parent or 0])
        model.checkpoint(self.readings[read:])
        self.models[done.id] = len(self.readings), model
        return done

    def check(self, done: Checkpoint) -> None:
        """States and sinks are those of the model."""
        model = self.models[done.id][1]
        for uid, expected in model.states().items():
            found = read_checkpoint(str(self.line.root), done, uid).to_pylist(maps_as_pydicts="strict")
            plain = [{k: v for k, v in row.items() if k != "_changed"} for row in found]
            assert ordered(plain) == ordered(expected), (uid, done.plan.name)
        for uid, expected in (("windows", model.closed), ("quiet", model.quiet)):
            rows = read_sink(str(self.line.root), done.sinks[uid]).to_pylist()
            names = expected[0] if expected else {}
            assert ordered([{name: row[name] for name in names} for row in rows]) == ordered(expected), uid

    def table(self, uid: str, rows: Rows, *, keys_only: bool = False) -> str:
        """A Parquet file of rows, in the columns that a patch and a bootstrap want."""
        schema = self.line.pipeline.schemas()[uid]
        columns = given_columns(schema)[: len(schema.keys) if keys_only else None]
        path = self.folder / f"given-{uid}-{self.chance.random()}.parquet"
        wanted = arrow_schema([(name, of.sql) for name, of in columns])
        pq.write_table(pa.Table.from_pylist([{n: row[n] for n in wanted.names} for row in rows], schema=wanted), path)
        return str(path)

    def patched(self, of: Checkpoint, name: str) -> Checkpoint:
        """Sets and deletes at random, in the model as well."""
        read, model = copy.deepcopy(self.models[of.id])
        frontier = model.frontier or START
        first = START + ((frontier - START) // SIZE) * SIZE
        places = [(sensor, first + SIZE * n) for sensor in [*SENSORS, "new"] for n in range(3)]
        set_, gone = set(self.chance.sample(places, 5)), set(self.chance.sample(places, 3))
        for place in set_:
            model.windows[place] = {"n": self.chance.randrange(1, 9), "total": self.chance.randrange(99)}
        for place in gone - set_:
            model.windows.pop(place, None)
        sensors = self.chance.sample([*SENSORS, "new"], 2)
        for sensor in sensors:
            times = {n: frontier + timedelta(minutes=self.chance.randrange(1, 999)) for n in ("quiet", "more")}
            model.kept[sensor] = {"total": self.chance.randrange(99), "timers": times}
        states = model.states()
        values = {
            "windows": self.table(
                "windows", [r for r in states["windows"] if (r["sensor"], r["window_start"]) in set_]
            ),
            "quiet": self.table("quiet", [r for r in states["quiet"] if r["sensor"] in sensors]),
        }
        keys = [{"sensor": s, "window_start": at, "window_end": at + SIZE} for s, at in gone - set_]
        deletes = {"windows": self.table("windows", keys, keys_only=True)} if keys else {}
        request = PatchRequest(
            pipeline=self.name, source=RestoreRequest(checkpoint=of.id), name=name, values=values, deletes=deletes
        )
        done = patches.patch(self.context, request).checkpoint
        assert done is not None
        self.models[done.id] = read, model
        return done

    def transformed(self, of: Checkpoint, name: str) -> Checkpoint:
        """Leaves a sensor out, raises counts and totals, and moves timers, in the model as well."""
        read, model = copy.deepcopy(self.models[of.id])
        model.windows = {
            place: {**row, "n": row["n"] + (row["n"] % 2) * 10}
            for place, row in model.windows.items()
            if place[0] != "a"
        }
        hour = timedelta(hours=1)
        for kept in model.kept.values():
            kept["timers"] = {timer: at + hour for timer, at in kept["timers"].items()}
        moved = "map_from_entries([{'key': e.key, 'value': e.value + INTERVAL 1 HOUR} FOR e IN map_entries(timers)])"
        request = TransformRequest(
            pipeline=self.name,
            source=RestoreRequest(checkpoint=of.id),
            fork=name,
            queries={
                "windows": "SELECT * REPLACE (n + n % 2 * 10 AS n) FROM windows WHERE sensor <> 'a'",
                "quiet": f"SELECT * REPLACE ({moved} AS timers) FROM quiet",
            },
            key_groups=self.chance.choice([None, 3, 512]),
        )
        found = transforms.transform(self.context, request)
        assert found.refused == 0, found
        done = found.checkpoint
        assert done is not None
        self.models[done.id] = read, model
        return done

    def rows_in_parts(self, done: Checkpoint) -> dict[str, list[str]]:
        """The states whose rows are stored in parts, which no query can write."""
        root = str(self.line.root)
        return {
            uid: ordered(read_checkpoint(root, done, uid).drop_columns(["_changed"]).to_pylist())
            for uid in ("sliding", "sessions")
        }


def ordered(rows: list[Mapping[str, Any]] | Rows) -> list[str]:
    """Rows in any order."""
    return sorted(json.dumps(dict(row), default=datetime.isoformat, sort_keys=True) for row in rows)


@pytest.fixture
def timed(tmp_path: Path) -> Timed:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    return Timed(tmp_path, random.Random(SEED))


@pytest.mark.parametrize("n", range(3 * SCALE))
def test_windows_and_timers_of_a_patch_close_and_fire(tmp_path: Path, n: int) -> None:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    timed = Timed(tmp_path, random.Random(f"{SEED} {n}"))
    made = [timed.checkpoint() for _ in range(4)]
    timed.check(made[-1])
    for turn in ("one", "two"):
        made = [timed.patched(timed.chance.choice(made), turn)]
        timed.check(made[-1])
        for _ in range(4):
            for uid in ("windows", "quiet"):
                how = timed.chance.choice([None, False, True])
                if how is not None:
                    timed.line.compact(uid, full=how, timeline=turn)
            made.append(timed.checkpoint(turn))
            timed.check(made[-1])


@pytest.mark.parametrize("n", range(3 * SCALE))
def test_windows_and_timers_of_a_transform_close_and_fire(tmp_path: Path, n: int) -> None:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    timed = Timed(tmp_path, random.Random(f"{SEED} transform {n}"))
    made = [timed.checkpoint() for _ in range(4)]
    source = timed.chance.choice(made)
    for turn in ("one", "two"):
        made = [timed.transformed(source, turn)]
        timed.check(made[-1])
        assert timed.rows_in_parts(made[-1]) == timed.rows_in_parts(source), "in other key groups, or by reference"
        for _ in range(4):
            for uid in ("windows", "quiet", "sliding", "sessions"):
                how = timed.chance.choice([None, False, True])
                if how is not None:
                    timed.line.compact(uid, full=how, timeline=turn)
            made.append(timed.checkpoint(turn))
            timed.check(made[-1])
        source = timed.chance.choice(made)


def test_a_transform_into_what_is_past_or_no_window_is_refused(timed: Timed) -> None:
    for _ in range(6):
        last = timed.checkpoint()
    open_windows = len(timed.models[last.id][1].windows)

    def planned(uid: str, query: str) -> dict[str, int]:
        request = TransformRequest(
            pipeline="timed", source=RestoreRequest(checkpoint=last.id), fork="no", queries={uid: query}
        )
        return {r.why: r.rows for r in transforms.plan_transform(timed.context, request).states[uid].refused}

    earlier = "window_start - INTERVAL 90 DAY AS window_start, window_end - INTERVAL 90 DAY AS window_end"
    found = planned("windows", f"SELECT * REPLACE ({earlier}) FROM windows")
    assert sum(found.values()) == open_windows
    assert all("is closed" in why for why in found)
    found = planned("windows", "SELECT * REPLACE (window_end + INTERVAL 1 HOUR AS window_end) FROM windows")
    assert sum(found.values()) == open_windows
    assert all("is none of its tumbling windows" in why for why in found)
    past = "SELECT * REPLACE (MAP {'quiet': TIMESTAMPTZ '2001-01-01 00:00:00+00'} AS timers) FROM quiet"
    (why,) = planned("quiet", past)
    assert "would never fire" in why
    for uid in ("sliding", "sessions"):
        with pytest.raises(UsageError, match="stored in parts"):
            planned(uid, f"FROM {uid}")


def test_a_bootstrap_goes_on_with_the_windows_and_timers_that_it_is_given(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        last = timed.checkpoint()
    read, model = timed.models[last.id]
    tables = {uid: timed.table(uid, rows) for uid, rows in model.states().items()}
    other = Timed(timed.folder / "other", timed.chance, "other")
    other.line.log, other.line.clock.ms = timed.line.log, time.time_ns() // 1_000_000
    monkeypatch.setattr("tidemark.context.Context.log", property(lambda context: timed.line.log))
    given = [f"{uid}={path}" for uid, path in tables.items()]
    made = other.tidemark("bootstrap", "other", *given, "--starts", f"readings:0={read}", "--execute", "--json").ok()
    number = int(made.json["checkpoint"].removeprefix("chk-"))
    # The frontier is no state: nothing is late for the first checkpoint, and what is due by then closes and fires.
    begun = Model(windows=copy.deepcopy(model.windows), kept=copy.deepcopy(model.kept))
    other.readings, other.models[number] = list(timed.readings), (read, begun)
    for _ in range(4):
        other.check(other.checkpoint())


Closed = Iterator[tuple[str, Rows, str]]


def _refused(model: Model) -> Closed:
    frontier = model.frontier or START
    ended = START + ((frontier - START) // SIZE - 1) * SIZE
    row = {"sensor": "a", "n": 1, "total": 1}
    yield "windows", [row | {"window_start": ended, "window_end": ended + SIZE}], "is closed"
    off = frontier + timedelta(minutes=7)
    yield "windows", [row | {"window_start": off, "window_end": off + SIZE}], "is none of its tumbling windows"
    late = START + (frontier - START) // SIZE * SIZE + SIZE
    yield "windows", [row | {"window_start": late, "window_end": late + SIZE * 2}], "is none of its tumbling windows"
    kept = {"sensor": "a", "total": 1}
    yield "quiet", [kept | {"timers": {"quiet": frontier}}], "would never fire"
    inexact = frontier + timedelta(microseconds=1001)
    yield "quiet", [kept | {"timers": {"quiet": inexact}}], "no time in whole milliseconds"
    yield "sliding", [row | {"window_start": late, "window_end": late + SIZE}], "stored in parts"
    yield "sessions", [row | {"window_start": late, "window_end": late + SIZE}], "stored in parts"


def test_a_patch_of_what_is_past_or_no_window_is_refused_and_nothing_is_written(timed: Timed) -> None:
    for _ in range(6):
        last = timed.checkpoint()
    before = timed.tidemark.objects("timed")
    for uid, rows, why in _refused(timed.models[last.id][1]):
        values = {uid: timed.table(uid, rows)}
        request = PatchRequest(
            pipeline="timed", source=RestoreRequest(checkpoint=last.id), name="no", values=values, deletes={}
        )
        with pytest.raises(UsageError, match=why):
            patches.patch(timed.context, request)
    with commands_over(timed.line):
        table = timed.table("sliding", [])
        timed.tidemark("bootstrap", "timed", f"sliding={table}", "--starts", "earliest").failed(2, "stored in parts")
    assert timed.tidemark.objects("timed") == before
