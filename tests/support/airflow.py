"""A context with in-memory twins of Kafka and Spark; store, coordinator, steps and errors are real."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemark.context import Context
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.job import CheckpointJob
from tidemark.declare.pipeline import Pipeline
from tidemark.environment import random_id
from tidemark.model.checkpoint.commits import Commit
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed, Verdict
from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.retention.findings import Flaws, Inspected
from tidemark.operations import reads
from tidemark.ports import SourceLog, StepListener
from tidemark.settings import load_settings
from tidemark.testing.twin.compute import GateFunction
from tidemark.testing.twin.memory import MemoryCompute, MemoryLog, MemoryTables

DAY = datetime(2024, 3, 1, tzinfo=UTC)
PLACE = TopicPartition("trips", 0)


class AirflowPipeline:
    """The state that outlives a task: the log and the tables. It also injects planned accidents."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.log.create("trips", 1)
        self.tables = MemoryTables()
        self.verdict = Verdict()
        self.accidents: list[tuple[str, BaseException]] = []
        self.steps: list[str] = []

    def open_context(self) -> "MemoryContext":
        """Replaces `context.open_context`."""
        return MemoryContext(self)

    def drive(self, bus: str | None, miles: int, day: int = 0) -> None:
        """Appends a trip at noon; `day` counts from `DAY`."""
        at = DAY + timedelta(days=day, hours=12)
        value = json.dumps({"bus": bus, "miles": miles, "ended_at": at.isoformat()}).encode()
        self.log.append(PLACE, value, timestamp_ms=int(at.timestamp() * 1000))

    def judge(self) -> GateFunction:
        """A gate that returns the current `verdict`."""
        return lambda plan, runs: self.verdict

    def crash(self, step: str, moment: str) -> None:
        """Raises the next accident if it is planned before this step; each accident happens once."""
        if moment == "before":
            self.steps.append(step)
            if self.accidents and self.accidents[0][0] == step:
                raise self.accidents.pop(0)[1]

    def checkpoints(self) -> list[Checkpoint]:
        """Completed checkpoints, oldest first."""
        return list(reversed(reads.list_checkpoints(self.open_context(), "trips")))

    def buses(self, checkpoint: Checkpoint | None = None) -> dict[str, tuple[int, int]]:
        """(trips, miles) per bus at a checkpoint, by default the newest."""
        context = self.open_context()
        found = checkpoint or self.checkpoints()[-1]
        rows = context.compute(context.pipeline("trips")).resolve(found, "buses")
        return {str(key[0]): (row["trips"], row["miles"]) for key, row in rows.items()}


class Unchecked:
    """A table check that never finds a flaw."""

    inspected = Inspected(segments=0, files=0, bytes=0)

    def __call__(self, segment: Segment, commits: Mapping[int, Commit]) -> Flaws:
        """Returns no flaws."""
        return {}


class MemoryContext(Context):
    """The real context without Kafka and Spark."""

    def __init__(self, world: AirflowPipeline) -> None:
        super().__init__(load_settings())
        self.world = world

    def coordinator(self, name: str, listener: StepListener | None = None) -> CheckpointCoordinator:
        """A coordinator over the real store that has the planned accidents."""
        return super().coordinator(name, listener or self.world.crash)

    def files_exist(self, handle: StateHandle) -> bool:
        """Looks up the files of a handle in the in-memory tables."""
        return self.world.tables.files_exist(handle)

    @property
    def log(self) -> SourceLog:
        """The in-memory log."""
        return self.world.log

    def compute(self, pipeline: Pipeline) -> MemoryCompute:
        """The in-memory twin of the engine."""
        world = self.world
        return MemoryCompute(pipeline=pipeline, log=world.log, tables=world.tables, judge=world.judge())

    def execute(self, pipeline: Pipeline, owned: OwnedAttempt, listener: StepListener | None = None) -> Sealed:
        """Runs the real sequence of steps over the twins."""
        job = CheckpointJob(
            compute=self.compute(pipeline),
            tables=self.world.tables,
            clock=self.clock,
            write_ids=random_id,
            listener=listener or self.world.crash,
            max_dead_letters=pipeline.max_dead_letters,
        )
        return job.execute(owned)

    def table_checks(self, *, content: bool = False) -> Any:
        """A check without findings: in-memory tables have no logs and files. `files_exist` looks for their files."""
        return Unchecked()
