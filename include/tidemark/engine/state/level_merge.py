"""Compaction: merges levels of one completed checkpoint's handle into `base` (design section 5; step 11).

It may run beside later checkpoints, be late, fail or be killed: only the next plan adopts its record, and until then
nothing names what it wrote. Order: job record, files, commit to `base`, fsync, compaction record.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import SparkSession

from tidemark.engine.session.spark_errors import translated
from tidemark.engine.state.resolve_sql import compacted
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.engine.write.parquet_writer import RunFolder, write_rows
from tidemark.engine.write.written_files import ArrowSystem, bounded_columns, this_machine
from tidemark.model.checkpoint.object_keys import compaction_key, job_key
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.store_objects import CompactionRecord, JobRecord
from tidemark.model.checkpoint.table_writes import CommitRequest, Committed, WrittenRun
from tidemark.model.core.ttl import Now
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.compaction import Compaction, LevelPolicy, due, groups_of
from tidemark.ports import Clock, PutOutcome, StateTables, StepListener, WriteIds
from tidemark.sql.resolve import run_columns

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask:
    """One operator's handle in one completed checkpoint.

    Attributes:
        pipeline: its name.
        timeline: of the checkpoint.
        checkpoint: its id.
        schema: the stored schema, as the manifest carries it.
        handle: the state, as the manifest names it.
        now: the checkpoint's clocks.
        table: `<pipeline>/state/<uid>/<timeline>-<n>`, the folder that the timeline's plans write to.
        policy: when levels are merged, and which.
        revision: of the manifest.
    """

    pipeline: str
    timeline: str
    checkpoint: int
    schema: OperatorSchema
    handle: StateHandle
    now: Now
    table: str
    policy: LevelPolicy = LevelPolicy()
    revision: int = 0

    @property
    def base(self) -> str:
        """The table that compactions commit to."""
        return f"{self.table}/base"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compactor:
    """Compacts what is due.

    Attributes:
        session: opens a Spark session; called only when something is due.
        warehouse: root of all tables, as Spark names it.
        tables: where commits go.
        clock: stamps the job record.
        write_ids: names the job and the commit.
        listener: called at steps `compact.job`, `.files`, `.commit`, `.record`; inside the commit, between the
            table's version and the commit, `commit.compact`.
        put_job: puts a job record under a key.
        put_record: puts a compaction record under a key.
        arrow: the warehouse's file system.
    """

    session: Callable[[], SparkSession]
    warehouse: str
    tables: StateTables
    clock: Clock
    write_ids: WriteIds
    listener: StepListener
    put_job: Callable[[str, JobRecord], PutOutcome]
    put_record: Callable[[str, CompactionRecord], PutOutcome]
    arrow: ArrowSystem = this_machine

    def compact(self, task: CompactionTask) -> CompactionRecord | None:
        """Compacts one operator, or answers None where nothing is due.

        Raises:
            StateOverflowError: merged state does not fit; the message names the key.
            ConflictError: another compaction committed at the same time.
            StoreError, EngineError: as the steps raise them. Nothing names what was written then.
        """
        wanted = due(task.schema, task.handle, groups_of(task.handle, self.tables.files_of), task.policy)
        if wanted is None:
            return None
        write_id = self.write_ids()
        job = f"{task.schema.uid}.{task.checkpoint}.{write_id}"
        self._step("job", lambda: self.put_job(job_key(job), self._job(task, job, write_id)))
        folder = f"{task.base}/{job}"
        run = self._step("files", lambda: self._write(task, wanted, folder))
        request = _request(task, wanted, run, job, write_id)
        done = self._step("commit", lambda: self._commit(request, folder))
        record = CompactionRecord(
            uid=task.schema.uid,
            job=job,
            checkpoint=task.checkpoint,
            timeline=task.timeline,
            input=task.handle,
            output=wanted.output(done.segment),
            commits=(done.commit,),
            write_id=write_id,
            deepest=wanted.is_deepest,
            revision=task.revision,
        )
        self._step("record", lambda: self.put_record(compaction_key(task.schema.uid, job), record))
        return record

    def _job(self, task: CompactionTask, job: str, write_id: str) -> JobRecord:
        return JobRecord(
            job=job,
            kind="compaction",
            uid=task.schema.uid,
            checkpoint=task.checkpoint,
            opened_at_ms=self.clock.now_ms(),
            write_id=write_id,
            revision=task.revision,
        )

    def _write(self, task: CompactionTask, wanted: Compaction, folder: str) -> WrittenRun:
        session = self.session()
        with translated():
            here = SparkWarehouse(session=session, root=self.warehouse, files_of=self.tables.files_of)
            rows = here.rows_of(task.schema, wanted.merged)
            shaped = compacted(session, rows, task.schema, task.now, deepest=wanted.is_deepest)
            order = ["_key_group", *(k.name for k in task.schema.keys)]
            files = task.policy.files_for(wanted.merged)
            bounded = bounded_columns(task.schema)
            target = RunFolder(path=f"{self.warehouse}/{folder}", arrow=self.arrow)
            return write_rows(shaped, order, target, files, bounded)

    def _commit(self, request: CommitRequest, folder: str) -> Committed:
        done = self.tables.commit(request, _Gap(self.listener))
        self.tables.make_durable([done.commit], [folder])
        return done

    def _step(self, name: str, act: Callable[[], T]) -> T:
        self.listener(f"compact.{name}", "before")
        done = act()
        self.listener(f"compact.{name}", "after")
        return done


@dataclass(frozen=True, slots=True)
class _Gap:
    """Inside the commit, behind the table's version. Of no attempt: a stale compaction conflicts, or is not adopted."""

    listener: StepListener

    def check(self) -> None:
        """Never raises."""
        self.listener("commit.compact", "before")
        self.listener("commit.compact", "after")


def _request(task: CompactionTask, wanted: Compaction, run: WrittenRun, job: str, write_id: str) -> CommitRequest:
    return CommitRequest(
        table=task.base,
        parent=wanted.parent(task.base),
        files=run.files,
        rows=run.rows,
        level=wanted.level,
        checkpoint=wanted.through,
        after=wanted.after(task.base),
        schema=run_columns(task.schema),
        write_id=write_id,
        metadata={
            "tidemark_pipeline": task.pipeline,
            "tidemark_timeline": task.timeline,
            "tidemark_checkpoint": f"chk-{task.checkpoint}",
            "tidemark_uid": task.schema.uid,
            "tidemark_job": job,
        },
        app=(f"{task.pipeline}/{task.timeline}/{task.schema.uid}/base", task.checkpoint * 2**20),
        drop=wanted.drop(task.base),
    )
