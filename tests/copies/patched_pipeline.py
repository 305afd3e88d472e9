"""A ward whose checkpoints are patched, on disk; beside it plain dicts of what every checkpoint must hold."""

import copy
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.cli import Command
from tests.support.disk import DiskPipeline, ParquetFiles
from tests.support.disk_context import DiskContext
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.operations.savepoint_states import patch as patch_operations
from tidemark.operations.savepoint_states.patch import Patched, PatchRequest
from tidemark.readers.checkpoint_reader import read_checkpoint
from tidemark.sql.initial_state import given_columns
from tidemark.tables.delta_tables import arrow_schema
from tidemark.testing.twin.compute import MemoryCompute

DECLARATION = (Path(__file__).parent / "pipelines" / "ward.py").read_text()
NAME = "ward"
SENSORS = "abcdef"
START = datetime(2024, 5, 1, tzinfo=UTC)
State = dict[str, dict[str, Any]]
"""Per sensor what is remembered, in fields or accumulators."""
Reading = tuple[str, int, int | None]


def folded(state: State, reading: Reading) -> None:
    """One reading more, in a fold."""
    sensor, room, value = reading
    held = state.setdefault(sensor, {"n": 0, "average__count": 0, "rooms": [], "seen": []})
    held["n"] += 1
    held.setdefault("earliest", value)
    held["newest"] = value
    held["rooms"] = sorted({*held["rooms"], room})
    if value is not None:
        held["seen"] = [*held["seen"], value]
        held["average__count"] += 1
        for name, with_ in (("total", int.__add__), ("average__sum", int.__add__), ("least", min), ("most", max)):
            held[name] = value if held.get(name) is None else with_(held[name], value)
        for name, with_ in (("spread__lo", min), ("spread__hi", max)):
            held[name] = value if held.get(name) is None else with_(held[name], value)


def kept(state: State, reading: Reading) -> None:
    """One reading more, in the function."""
    sensor, room, value = reading
    held = state.setdefault(sensor, {"total": None, "notes": [], "by_room": {}, "marks": {}})
    if value is None:
        del state[sensor]
        return
    held["total"] = (held["total"] or 0) + value
    held["notes"] = [*held["notes"], value]
    held["by_room"][room] = held["by_room"].get(room, 0) + 1
    if value % 3 == 0:
        held["by_room"].pop(room)
        held["marks"][room] = value


def _folded_row(held: Mapping[str, Any]) -> dict[str, Any]:
    lo, hi, count = held.get("spread__lo"), held.get("spread__hi"), held["average__count"]
    told = {name: held.get(name) for name in ("n", "total", "least", "most", "earliest", "newest", "rooms", "seen")}
    average = held["average__sum"] / count if count and held.get("average__sum") is not None else None
    return told | {"average": average, "spread": None if lo is None or hi is None else hi - lo}


def _kept_row(held: Mapping[str, Any]) -> dict[str, Any]:
    return dict(held)


def _is_kept(held: Mapping[str, Any]) -> bool:
    return held["total"] is not None or any(held[name] for name in ("notes", "by_room", "marks"))


@dataclass
class PatchOracle:
    """What a checkpoint holds: how many readings it has seen, and per operator what is remembered."""

    seen: int = 0
    states: dict[str, State] = field(default_factory=lambda: {"sensors": {}, "kept": {}})

    def rows(self, uid: str) -> State:
        """Resolved rows by sensor."""
        if uid == "sensors":
            return {key: _folded_row(held) for key, held in self.states[uid].items()}
        return {key: _kept_row(held) for key, held in self.states[uid].items() if _is_kept(held)}


