"""Reads the batch of a plan: reads and decodes it once, counts it, and caches what several queries need.

The cost of a small checkpoint is mostly its number of queries. So if the first operator is a fold that needs only the
records, the query that reads them also folds, counts and writes them (adr/0021).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from tidemark.declare.operators import Fold
from tidemark.declare.pipeline import Pipeline
from tidemark.engine.fold.fold import FoldTask, write_fold
from tidemark.engine.read.batch_stats import BatchStats, count_batch
from tidemark.engine.read.frames import decode
from tidemark.engine.read.observed_batch_stats import ObservedBatchStats
from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.engine.write.parquet_writer import Observed, RunFolder
from tidemark.model.checkpoint.manifest import WrittenRun
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.sql import limited_schema
from tidemark.model.retention.erasure import BlockedKey


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """The records in the ranges of a plan.

    Attributes:
        inputs: decoded records, per input with a range that is not empty.
        tally: statistics of all inputs.
        written: runs that were written during the read, by uid.
        is_kept: whether another query finds the same records without reading them again.
    """

    inputs: Mapping[str, DataFrame] = field(default_factory=dict)
    tally: BatchStats = field(default_factory=BatchStats)
    written: Mapping[str, WrittenRun] = field(default_factory=dict)
    is_kept: bool = True

    def release(self) -> None:
        """Releases cached frames."""
        if self.is_kept:
            with translate_spark_errors():
                for records in self.inputs.values():
                    records.unpersist()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReader:
    """Reads the batch of one plan.

    Attributes:
        pipeline: the declaration.
        warehouse: the target of runs, and the session.
        plan: the plan.
        raw: the records of an input's ranges, as Spark's Kafka source returns them; an action reads them.
        blocked: keys whose records are dropped.
        folders: the folder of each run by uid, relative to the warehouse; without it no run is written during the read.
    """

    pipeline: Pipeline
    warehouse: SparkWarehouse
    plan: CheckpointPlan
    raw: Callable[[str], DataFrame]
    blocked: Sequence[BlockedKey]
    folders: Mapping[str, str]

    def read(self) -> DecodedBatch:
        """Reads the batch.

        Raises:
            DataLostError, BrokerError, EngineError: see `ports.Compute`.
            StateOverflowError: raised by the fold that runs during the read.
        """
        first = self._first_fold()
        kept = first is None or len(self.pipeline.uids) > 1 or self.pipeline.gate is not None
        with translate_spark_errors():
            inputs = {name: self._decoded(name) for name in self.pipeline.inputs if self.plan.ranges_of(name)}
            if kept:
                inputs = {name: records.persist() for name, records in inputs.items()}
        try:
            if first is not None and inputs:
                return self._in_passing(first, inputs, kept=kept)
            with translate_spark_errors():
                return DecodedBatch(inputs, count_batch(inputs, self.pipeline, self.plan, self.blocked))
        except BaseException:
            DecodedBatch(inputs, is_kept=kept).release()
            raise

    def _decoded(self, name: str) -> DataFrame:
        return decode(self.raw(name), self.pipeline, self.plan, name)

    def _first_fold(self) -> str | None:
        """Returns the first operator if it is a fold that needs only the few records of the only input."""
        uid, (name, *others) = self.pipeline.uids[0], self.pipeline.inputs
        is_fold = any(isinstance(o, Fold) and o.uid == uid for o in self.pipeline.operators)
        if others or self.blocked or not is_fold or uid not in self.folders or self.plan.redrive_of(uid) is not None:
            return None
        schema = self.plan.schemas[uid]
        needs_more = schema.joins or limited_schema(schema) is not None
        return uid if not needs_more and ObservedBatchStats(self.pipeline, self.plan, name).is_small else None

    def _in_passing(self, uid: str, inputs: Mapping[str, DataFrame], *, kept: bool) -> DecodedBatch:
        ((name, records),), observed = inputs.items(), Observed()
        passing = ObservedBatchStats(self.pipeline, self.plan, name)
        task = FoldTask(
            plan=self.plan,
            uid=uid,
            now=Now(event_time_ms=None, logical_time_ms=self.plan.logical_time_ms),
            at_most=passing.at_most,
            folder=RunFolder(path=f"{self.warehouse.root}/{self.folders[uid]}", arrow=self.warehouse.arrow),
        )
        with translate_spark_errors():
            shown = passing.on(records, observed)
        run = write_fold(shown, task, observed)
        with translate_spark_errors():
            tally = passing.result(observed)
            # Each row of the run comes from a record that was applied.
            if tally is None or tally.applied[uid] < run.rows:
                tally = count_batch(inputs, self.pipeline, self.plan)
        return DecodedBatch(inputs, tally, {uid: run}, is_kept=kept)
