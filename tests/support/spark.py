"""Runs one script on the in-memory twin and on Spark: the same log and coordinator, different engines and tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.support.key_group_ranges import read_by_ranges
from tests.support.memory import MemoryPipeline
from tests.support.spark_warehouse import warehouse_of
from tidemark import Pipeline
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.engine.compute import SparkBatch, SparkCompute
from tidemark.engine.read.batch_reader import BatchReader
from tidemark.engine.read.source import KafkaOptions
from tidemark.engine.session.parallelism import task_conf
from tidemark.engine.state.resolve_sql import compact_rows as by_spark
from tidemark.engine.state.resolve_sql import resolve_state
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.log_records import LogRecord
from tidemark.model.retention.erasure import Blocked, none_blocked
from tidemark.model.schema.operator_schema import run_columns
from tidemark.ports import PlanRequest
from tidemark.readers.state_reader import files_of, read_state
from tidemark.tables.delta_tables import DeltaTables, arrow_schema
from tidemark.tables.row_files import find_letters
from tidemark.testing.twin.memory import (
    Feed,
    ManualClock,
    MemoryCompute,
    MemoryLog,
    MemorySender,
    MemoryTables,
)
from tidemark.testing.twin.merge import compact_rows

NOW_MS = 4_102_444_800_000
_RAW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


@dataclass
class FrameCompute:
    """The Spark engine on records of a `MemoryLog`, in the columns of Spark's Kafka source."""

    spark: SparkSession
    pipeline: Pipeline
    warehouse: SparkWarehouse
    log: MemoryLog
    blocked: Blocked = none_blocked

    def read(self, plan: CheckpointPlan, folders: Mapping[str, str] = MappingProxyType({})) -> SparkBatch:
        kafka = KafkaOptions(bootstrap="nowhere:1")
        compute = SparkCompute(pipeline=self.pipeline, warehouse=self.warehouse, kafka=kafka, blocked=self.blocked)
        taker = BatchReader(
            pipeline=self.pipeline,
            warehouse=self.warehouse,
            plan=plan,
            raw=lambda name: self._raw(plan, name),
            blocked=self.blocked(plan),
            folders=folders,
        )
        return SparkBatch(compute, plan, taker.read(), {}, folders)

    def _raw(self, plan: CheckpointPlan, name: str) -> Any:
        rows = [
            (tp.topic, tp.partition, r.offset, r.timestamp_ms * 1000, r.key, r.value, _headers(r))
            for tp, within in plan.ranges_of(name).items()
            for r in self.log.records(tp, within)
        ]
        columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), _RAW, strict=True)]
        return self.spark.createDataFrame(pa.Table.from_arrays(columns, schema=_RAW))


@dataclass
class TwinPipeline(MemoryPipeline):
    """A pipeline whose engine is the in-memory twin; see `SparkPipeline`."""

    pipeline: Pipeline
    partitions: int = 2
    tables: Any = field(default_factory=MemoryTables, kw_only=True)
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW_MS), kw_only=True)
    parallelism: int = 1
    sender: MemorySender = field(default_factory=MemorySender)
    blocked: Blocked = none_blocked

    def __post_init__(self) -> None:
        self._feed = Feed(self.pipeline, self.log, self.partitions)

    @property
    def compute(self) -> Any:
        return MemoryCompute(
            pipeline=self.pipeline,
            log=self.log,
            tables=self.tables,
            parallelism=self.parallelism,
            blocked=self.blocked,
        )

    def send(self, record: object) -> None:
        """Sends a record, for the next checkpoint to read."""
        self._feed.send(record, self.clock.now_ms())

    def checkpoint(self, records: Iterable[object], *, drains: bool = False) -> Checkpoint:
        """Sends records and completes a checkpoint over them, or one that drains."""
        for record in records:
            self.send(record)

        def execute(attempt: Any) -> Any:
            return self.checkpoint_job(self.compute, sender=self.sender).execute(attempt)

        loop = CheckpointLoop(coordinator=self.coordinator, pipeline=self.pipeline, execute=execute)
        return loop.run_once(PlanRequest(origin="test", drains=drains)).checkpoints[-1]

    def state(self, uid: str, checkpoint: Checkpoint) -> list[dict[str, Any]]:
        """The resolved rows, ordered by key."""
        return [row for _, row in sorted(self.compute.resolve(checkpoint, uid).items())]

    def compacted(self, uid: str, checkpoint: Checkpoint, *, deepest: bool) -> list[str]:
        """The rows that a compaction of the whole state writes."""
        schema, rows = checkpoint.plan.schemas[uid], self._rows(checkpoint.handles[uid])
        made = compact_rows(schema, rows, checkpoint.now, deepest=deepest)
        return _shown(pa.Table.from_pylist(made, schema=arrow_schema(run_columns(schema))).to_pylist())

    def emitted(self, uid: str, checkpoint: Checkpoint) -> list[dict[str, Any]]:
        """The rows of the sink, ordered by position."""
        return _placed(self._rows(checkpoint.sinks[uid].handle), ("_topic", "_partition", "_offset", "_path"))

    def letters(self, uid: str, checkpoint: Checkpoint) -> list[dict[str, Any]]:
        """The dead letters, ordered by position."""
        ack = checkpoint.ack(uid)
        assert ack is not None
        return _placed(self._rows(ack.dead_letters), ("topic", "partition", "offset", "reason"))

    def _rows(self, handle: StateHandle) -> list[dict[str, Any]]:
        return list(map(dict, self.tables.rows(handle)))


