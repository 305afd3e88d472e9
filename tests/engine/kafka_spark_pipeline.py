"""Checkpoints on real Spark, Kafka and Delta, made by the real job from plans by hand."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.support.kafka import Sent, Topics
from tests.support.key_group_ranges import read_by_ranges
from tests.support.readings import pipeline, plan_of
from tests.support.spark_warehouse import merge_both_ways, warehouse_of
from tidemark.coordinator.checkpoints.job import CheckpointJob, ignore_step
from tidemark.coordinator.checkpoints.state_compactor import CompactionTask, StateCompactor
from tidemark.coordinator.plans.inputs import adopt
from tidemark.engine.compute import SparkCompute
from tidemark.engine.read.source import KafkaOptions
from tidemark.engine.state.resolve_sql import resolve_state
from tidemark.errors import FencedError
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.store_objects import CompactionRecord
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.core.ttl import Now
from tidemark.model.state.compaction import LevelPolicy
from tidemark.ports import PutOutcome, StartedCheck, StepListener
from tidemark.readers.state_reader import read_state
from tidemark.tables.delta_tables import DeltaTables
from tidemark.testing.twin.memory import ManualClock

PARTITIONS = 2


def folders(plan: CheckpointPlan) -> dict[str, str]:
    """The folder of each run of the first attempt, relative to the warehouse."""
    return {uid: f"{table}/runs/{plan.id}.1" for uid, table in plan.tables.items()}


class OpenAttempt:
    """An attempt that nobody revokes, unless a test does."""

    def __init__(self, plan: CheckpointPlan, number: int = 1) -> None:
        self.plan, self.number, self.revoked = plan, number, False

    def check(self) -> None:
        if self.revoked:
            raise FencedError("revoked", next="nothing.")

    def start_check(self) -> StartedCheck:
        return self

    def is_answered(self) -> bool:
        return True

    def settle(self) -> None:
        self.check()

    def seal(self, sealed: Sealed) -> None:
        self.check()


class PolicyOptions(TypedDict, total=False):
    """Of a `LevelPolicy`."""

    runs: int
    ratio: float


class KafkaSparkPipeline:
    """A topic, a warehouse, and the head's handles."""

    def __init__(self, spark: SparkSession, broker: str, topics: Topics, root: Path) -> None:
        self.spark, self.topics, self.root = spark, topics, root / "warehouse"
        self.topic = topics.make(partitions=PARTITIONS)
        self.pipeline = pipeline(self.topic)
        self.kafka = KafkaOptions(bootstrap=broker, poll_timeout_ms=5_000)
        self.ids = (f"{n:032x}" for n in itertools.count(1))
        self.tables = DeltaTables(warehouse=str(self.root), clock=ManualClock())
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.starts = dict(self.ends)
        self.handles: dict[str, StateHandle] = {}
        self.dead_letters: dict[str, StateHandle] = {}
        self.number = 0
        self.now = Now()
        self.sent: list[Sent] = []
        self.cuts: list[dict[int, int]] = []

    def send(self, bodies: Sequence[Mapping[str, object] | bytes | None]) -> None:
        """Sends bodies, spread over the partitions."""
        records = []
        for n, body in enumerate(bodies):
            value = json.dumps(body).encode() if isinstance(body, Mapping) else body
            records.append(Sent(value, key=b"k", partition=n % PARTITIONS))
            self.ends[n % PARTITIONS] += 1
        self.topics.produce(self.topic, records)
        self.sent += records

    def plan(self) -> CheckpointPlan:
        """The next plan, up to what was sent."""
        ranges = {TopicPartition(self.topic, p): (self.starts[p], end) for p, end in self.ends.items()}
        return plan_of(self.pipeline, self.number + 1, ranges, self.handles, self.dead_letters)

    def compute(self) -> SparkCompute:
        return SparkCompute(pipeline=self.pipeline, warehouse=warehouse_of(self.spark, self.root), kafka=self.kafka)

    def execute(self, attempt: OpenAttempt, share: float = 1.0, listener: StepListener = ignore_step) -> Sealed:
        """One attempt; the head does not move."""
        job = CheckpointJob(
            compute=self.compute(),
            tables=self.tables,
            clock=ManualClock(),
            write_ids=lambda: next(self.ids),
            listener=listener,
            max_dead_letters=share,
        )
        return job.execute(attempt)

    def checkpoint(self, attempt: int = 1) -> Sealed:
        """Executes the next plan and moves the head."""
        plan = self.plan()
        sealed = self.execute(OpenAttempt(plan, attempt))
        self.complete(plan, sealed)
        return sealed

    def complete(self, plan: CheckpointPlan, sealed: Sealed) -> None:
        """What publishing the manifest does to the next plan."""
        self.number = plan.id
        self.now = Checkpoint(plan=plan, sealed=sealed, covered_until_ms=None).now
        self.cuts.append({tp.partition: end for tp, end in plan.ranges.ends.items()})
        self.starts = {tp.partition: end for tp, end in plan.ranges.ends.items()}
        self.handles = {a.uid: a.handle for a in sealed.acks}
        self.dead_letters = {a.uid: a.dead_letters for a in sealed.acks}

    def compact(
        self, uid: str, policy: LevelPolicy | None = None, **options: Unpack[PolicyOptions]
    ) -> CompactionRecord | None:
        """Compacts the head, by a policy or by options of one that allows any space; adopting is the caller's."""
        task = CompactionTask(
            pipeline=self.pipeline.name,
            timeline="t1",
            checkpoint=self.number,
            schema=self.pipeline.schemas()[uid],
            handle=self.handles[uid],
            now=self.now,
            table=f"{self.pipeline.name}/state/{uid}/t1-1",
            policy=policy or LevelPolicy(space=math.inf, **options),
        )
        compactor = StateCompactor(
            merge=merge_both_ways(self.spark, self.root),
            tables=self.tables,
            clock=ManualClock(),
            write_ids=lambda: next(self.ids),
            listener=lambda step, moment: None,
            put_job=lambda key, record: PutOutcome.WON,
            put_record=lambda key, record: PutOutcome.WON,
        )
        return compactor.compact(task)

    def adopt(self, record: CompactionRecord) -> None:
        """What the planner does with a compaction record."""
        adopted = adopt(self.handles[record.uid], record)
        assert adopted is not None
        self.handles[record.uid] = adopted

    def state(self, uid: str, handle: StateHandle | None = None) -> list[dict[str, Any]]:
        """The state by DuckDB, whole and by ranges of key groups, and by Spark, which must agree; sorted by key."""
        schema = self.pipeline.schemas()[uid]
        handle = self.handles[uid] if handle is None else handle
        by_duckdb = read_state(str(self.root), schema, handle, self.now)
        by_spark = (
            resolve_state(warehouse_of(self.spark, self.root), schema, handle, self.now)
            .toArrow()
            .cast(by_duckdb.schema)
        )
        keys = [(k.name, "ascending") for k in schema.keys]
        found: list[dict[str, Any]] = by_duckdb.sort_by(keys).to_pylist()
        assert by_spark.sort_by(keys).to_pylist() == found
        by_ranges = read_by_ranges(str(self.root), schema, handle, self.now)
        assert by_ranges.schema == by_duckdb.schema
        assert by_ranges.sort_by(keys).to_pylist() == found
        return found

    def with_gate(self, gate: Any) -> None:
        """Gives the pipeline a gate."""
        self.pipeline = replace(self.pipeline, gate=gate)


def letters(line: KafkaSparkPipeline, uid: str) -> pa.Table:
    """The dead letters of an operator, in order of their positions, read from the head's segments."""
    tables = []
    for segment in line.dead_letters[uid]:
        for file in line.tables.live_files(segment):
            tables.append(pq.read_table(line.root / segment.path / file.path, partitioning=None))
    return pa.concat_tables(tables).sort_by([("partition", "ascending"), ("offset", "ascending")])
