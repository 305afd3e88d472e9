"""A warehouse on disk without Spark and Kafka: the real coordinator, store, Delta tables and sequence of steps.

Only the engine is a twin: `MemoryCompute` folds and pyarrow writes the files. Readers see no difference.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.memory import Unfenced
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.job import CheckpointJob, ignore_step
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.checkpoints.row_compactor import RowCompactor
from tidemark.coordinator.records.refusal_records import Refusals
from tidemark.coordinator.records.schema_book import StoredBook, StoredSchemas
from tidemark.coordinator.records.timelines import Erasures
from tidemark.declare.pipeline import Pipeline
from tidemark.engine.write.parquet_writer import stats_of, written_run
from tidemark.model.checkpoint.commits import CommitRequest
from tidemark.model.checkpoint.dead_letters import DEAD_LETTER_COLUMNS
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed, WrittenRun
from tidemark.model.checkpoint.object_keys import compaction_key
from tidemark.model.checkpoint.row_tables import ROW_CHECKPOINT, row_tables
from tidemark.model.checkpoint.segments import LiveFile, Segment, StateHandle, WrittenFile
from tidemark.model.checkpoint.store_objects import CompactionRecord
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.model.state.compaction import Compaction, LevelPolicy, due, groups_of
from tidemark.model.state.row_compaction import RowPolicy
from tidemark.ports import PlanRequest, Sender, StepListener
from tidemark.ports.registries import SchemaRegistry
from tidemark.readers.duckdb_session import open_query_runner
from tidemark.readers.state_reader import files_of
from tidemark.sql.resolve import compacted_sql
from tidemark.storage.local_store import LocalStore, Root, arrow_place, join_path, stage_folder
from tidemark.storage.s3_folder import S3Folder
from tidemark.storage.s3_store import S3Store
from tidemark.tables.delta_tables import DeltaTables, arrow_schema
from tidemark.tables.row_files import ParquetRowFiles, find_letters
from tidemark.testing.twin.compute import MemoryCompute
from tidemark.testing.twin.memory import ManualClock, MemoryLog
from tidemark.testing.twin.merge import compact_rows

NOW_MS = 1_900_000_000_000


def write_file(
    root: Root, folder: str, rows: pa.Table, row_group: int = 1 << 20, bounded: Sequence[str] = ()
) -> WrittenFile:
    """Writes a Parquet file to the folder of an attempt, as the engine does, with the bounds of some columns."""
    with stage_folder(root, folder) as made:
        path = made / "part-0.parquet"
        made.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path, compression="zstd", row_group_size=row_group)
        name, size = f"{made.name}/part-0.parquet", path.stat().st_size
        stats = stats_of(pq.read_metadata(path), bounded)
    return WrittenFile(path=name, size=size, rows=rows.num_rows, stats=stats)


def read_rows(root: Root, segment: Segment, file: LiveFile) -> pa.Table:
    """Reads a whole data file."""
    if isinstance(root, str):
        return parse_parquet(Path(root, segment.path, file.path).read_bytes())
    path, system = arrow_place(join_path(root, segment.path, file.path))
    return pq.read_table(path, partitioning=None, filesystem=system)


@lru_cache(maxsize=2048)
def parse_parquet(raw: bytes) -> pa.Table:
    """Returns the rows in the bytes of a file. Tests read the same small files again and again."""
    return pq.read_table(pa.BufferReader(raw), partitioning=None, use_threads=False)


@dataclass
class ParquetFiles:
    """The target of `MemoryCompute`, in place of `MemoryTables`."""

    root: Root
    schemas: Mapping[str, OperatorSchema]
    sinks: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    files: dict[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def write(self, folder: str, rows: Sequence[Mapping[str, Any]]) -> WrittenRun:
        """Writes rows as one file; see `MemoryTables.write`."""
        if not rows:
            return WrittenRun(rows=0, files=())
        uid = folder.split("/")[-4]
        is_state = f"/state/{uid}/" in folder
        columns = run_columns(self.schemas[uid]) if is_state else DEAD_LETTER_COLUMNS
        columns = self.sinks.get(folder.rpartition("/")[0].rpartition("/")[0], columns)
        made = pa.Table.from_pylist(list(rows), schema=arrow_schema(columns))
        bounded = self.schemas[uid].bounded_columns if is_state else ()
        file = write_file(self.root, folder, made, row_group=64, bounded=bounded)
        self.files[f"{folder.rpartition('/')[0]}/{file.path}"] = rows
        return WrittenRun(rows=len(rows), files=(file,))

    def rows(self, handle: StateHandle) -> list[dict[str, Any]]:
        """Reads all stored rows of a handle; see `MemoryTables.rows`."""
        return [row for *_, row in self.placed_rows(handle)]

    def placed_rows(self, handle: StateHandle) -> Iterator[tuple[int, dict[str, Any]]]:
        """Reads all stored rows with their places; see `MemoryTables.placed_rows`."""
        for s, f in files_of(self.root, handle):
            for row in read_rows(self.root, s, f).to_pylist():
                at = row.get(ROW_CHECKPOINT, f.checkpoint)
                if not handle.expired or at > handle.expired:
                    yield at, row


@dataclass
class DiskPipeline:
    """The warehouse of a pipeline, and the log that the pipeline reads."""

    root: Path
    pipeline: Pipeline
    topic: str
    partitions: int = 2
    log: MemoryLog = field(default_factory=MemoryLog)
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW_MS))
    sender: Sender | None = None
    crash: StepListener = ignore_step
    registry: SchemaRegistry | None = None
    """Is asked for schemas."""
    bucket: S3Folder | None = None
    """Holds the warehouse instead of `root`."""

    def __post_init__(self) -> None:
        if self.topic not in self.log.topic_ids((self.topic,)):
            self.log.create(self.topic, self.partitions)
        self._ids = (f"{n:032x}" for n in itertools.count(1))
        self.warehouse: Root = self.bucket or str(self.root)
        self.tables = DeltaTables(warehouse=self.warehouse, clock=self.clock)

    @property
    def coordinator(self) -> CheckpointCoordinator:
        """A coordinator of the pipeline over the real store."""
        name = self.pipeline.name
        store = S3Store(self.bucket, name) if self.bucket else LocalStore(self.root / name)
        return CheckpointCoordinator(
            store=store,
            log=self.log,
            clock=self.clock,
            write_ids=self._id,
            find_letters=partial(find_letters, self.warehouse),
        )

    def send(self, values: Sequence[tuple[int, bytes, int]]) -> None:
        """Appends records, given as (partition, value, timestamp in ms), to the topic."""
        for partition, value, at in values:
            self.log.append(TopicPartition(self.topic, partition), value, timestamp_ms=at)

    def checkpoint(self, *, timeline: str | None = None) -> Checkpoint:
        """Completes a checkpoint over the records sent since the previous one."""
        loop = CheckpointLoop(
            coordinator=self.coordinator, pipeline=self.pipeline, execute=self.execute, timeline=timeline
        )
        (done,) = loop.run_once(PlanRequest(origin="test")).checkpoints
        return done

    def compact(self, uid: str, *, full: bool = False, timeline: str | None = None) -> bool:
        """Compacts the newest checkpoint, for the next plan to adopt. Returns False if no compaction was due."""
        newest = next(self.coordinator.checkpoints(timeline))
        schema, handle = newest.plan.schemas[uid], newest.handles[uid]
        policy = LevelPolicy(runs=1, ratio=math.inf if full else 0, space=math.inf)
        wanted = due(schema, handle, groups_of(handle, self.tables.files_of), policy)
        if wanted is None:
            return False
        write_id = self._id()
        job = f"{uid}.{newest.id}.{write_id}"
        done = self.tables.commit(self._request(newest, schema, wanted, job), Unfenced())
        record = CompactionRecord(
            uid=uid,
            job=job,
            timeline=newest.plan.slot.timeline,
            checkpoint=newest.id,
            input=wanted.input,
            output=wanted.output(done.segment),
            commits=(done.commit,),
            write_id=write_id,
            deepest=wanted.is_deepest,
            revision=newest.revision,
        )
        self.coordinator.objects.put(compaction_key(uid, job), record)
        return True

    def compact_rows(self, policy: RowPolicy | None = None, timeline: str | None = None) -> list[CompactionRecord]:
        """Compacts the sinks and dead letters of the newest checkpoint that are due, for the next plan to adopt."""
        newest = next(self.coordinator.checkpoints(timeline))
        made = [self.row_compactor().compact(newest, table, policy or RowPolicy()) for table in row_tables(newest)]
        return [record for record in made if record is not None]

    def row_compactor(self, listener: StepListener = ignore_step) -> RowCompactor:
        """The product's compactor of sinks and dead letters."""
        objects = self.coordinator.objects
        return RowCompactor(
            tables=self.tables,
            files=ParquetRowFiles(warehouse=self.warehouse, footers=written_run),
            clock=self.clock,
            write_ids=self._id,
            listener=listener,
            put_job=objects.put,
            put_record=objects.put,
        )

    def _request(self, newest: Checkpoint, schema: OperatorSchema, wanted: Compaction, job: str) -> CommitRequest:
        chosen = {f.path for g in wanted.merged for f in g.files}
        read = [(s, f) for s, f in files_of(self.warehouse, wanted.input) if f.path in chosen]
        stored = pa.concat_tables([read_rows(self.warehouse, s, f) for s, f in read])
        if schema.kind == "process":
            with open_query_runner() as ask:
                text = compacted_sql(schema, "stored", newest.now, deepest=wanted.is_deepest)
                rows = ask(text, stored=stored).to_pylist()
        else:
            rows = compact_rows(schema, stored.to_pylist(), newest.now, deepest=wanted.is_deepest)
        rows.sort(key=lambda r: (r["_key_group"], *(r[k.name] for k in schema.keys)))
        base = f"{newest.plan.tables[schema.uid]}/base"
        held = pa.Table.from_pylist(rows, schema=arrow_schema(run_columns(schema)))
        return CommitRequest(
            table=base,
            parent=wanted.parent(base),
            files=(write_file(self.warehouse, f"{base}/{job}", held, 64, schema.bounded_columns),),
            rows=len(rows),
            level=wanted.level,
            checkpoint=wanted.through,
            after=wanted.after(base),
            schema=run_columns(schema),
            write_id=job.rpartition(".")[2],
            metadata={"tidemark_uid": schema.uid},
            app=(f"test/{schema.uid}", newest.id),
            drop=wanted.drop(base),
        )

    def execute(self, attempt: Any) -> Sealed:
        """Executes an attempt up to its seal."""
        sinks = {t.path.rpartition("/")[0]: t.stored for t in attempt.plan.sinks.values()}
        files: Any = ParquetFiles(self.warehouse, self.pipeline.schemas(), sinks)
        objects, registry = self.coordinator.objects, self.registry
        stored = StoredSchemas(objects)
        job = CheckpointJob(
            compute=MemoryCompute(
                pipeline=self.pipeline,
                log=self.log,
                tables=files,
                blocked=Erasures(objects).blocked_keys,
                open_book=None if registry is None else cache(partial(StoredBook, stored, registry, self.crash)),
            ),
            tables=self.tables,
            clock=self.clock,
            write_ids=self._id,
            listener=self.crash,
            max_dead_letters=1.0,
            sender=self.sender,
            skipped=Refusals(self.coordinator.objects).skipped_ids,
        )
        return job.execute(attempt)

    def _id(self) -> str:
        return next(self._ids)