@dataclass
class SparkPipeline(TwinPipeline):
    """A pipeline on Spark with tables on disk. Spark and DuckDB both read every state, and must agree."""

    spark: Any = None
    root: Path = Path()
    numbers: Any = field(default_factory=count)
    turns: Any = field(default_factory=count)
    parallelism: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tables = DeltaTables(warehouse=str(self.root), clock=self.clock)

    @property
    def coordinator(self) -> Any:
        from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator

        return CheckpointCoordinator(
            store=self.store,
            log=self.log,
            clock=self.clock,
            write_ids=self.ids,
            files_exist=lambda handle: True,
            find_letters=partial(find_letters, str(self.root)),
        )

    @property
    def compute(self) -> Any:
        for name, value in task_conf(self.parallelism, None).items():
            self.spark.conf.set(name, value)
        return FrameCompute(
            spark=self.spark,
            pipeline=self.pipeline,
            # Both ways to find stored rows take turns, and must agree with the twin.
            warehouse=warehouse_of(self.spark, self.root, by_workers=next(self.turns) % 2 == 0),
            log=self.log,
            blocked=self.blocked,
        )

    def state(self, uid: str, checkpoint: Checkpoint) -> list[dict[str, Any]]:
        schema, handle = checkpoint.plan.schemas[uid], checkpoint.handles[uid]
        by_duckdb = read_state(str(self.root), schema, handle, checkpoint.now)
        by_spark = (
            resolve_state(warehouse_of(self.spark, self.root), schema, handle, checkpoint.now)
            .toArrow()
            .cast(by_duckdb.schema)
        )
        keys = [(k.name, "ascending") for k in schema.keys]
        found = by_duckdb.sort_by(keys).to_pylist(maps_as_pydicts="strict")
        assert by_spark.sort_by(keys).to_pylist(maps_as_pydicts="strict") == found
        by_ranges = read_by_ranges(str(self.root), schema, handle, checkpoint.now)
        assert by_ranges.sort_by(keys).to_pylist(maps_as_pydicts="strict") == found
        return list(found)

    def compacted(self, uid: str, checkpoint: Checkpoint, *, deepest: bool) -> list[str]:
        schema, handle = checkpoint.plan.schemas[uid], checkpoint.handles[uid]
        if not handle:
            return []
        rows = warehouse_of(self.spark, self.root).stored_rows(schema, handle)
        made = by_spark(self.spark, rows, schema, checkpoint.now, deepest=deepest).toArrow()
        return _shown(made.cast(arrow_schema(run_columns(schema))).to_pylist())

    def _rows(self, handle: StateHandle) -> list[dict[str, Any]]:
        files = [self.root / segment.path / f.path for segment, f in files_of(str(self.root), handle)]
        return [
            row for file in files for row in pq.read_table(file, partitioning=None).to_pylist(maps_as_pydicts="strict")
        ]


def _headers(record: LogRecord) -> list[dict[str, Any]] | None:
    """As Spark's Kafka source has them: null where there are none."""
    return [{"key": name, "value": value} for name, value in record.headers] or None


def _shown(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as sorted text. Empty lists count as null."""
    return sorted(repr({k: v for k, v in row.items() if v not in (None, [])}) for row in rows)


def _placed(rows: list[dict[str, Any]], by: tuple[str, ...]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda r: tuple(r[name] for name in by))