class PatchedPipeline:
    """The pipeline, its log, and an oracle per checkpoint."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance
        self.tidemark = Command(folder, "127.0.0.1:1", "sc://127.0.0.1:1")
        self.tidemark.declare(DECLARATION, file="ward.py", name=NAME)
        settings = self.tidemark.settings
        self.line = DiskPipeline(
            self.tidemark.warehouse, self.tidemark.context.pipeline(NAME), "readings", partitions=1
        )
        self.context = DiskContext(self.line, settings)
        self.readings: list[Reading] = []
        self.oracles: dict[int, PatchOracle] = {0: PatchOracle()}
        self.patches = 0

    def send(self, count: int) -> None:
        """Readings at random, an hour apart."""
        for _ in range(count):
            value = self.chance.choice([None, *range(-9, 60)])
            reading = (self.chance.choice(SENSORS), self.chance.randrange(3), value)
            at = START + timedelta(hours=len(self.readings))
            body = {"sensor": reading[0], "room": reading[1], "value": value, "at": at.isoformat()}
            self.line.send([(0, json.dumps(body).encode(), 0)])
            self.readings.append(reading)

    def checkpoint(self, timeline: str | None = None, count: int | None = None) -> Checkpoint:
        """Some readings more, and a checkpoint over all that its timeline has not read."""
        self.send(self.chance.randrange(1, 9) if count is None else count)
        done = self.line.checkpoint(timeline=timeline)
        oracle = copy.deepcopy(self.oracles[done.plan.parent or 0])
        for reading in self.readings[oracle.seen :]:
            folded(oracle.states["sensors"], reading)
            kept(oracle.states["kept"], reading)
        oracle.seen = len(self.readings)
        self.oracles[done.id] = oracle
        return done

    def rows(self, checkpoint: Checkpoint, uid: str, *, changed: bool = False) -> State:
        """What DuckDB reads; the memory twin must read the same."""
        found = read_checkpoint(str(self.line.root), checkpoint, uid).to_pylist(maps_as_pydicts="strict")
        files: Any = ParquetFiles(str(self.line.root), checkpoint.plan.schemas)
        compute = MemoryCompute(pipeline=self.line.pipeline, log=self.line.log, tables=files)
        twin = {key[0]: dict(row) for key, row in compute.resolve(checkpoint, uid).items()}
        by_duckdb = {row["sensor"]: row for row in found}
        assert by_duckdb == twin, f"{uid} at {checkpoint.plan.name}"
        left_out = {"sensor"} if changed else {"sensor", "_changed"}
        return {key: {k: v for k, v in row.items() if k not in left_out} for key, row in by_duckdb.items()}

    def check(self, checkpoint: Checkpoint) -> None:
        """Every operator holds what its oracle says, whoever reads it."""
        for uid in ("sensors", "kept"):
            assert self.rows(checkpoint, uid) == self.oracles[checkpoint.id].rows(uid), (uid, checkpoint.plan.name)
        self.rows(checkpoint, "fresh")

    def table(self, uid: str, rows: Sequence[Mapping[str, Any]], *, keys_only: bool = False) -> str:
        """A Parquet file of rows, in the columns that a patch wants."""
        columns = given_columns(self.line.pipeline.schemas()[uid])[: 1 if keys_only else None]
        schema = arrow_schema([(name, of.sql) for name, of in columns])
        path = self.folder / f"given-{self.patches}-{uid}-{'gone' if keys_only else 'set'}.parquet"
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=schema), path)
        return str(path)

    def corrections(self, uid: str) -> tuple[list[dict[str, Any]], list[str]]:
        """Rows to set, and keys to delete, at random."""
        keys = self.chance.sample([*SENSORS, "new", "other"], 5)
        cut = self.chance.randrange(1, 5)
        return [self._row(uid, key) for key in keys[:cut]], keys[cut:]

    def _row(self, uid: str, key: str) -> dict[str, Any]:
        def maybe(value: Any) -> Any:
            return None if self.chance.random() < 0.2 else value

        def number() -> int:
            return self.chance.randrange(-50, 50)

        def numbers() -> list[int]:
            return [number() for _ in range(self.chance.randrange(4))]

        row: dict[str, Any] = {"sensor": key}
        schema = self.line.pipeline.schemas()[uid]
        for name, of in given_columns(schema)[1:]:
            if of.kind == "map":
                row[name] = maybe({self.chance.randrange(4): number() for _ in range(self.chance.randrange(4))})
            elif of.kind == "list":
                row[name] = maybe(sorted({*numbers()}) if name == "rooms" else numbers())
            else:
                row[name] = maybe(abs(number()) if name == "n" else number())
        if uid == "sensors":
            row["average__count"] = None if row["average__sum"] is None else 1 + abs(number())
        return row

    def patch(self, source: Checkpoint, name: str) -> tuple[Checkpoint, Patched]:
        """Patches a checkpoint at random, and its oracle likewise."""
        self.patches += 1
        oracle, values, deletes = copy.deepcopy(self.oracles[source.id]), {}, {}
        for uid in ("sensors", "kept"):
            rows, gone = self.corrections(uid)
            values[uid] = self.table(uid, rows)
            deletes[uid] = self.table(uid, [{"sensor": k} for k in gone], keys_only=True)
            for key in gone:
                oracle.states[uid].pop(key, None)
            for row in rows:
                oracle.states[uid][row["sensor"]] = _set(uid, row)
        request = PatchRequest(
            pipeline=NAME, source=RestoreRequest(checkpoint=source.id), name=name, values=values, deletes=deletes
        )
        planned, done = (
            patch_operations.plan_patch(self.context, request),
            patch_operations.patch(self.context, request),
        )
        assert (planned.states, planned.checkpoint) == (done.states, None)
        assert done.checkpoint is not None
        self.oracles[done.checkpoint.id] = oracle
        return done.checkpoint, done


def _set(uid: str, row: Mapping[str, Any]) -> dict[str, Any]:
    held = {k: v for k, v in row.items() if k != "sensor"}
    if uid == "kept":
        return held | {name: held[name] or type(empty)(empty) for name, empty in _EMPTY.items()}
    # What is null is not known: the next record decides it.
    known = {k: v for k, v in held.items() if v is not None}
    return {"n": 0, "average__count": 0, "rooms": [], "seen": []} | known


_EMPTY: dict[str, Any] = {"notes": [], "by_room": {}, "marks": {}}
