"""Compaction of sinks and dead letters: merges the files of many checkpoints into large ones (adr/0041).

It reads the handle of one completed checkpoint, and may run during later ones, be late, fail or be killed: only the
next plan adopts its record, and until then nothing refers to its files. The order is that of a compaction of state: job
record, files, commit to the second table, fsync, compaction record.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tidemark.model.checkpoint.commits import CommitRequest, Committed
from tidemark.model.checkpoint.manifest import Checkpoint, WrittenRun
from tidemark.model.checkpoint.object_keys import compaction_key, job_key
from tidemark.model.checkpoint.row_tables import RowTable
from tidemark.model.checkpoint.store_objects import CompactionRecord, JobRecord
from tidemark.model.state.compaction import Compaction, groups_of
from tidemark.model.state.row_compaction import RowPolicy, due_rows
from tidemark.ports import Clock, PutOutcome, RowFiles, StateTables, StepListener, WriteIds

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCompactor:
    """Compacts sinks and dead letters that are due; needs no Spark.

    Attributes:
        tables: commits to tables.
        files: merges files.
        clock: stamps the job record.
        write_ids: names the job and the commit.
        listener: called at steps `compact_rows.job`, `.files`, `.commit`, `.record`; inside the commit, between the
            version of the table and the commit, `commit.compact_rows`.
        put_job: puts a job record under a key.
        put_record: puts a compaction record under a key.
    """

    tables: StateTables
    files: RowFiles
    clock: Clock
    write_ids: WriteIds
    listener: StepListener
    put_job: Callable[[str, JobRecord], PutOutcome]
    put_record: Callable[[str, CompactionRecord], PutOutcome]

    def compact(self, found: Checkpoint, table: RowTable, policy: RowPolicy) -> CompactionRecord | None:
        """Compacts one sink, or the dead letters of one operator; returns None if nothing is due.

        Args:
            found: the completed checkpoint.
            table: one of its `row_tables`.
            policy: which files are merged, and when.

        Raises:
            ConflictError: another compaction committed at the same time.
            StoreError: raised by the steps. Nothing refers to the written files in that case.
        """
        wanted = due_rows(table.handle, groups_of(table.handle, self.tables.files_of), policy)
        if wanted is None:
            return None
        write_id = self.write_ids()
        job = f"{table.owner}.{found.id}.{write_id}"
        self._step("job", lambda: self.put_job(job_key(job), self._job(found, table, job, write_id)))
        folder = f"{table.base}/{job}"
        run = self._step("files", lambda: self._merge(table, wanted, folder, policy))
        request = _request(found, table, wanted, run, job)
        done = self._step("commit", lambda: self._commit(request, folder))
        record = CompactionRecord(
            uid=table.owner,
            job=job,
            checkpoint=found.id,
            timeline=found.plan.slot.timeline,
            input=table.handle,
            output=wanted.output(done.segment),
            commits=(done.commit,),
            write_id=write_id,
            revision=found.revision,
        )
        self._step("record", lambda: self.put_record(compaction_key(table.owner, job), record))
        return record

    def _job(self, found: Checkpoint, table: RowTable, job: str, write_id: str) -> JobRecord:
        return JobRecord(
            job=job,
            kind="compaction",
            uid=table.owner,
            checkpoint=found.id,
            opened_at_ms=self.clock.now_ms(),
            write_id=write_id,
            revision=found.revision,
        )

    def _merge(self, table: RowTable, wanted: Compaction, folder: str, policy: RowPolicy) -> WrittenRun:
        files = [(g.segment, f) for g in wanted.merged for f in g.files]
        return self.files.merge(table, files, folder, policy.rows_per_file(wanted.merged))

    def _commit(self, request: CommitRequest, folder: str) -> Committed:
        done = self.tables.commit(request, _Unrevoked(self.listener))
        self.tables.make_durable([done.commit], [folder])
        return done

    def _step(self, name: str, act: Callable[[], T]) -> T:
        self.listener(f"compact_rows.{name}", "before")
        done = act()
        self.listener(f"compact_rows.{name}", "after")
        return done


@dataclass(frozen=True, slots=True)
class _Unrevoked:
    """Stands inside the commit in place of a fence, because a stale compaction conflicts or is not adopted."""

    listener: StepListener

    def check(self) -> None:
        """Never raises."""
        self.listener("commit.compact_rows", "before")
        self.listener("commit.compact_rows", "after")


def _request(found: Checkpoint, table: RowTable, wanted: Compaction, run: WrittenRun, job: str) -> CommitRequest:
    plan = found.plan
    return CommitRequest(
        table=table.base,
        parent=wanted.parent(table.base),
        files=run.files,
        rows=run.rows,
        level=wanted.level,
        checkpoint=wanted.through,
        after=wanted.after(table.base),
        schema=table.stored,
        write_id=job.rpartition(".")[2],
        metadata={
            "tidemark_pipeline": plan.pipeline,
            "tidemark_timeline": plan.slot.timeline,
            "tidemark_checkpoint": plan.name,
            "tidemark_uid": table.uid,
            "tidemark_job": job,
        },
        app=(f"{plan.pipeline}/{plan.slot.timeline}/{table.owner}/base", found.id * 2**20),
        drop=wanted.drop(table.base),
    )
