"""The world of the DAG tests with real Delta tables on disk, for verbs that read state; Kafka and Spark are twins."""

from dataclasses import replace
from typing import Any

from tests.airflow.world import MemoryRuntime, World
from tests.cli.disk_line import ParquetFiles
from tidemark.adapters.memory import MemoryCompute
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.engine.job import CheckpointJob
from tidemark.faults import no_crash
from tidemark.model.checkpoint import Sealed
from tidemark.pipeline import Pipeline
from tidemark.ports import CrashPoints
from tidemark.wiring.core import random_id


class DiskWorld(World):
    """As `World`, with tables on disk."""

    def open_runtime(self) -> "DiskRuntime":
        """Stands in for `wiring.open_runtime`."""
        return DiskRuntime(self)


class DiskRuntime(MemoryRuntime):
    """The real runtime, less Kafka and Spark."""

    @property
    def files(self) -> Any:
        """Where the twin of Spark writes."""
        return ParquetFiles(str(self.settings.warehouse), self.pipeline("trips").schemas())

    def coordinator(self, name: str, crash: CrashPoints | None = None) -> CheckpointCoordinator:
        """Over the memory log; the store and the tables are the real ones."""
        return replace(super().coordinator(name, crash), files_exist=self._files_exist)

    def compute(self, pipeline: Pipeline) -> MemoryCompute:
        """The engine's twin."""
        return MemoryCompute(pipeline=pipeline, log=self.world.log, tables=self.files, judge=self.world.judge())

    def execute(self, pipeline: Pipeline, owned: OwnedAttempt, crash: CrashPoints | None = None) -> Sealed:
        """The real order of steps and the real commits."""
        job = CheckpointJob(
            compute=self.compute(pipeline),
            tables=self.tables,
            clock=self.clock,
            write_ids=random_id,
            crash=crash or self.world.crash or no_crash,
            max_dead_letters=pipeline.max_dead_letters,
        )
        return job.execute(owned)
