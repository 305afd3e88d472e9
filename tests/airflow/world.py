"""A runtime whose Kafka and Spark are the memory twins; store, coordinator, steps and errors are the real ones."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemark.adapters.memory import MemoryCompute, MemoryLog, MemoryTables
from tidemark.adapters.memory_compute import Judge
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.engine.job import CheckpointJob
from tidemark.faults import no_crash
from tidemark.model.checkpoint import Checkpoint, Sealed, Verdict
from tidemark.model.offsets import TopicPartition
from tidemark.pipeline import Pipeline
from tidemark.ports import CrashPoints
from tidemark.ports.records import RecordReader
from tidemark.settings import load_settings
from tidemark.wiring import Runtime
from tidemark.wiring.core import random_id

DAY = datetime(2024, 3, 1, tzinfo=UTC)
PLACE = TopicPartition("trips", 0)


class Killed(BaseException):
    """The process is gone."""


class World:
    """What outlives a task: the log, the tables, the store on disk; and the accidents that are due."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.log.create("trips", 1)
        self.tables = MemoryTables()
        self.verdict = Verdict()
        self.accidents: list[tuple[str, BaseException]] = []
        self.steps: list[str] = []

    def open_runtime(self) -> "MemoryRuntime":
        """Stands in for `wiring.open_runtime`."""
        return MemoryRuntime(self)

    def drive(self, bus: str | None, miles: int, day: int = 0) -> None:
        """Appends a trip at noon of a day."""
        at = DAY + timedelta(days=day, hours=12)
        value = json.dumps({"bus": bus, "miles": miles, "ended_at": at.isoformat()}).encode()
        self.log.append(PLACE, value, timestamp_ms=int(at.timestamp() * 1000))

    def judge(self) -> Judge:
        """The gate of the moment."""
        return lambda plan, runs: self.verdict

    def crash(self, step: str, moment: str) -> None:
        """Raises the accident that is due before a step, once."""
        if moment == "before":
            self.steps.append(step)
            if self.accidents and self.accidents[0][0] == step:
                raise self.accidents.pop(0)[1]

    def checkpoints(self) -> list[Checkpoint]:
        """Completed ones, oldest first."""
        return list(reversed(self.open_runtime().checkpoints("trips")))

    def buses(self, checkpoint: Checkpoint | None = None) -> dict[str, tuple[int, int]]:
        """(trips, miles) per bus."""
        runtime = self.open_runtime()
        found = checkpoint or self.checkpoints()[-1]
        rows = runtime.compute(runtime.pipeline("trips")).resolve(found, "buses")
        return {str(key[0]): (row["trips"], row["miles"]) for key, row in rows.items()}


class MemoryRuntime(Runtime):
    """The real runtime, less Kafka and Spark."""

    def __init__(self, world: World) -> None:
        super().__init__(load_settings())
        self.world = world

    def coordinator(self, name: str, crash: CrashPoints | None = None) -> CheckpointCoordinator:
        """Over the memory log; the store is the real one."""
        from dataclasses import replace

        made = super().coordinator(name, crash or self.world.crash)
        return replace(made, log=self.world.log, files_exist=self.world.tables.files_exist)

    @property
    def records(self) -> RecordReader:
        """Of the memory log."""
        return self.world.log

    def compute(self, pipeline: Pipeline) -> MemoryCompute:
        """The engine's twin."""
        world = self.world
        return MemoryCompute(pipeline=pipeline, log=world.log, tables=world.tables, judge=world.judge())

    def execute(self, pipeline: Pipeline, owned: OwnedAttempt, crash: CrashPoints | None = None) -> Sealed:
        """The real order of steps, over the twins."""
        job = CheckpointJob(
            compute=self.compute(pipeline),
            tables=self.world.tables,
            clock=self.clock,
            write_ids=random_id,
            crash=crash or self.world.crash or no_crash,
            max_dead_letters=pipeline.max_dead_letters,
        )
        return job.execute(owned)

    def verify_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Tables in memory have no logs and files to check; `coordinator` looks for their files."""

    def report_offsets(self, *_: Any) -> None:
        """No group is named."""
