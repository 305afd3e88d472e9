"""Compaction of states: merges levels of one completed checkpoint's handle into `base` (adr/0008).

It may run during later checkpoints, be late, fail or be killed: only the next plan adopts its record, and until then
nothing refers to its files. The order is: job record, files, commit to `base`, fsync, compaction record.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tidemark.model.checkpoint.commits import CommitRequest, Committed
from tidemark.model.checkpoint.manifest import WrittenRun
from tidemark.model.checkpoint.object_keys import compaction_key, job_key
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.store_objects import CompactionRecord, JobRecord
from tidemark.model.core.ttl import Now
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.model.state.closed_files import closed_groups, open_groups
from tidemark.model.state.compaction import Compaction, LevelMerge, LevelPolicy, due, groups_of
from tidemark.ports import Clock, PutOutcome, StateTables, StepListener, WriteIds

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask:
    """One operator's handle in one completed checkpoint.

    Attributes:
        pipeline: name of the pipeline.
        timeline: timeline of the checkpoint.
        checkpoint: id of the checkpoint.
        schema: the stored schema, as in the manifest.
        handle: the state, as in the manifest.
        now: the clocks of the checkpoint.
        table: `<pipeline>/state/<uid>/<timeline>-<n>`, the folder that the plans of the timeline write to.
        policy: which levels are merged, and when.
        revision: revision of the manifest.
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
        """The table to which compactions commit."""
        return f"{self.table}/base"

    @property
    def frontier(self) -> int | None:
        """The frontier of the operator in the checkpoint."""
        return self.now.frontiers.get(self.schema.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCompactor:
    """Compacts operators that are due.

    Attributes:
        merge: writes the merged rows, durably; called only if something is due.
        tables: commits to tables.
        clock: stamps the job record.
        write_ids: names the job and the commit.
        listener: called at steps `compact.job`, `.files`, `.commit`, `.record`; inside the commit, between the version
            of the table and the commit, `commit.compact`.
        put_job: puts a job record under a key.
        put_record: puts a compaction record under a key.
    """

    merge: Callable[[LevelMerge], WrittenRun]
    tables: StateTables
    clock: Clock
    write_ids: WriteIds
    listener: StepListener
    put_job: Callable[[str, JobRecord], PutOutcome]
    put_record: Callable[[str, CompactionRecord], PutOutcome]

    def compact(self, task: CompactionTask) -> CompactionRecord | None:
        """Compacts one operator; returns None if nothing is due.

        Raises:
            StateOverflowError: merged state does not fit; the message names the key.
            ConflictError: another compaction committed at the same time.
            StoreError, EngineError: raised by the steps. Nothing refers to the written files in that case.
        """
        groups = groups_of(task.handle, self.tables.files_of)
        closed = closed_groups(task.schema, groups, task.frontier)
        wanted = due(task.schema, task.handle, groups, task.policy, closed)
        if wanted is None:
            return None
        write_id = self.write_ids()
        job = f"{task.schema.uid}.{task.checkpoint}.{write_id}"
        self._step("job", lambda: self.put_job(job_key(job), self._job(task, job, write_id)))
        folder = f"{task.base}/{job}"
        run = self._step("files", lambda: self.merge(_merge_of(task, wanted, folder)))
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

    def _commit(self, request: CommitRequest, folder: str) -> Committed:
        done = self.tables.commit(request, _NoFence(self.listener))
        self.tables.make_durable([done.commit], [folder])
        return done

    def _step(self, name: str, act: Callable[[], T]) -> T:
        self.listener(f"compact.{name}", "before")
        done = act()
        self.listener(f"compact.{name}", "after")
        return done


@dataclass(frozen=True, slots=True)
class _NoFence:
    """Stands inside the commit in place of a fence, because a stale compaction conflicts or is not adopted."""

    listener: StepListener

    def check(self) -> None:
        """Never raises."""
        self.listener("commit.compact", "before")
        self.listener("commit.compact", "after")


def _merge_of(task: CompactionTask, wanted: Compaction, folder: str) -> LevelMerge:
    # Files whose windows have closed are not read. The groups that are kept decide that, too, if rows of them merge.
    still = open_groups(task.schema, (*wanted.kept, *wanted.merged), task.frontier)
    return LevelMerge(
        schema=task.schema,
        groups=tuple(group for group in still if group.checkpoint > wanted.cut),
        now=task.now,
        deepest=wanted.is_deepest,
        folder=folder,
        files=task.policy.files_for(wanted.merged),
    )


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
