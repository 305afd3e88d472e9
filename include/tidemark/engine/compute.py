"""The Spark implementation of `ports.Compute`: read once, decode once, keep, and let every operator use it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidemark.engine.broadcasting import broadcast_values, copied, copied_frame
from tidemark.engine.failures import NumericOverflow, overflow, translated
from tidemark.engine.files import bounded_columns
from tidemark.engine.frames import dead_letters, decoded, folded
from tidemark.engine.judging import Candidate, judge
from tidemark.engine.overflow import overflowing_key
from tidemark.engine.source import KafkaOptions, read_ranges
from tidemark.engine.tally import Tally, counted
from tidemark.engine.writing import write_rows
from tidemark.errors import DataLostError
from tidemark.model.checkpoint import BatchFacts, Verdict
from tidemark.model.plan import CheckpointPlan
from tidemark.model.ttl import Now
from tidemark.pipeline import Pipeline
from tidemark.ports import ForeignTables, Log, UidCounts, WrittenRun


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCompute:
    """Executes plans of one pipeline in one Spark session.

    Attributes:
        spark: the session of this attempt, by `session.open_session`.
        pipeline: the declaration.
        warehouse: root of all tables, as Spark and this process both see it.
        kafka: how to reach the brokers.
        log: answers with today's topic ids, which are compared with the plan's after the read (J9); None = not asked.
        foreign: tables that broadcast states copy; None where there are none.
    """

    spark: SparkSession
    pipeline: Pipeline
    warehouse: str
    kafka: KafkaOptions
    log: Log | None = None
    foreign: ForeignTables | None = None

    def read(self, plan: CheckpointPlan) -> "SparkBatch":
        """Reads exactly the plan's ranges, and the planned versions of foreign tables; see `ports.Compute`."""
        copies: dict[str, list[dict[str, Any]]] = {}
        if plan.copies and self.foreign is not None:
            copies = copied(self.spark, self.warehouse, self.pipeline, plan, self.foreign)
        with translated():
            inputs = {
                name: decoded(read_ranges(self.spark, plan, name, self.kafka), self.pipeline, plan, name).persist()
                for name in self.pipeline.inputs
                if plan.ranges_of(name)
            }
        try:
            with translated():
                tally = counted(inputs, self.pipeline, plan)
            if inputs:
                self._refuse_recreated(plan)
        except BaseException:
            with translated():
                for records in inputs.values():
                    records.unpersist()
            raise
        return SparkBatch(self, plan, inputs, tally, copies)

    def _refuse_recreated(self, plan: CheckpointPlan) -> None:
        """Spark knows no topic ids: it reads the old range of a new topic of the same name without a complaint."""
        if self.log is None:
            return
        now = self.log.topic_ids(plan.topic_ids)
        for topic, planned in plan.topic_ids.items():
            if now.get(topic) != planned:
                raise DataLostError(
                    f"data lost: topic {topic} was deleted or recreated while it was read: its id was {planned},"
                    f" now it is {now.get(topic, 'none')}",
                    safe="every completed checkpoint is intact; nothing was published.",
                    next="run the pipeline again: its planner names the exact gap, and --accept-loss records it.",
                )


class SparkBatch:
    """The decoded records of one attempt; see `ports.Batch`."""

    facts: BatchFacts
    counts: Mapping[str, UidCounts]

    def __init__(
        self,
        compute: SparkCompute,
        plan: CheckpointPlan,
        inputs: Mapping[str, DataFrame],
        tally: Tally,
        copies: Mapping[str, Sequence[Mapping[str, Any]]],
    ) -> None:
        self._compute = compute
        self._plan = plan
        self._inputs = dict(inputs)
        self._runs: dict[str, list[str]] = {}
        self._broadcast: dict[str, dict[Any, Any]] | None = None
        self.facts = tally.facts(plan)
        self._copies = copies
        self.counts = tally.counts(compute.pipeline) | _of_tables(compute.pipeline, copies)

    def write_run(self, uid: str, folder: str) -> WrittenRun:
        """Folds the batch by the operator's key, or takes a table's copy, and writes the files; see `ports.Batch`."""
        done = self._copy(uid, folder) if uid in self._copies else self._fold(uid, folder)
        self._runs[uid] = [f"{folder.rpartition('/')[0]}/{f.path}" for f in done.files]
        return done

    def broadcast(self) -> dict[str, dict[Any, Any]]:
        """Per uid of a broadcast state its records by key, as of this barrier: asked once their runs are written."""
        if self._broadcast is None:
            compute = self._compute
            self._broadcast = broadcast_values(
                compute.spark, compute.warehouse, compute.pipeline, self._plan, self._runs, self._now
            )
        return self._broadcast

    def write_dead_letters(self, uid: str, folder: str) -> WrittenRun:
        """Writes the operator's dead letters in order of their positions; see `ports.Batch`."""
        schema = self._plan.schemas[uid]
        letters = dead_letters(self._records(uid), schema)
        with translated():
            order = ["topic", "partition", "offset"]
            return self._written(letters, order, folder, self.counts[uid].dead_lettered, order)

    def judge(self, runs: Mapping[str, Sequence[str]]) -> Verdict:
        """Runs the pipeline's gate on the candidate; see `ports.Batch`."""
        gate = self._compute.pipeline.gate
        if gate is None or not self._inputs:
            return Verdict()
        candidate = Candidate(
            session=self._compute.spark,
            warehouse=self._compute.warehouse,
            plan=self._plan,
            sources=tuple(self._compute.pipeline.sources),
            records=self._inputs,
            runs=runs,
            now=self._now,
        )
        with translated():
            return judge(gate, candidate)

    @property
    def _now(self) -> Now:
        return Now(event_time_ms=self.facts.watermark_ms, logical_time_ms=self._plan.logical_time_ms)

    def close(self) -> None:
        """Releases what was cached."""
        with translated():
            for records in self._inputs.values():
                records.unpersist()

    def _fold(self, uid: str, folder: str) -> WrittenRun:
        schema, records = self._plan.schemas[uid], self._records(uid)
        try:
            with translated():
                return self._sorted(uid, folded(records, schema, self._plan), folder)
        except NumericOverflow as error:
            with translated():
                key = overflowing_key(records, schema)
            raise overflow(key or error.what) from error

    def _copy(self, uid: str, folder: str) -> WrittenRun:
        with translated():
            return self._sorted(uid, copied_frame(self._compute.spark, self._plan.schemas[uid], self._copies[uid]), folder)

    def _sorted(self, uid: str, run: DataFrame, folder: str) -> WrittenRun:
        schema = self._plan.schemas[uid]
        order = ["_key_group", *(k.name for k in schema.keys)]
        return self._written(run, order, folder, self.counts[uid].applied, bounded_columns(schema))

    def _records(self, uid: str) -> DataFrame:
        """The decoded records that an operator gets; asked for only where it has some."""
        return next(frame for name, frame in self._inputs.items() if uid in self._compute.pipeline.readers(name))

    def _written(
        self, rows: DataFrame, order: Sequence[str], folder: str, at_most: int, bounded: Sequence[str]
    ) -> WrittenRun:
        return write_rows(rows, order, f"{self._compute.warehouse}/{folder}", at_most, bounded)


def _of_tables(pipeline: Pipeline, copies: Mapping[str, Sequence[object]]) -> dict[str, UidCounts]:
    """Counts of what is copied from tables: rows of the run, tombstones included."""
    return {uid: UidCounts(applied=len(copies.get(uid, ())), dead_lettered=0) for uid in pipeline.tables}
