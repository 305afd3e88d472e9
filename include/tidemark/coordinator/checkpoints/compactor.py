"""The steps of a compaction, of a state or of rows (adr/0008, adr/0041).

It may run during later checkpoints, be late, fail or be killed: only the next plan adopts its record, and until then
nothing refers to its files. The order is: job record, files, commit to the second table, fsync, compaction record.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from tidemark.model.checkpoint.commits import CommitRequest, Committed
from tidemark.model.checkpoint.manifest import WrittenRun
from tidemark.model.checkpoint.object_keys import compaction_key, job_key
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.store_objects import CompactionRecord, JobRecord
from tidemark.model.state.compaction import Compaction
from tidemark.ports import Clock, PutOutcome, StateTables, StepListener, WriteIds

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DueCompaction:
    """A compaction of one table in one completed checkpoint.

    Attributes:
        pipeline: name of the pipeline.
        timeline: timeline of the checkpoint.
        checkpoint: id of the checkpoint.
        revision: revision of the manifest.
        owner: whose record it is; see `describe_owner`.
        uid: the uid in the commit.
        base: the table to commit to.
        columns: its columns, with their SQL types.
        handle: the state or the rows, as in the manifest.
        wanted: the levels or files to merge.
        is_deepest: whether no older rows of the keys remain.
        merge: writes the merged rows to a folder, durably.
    """

    pipeline: str
    timeline: str
    checkpoint: int
    revision: int
    owner: str
    uid: str
    base: str
    columns: tuple[tuple[str, str], ...]
    handle: StateHandle
    wanted: Compaction
    is_deepest: bool = False
    merge: Callable[[str], WrittenRun]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compactor:
    """Carries compactions out.

    Attributes:
        verb: begins the names of its steps `.job`, `.files`, `.commit`, `.record`, and ends that of the step inside the
            commit, between the version of the table and the commit.
        tables: commits to tables.
        clock: stamps the job record.
        write_ids: names the job and the commit.
        listener: called at every step.
        put_job: puts a job record under a key.
        put_record: puts a compaction record under a key.
    """

    verb: ClassVar[str]
    tables: StateTables
    clock: Clock
    write_ids: WriteIds
    listener: StepListener
    put_job: Callable[[str, JobRecord], PutOutcome]
    put_record: Callable[[str, CompactionRecord], PutOutcome]

    def _carry_out(self, due: DueCompaction) -> CompactionRecord:
        write_id = self.write_ids()
        job = f"{due.owner}.{due.checkpoint}.{write_id}"
        self._step("job", lambda: self.put_job(job_key(job), self._job(due, job, write_id)))
        folder = f"{due.base}/{job}"
        run = self._step("files", lambda: due.merge(folder))
        request = _request(due, run, job, write_id)
        done = self._step("commit", lambda: self._commit(request, folder))
        record = CompactionRecord(
            uid=due.owner,
            job=job,
            checkpoint=due.checkpoint,
            timeline=due.timeline,
            input=due.handle,
            output=due.wanted.output(done.segment),
            commits=(done.commit,),
            write_id=write_id,
            deepest=due.is_deepest,
            revision=due.revision,
        )
        self._step("record", lambda: self.put_record(compaction_key(due.owner, job), record))
        return record

    def _job(self, due: DueCompaction, job: str, write_id: str) -> JobRecord:
        return JobRecord(
            job=job,
            kind="compaction",
            uid=due.owner,
            checkpoint=due.checkpoint,
            opened_at_ms=self.clock.now_ms(),
            write_id=write_id,
            revision=due.revision,
        )

    def _commit(self, request: CommitRequest, folder: str) -> Committed:
        done = self.tables.commit(request, _NoFence(self.listener, f"commit.{self.verb}"))
        self.tables.make_durable([done.commit], [folder])
        return done

    def _step(self, name: str, act: Callable[[], T]) -> T:
        self.listener(f"{self.verb}.{name}", "before")
        done = act()
        self.listener(f"{self.verb}.{name}", "after")
        return done


@dataclass(frozen=True, slots=True)
class _NoFence:
    """Takes the place of a fence inside the commit, because a stale compaction conflicts or is not adopted."""

    listener: StepListener
    step: str

    def check(self) -> None:
        """Never raises."""
        self.listener(self.step, "before")
        self.listener(self.step, "after")


def _request(due: DueCompaction, run: WrittenRun, job: str, write_id: str) -> CommitRequest:
    wanted = due.wanted
    return CommitRequest(
        table=due.base,
        parent=wanted.parent(due.base),
        files=run.files,
        rows=run.rows,
        level=wanted.level,
        checkpoint=wanted.through,
        after=wanted.after(due.base),
        schema=due.columns,
        write_id=write_id,
        metadata={
            "tidemark_pipeline": due.pipeline,
            "tidemark_timeline": due.timeline,
            "tidemark_checkpoint": f"chk-{due.checkpoint}",
            "tidemark_uid": due.uid,
            "tidemark_job": job,
        },
        app=(f"{due.pipeline}/{due.timeline}/{due.owner}/base", due.checkpoint * 2**20),
        drop=wanted.drop(due.base),
    )
