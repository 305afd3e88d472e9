"""The pipeline of the DAG tests with real Delta tables, for commands that read state; Kafka and Spark are twins."""

from typing import Any

from tests.support.airflow import AirflowPipeline, MemoryContext
from tests.support.disk import ParquetFiles
from tidemark.context import Context
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.job import CheckpointJob
from tidemark.declare.pipeline import Pipeline
from tidemark.environment import random_id
from tidemark.model.checkpoint.manifest import Sealed
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.ports import StepListener
from tidemark.testing.twin.memory import MemoryCompute


class AirflowDiskPipeline(AirflowPipeline):
    """An `AirflowPipeline` with tables on disk."""

    def open_context(self) -> "AirflowDiskContext":
        """Replaces `context.open_context`."""
        return AirflowDiskContext(self)


class AirflowDiskContext(MemoryContext):
    """The real context without Kafka and Spark."""

    @property
    def files(self) -> Any:
        """The Parquet files that the twin of Spark writes."""
        return ParquetFiles(str(self.settings.warehouse), self.pipeline("trips").schemas())

    def files_exist(self, handle: StateHandle) -> bool:
        """Looks up the files of a handle in the real tables."""
        return Context.files_exist(self, handle)

    def table_checks(self, *, content: bool = False) -> Any:
        """Checks the real tables."""
        return Context.table_checks(self, content=content)

    def compute(self, pipeline: Pipeline) -> MemoryCompute:
        """The in-memory twin of the engine, which writes real files."""
        return MemoryCompute(pipeline=pipeline, log=self.world.log, tables=self.files, judge=self.world.judge())

    def execute(self, pipeline: Pipeline, owned: OwnedAttempt, listener: StepListener | None = None) -> Sealed:
        """Runs the real sequence of steps with real commits."""
        job = CheckpointJob(
            compute=self.compute(pipeline),
            tables=self.tables,
            clock=self.clock,
            write_ids=random_id,
            listener=listener or self.world.crash,
            max_dead_letters=pipeline.max_dead_letters,
        )
        return job.execute(owned)
