"""The sweep releases checkpoints, then deletes files that nothing needs. After a crash, a repetition finishes it.

The order is the proof. Tombstones are raised; then all references are collected again. A tombstone whose checkpoint is
pinned is withdrawn, any other one is confirmed, and from then on its checkpoint is released. Then the files are listed,
and everything that may hold them is collected once more. Free files are recorded, and deleted once they have been free
for the grace time. Two sweeps at once reach the same decision about each tombstone, and deleting a file twice does no
harm. Logs are trimmed last: entries older than the oldest version still in use are deleted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.tombstones import Tombstones
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.coordinator.retention.deletion_plan import DeletionPlanner, list_files, sweeps_of
from tidemark.coordinator.retention.root_set import Survey, collect_roots
from tidemark.declare.retention import Retention
from tidemark.errors import ConflictError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import JobEnd
from tidemark.model.retention.deletion import DeletionPlan, FreeFile, LogPrefix
from tidemark.model.retention.manifest_lines import ManifestLine
from tidemark.model.retention.savepoint import TombstoneKind, TombstoneRecord
from tidemark.model.retention.sweep_records import SweepRecord, SweptRecord
from tidemark.ports import PutOutcome, TableFiles

GRACE_MS = 3_600_000
"""The default grace time, an hour: how long a file has been free before it is deleted."""
BATCH = 1000
"""Number of files deleted in one step; on S3 one call."""

VerifyCheckpoint = Callable[[Checkpoint], None]
"""Raises if a checkpoint is not whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The result of a sweep.

    Attributes:
        released: checkpoints that this sweep has released.
        disposed: savepoints that it has disposed of, because they had expired or named a released checkpoint.
        ended: jobs that it has given up.
        deleted: files that it has deleted.
        waiting: free files whose grace time has not ended.
        log_files: log files that it has deleted.
        plan: the plan that it executed.
    """

    released: tuple[str, ...]
    disposed: tuple[str, ...]
    ended: tuple[str, ...]
    deleted: tuple[FreeFile, ...]
    waiting: tuple[FreeFile, ...]
    log_files: int
    plan: DeletionPlan

    @property
    def bytes(self) -> int:
        """Bytes of the deleted files."""
        return sum(f.bytes for f in self.deleted)


@dataclass(frozen=True, kw_only=True)
class Sweeper:
    """Sweeps one pipeline.

    Attributes:
        coordinator: of the pipeline; its listener is called at steps `sweep.jobs`, `.savepoints`, `.tombstones`,
            `.decisions`, `.record`, `.files`, `.logs` and `.end`.
        files: files of its tables.
        rule: the retention rule; None = keep all checkpoints.
        grace_ms: how long a file has been free before it is deleted.
        verify: raises if a checkpoint is not whole; called for the newest ones before anything is released.
    """

    coordinator: CheckpointCoordinator
    files: TableFiles
    rule: Retention | None
    grace_ms: int = GRACE_MS
    verify: VerifyCheckpoint | None = None

    def sweep(self) -> Swept:
        """Releases checkpoints that the rule does not keep and nothing pins; deletes files after their grace time.

        Raises:
            DamagedError: the newest checkpoint of a timeline is not whole, so an older one may be needed for a restore.
            CorruptObjectError: an object is damaged, so it is unknown which files it needs.
            StoreError: the store or the disk failed, or a log lacks the files of a manifest.
        """
        ended = self._end_jobs(collect_roots(self.coordinator, self.rule))
        disposed = self._end_savepoints(collect_roots(self.coordinator, self.rule))
        released = self._release(collect_roots(self.coordinator, self.rule))
        found = list_files(self.files, self.coordinator.name)
        survey = collect_roots(self.coordinator, self.rule)
        judge = DeletionPlanner(coordinator=self.coordinator, files=self.files, survey=survey)
        plan, registry = judge.plan(found, after_release=False), judge.registry(after_release=False)
        logs = judge.prefixes(found, registry, grace_ms=self.grace_ms)
        number, record = self._record(plan, released)
        due = tuple(f for f in plan.free if record.free[f.path] + self.grace_ms <= plan.now_ms)
        self._delete(due)
        log_files = self._trim(logs)
        self._end(number, due, log_files)
        return Swept(
            released=released,
            disposed=disposed,
            ended=ended,
            deleted=due,
            waiting=tuple(f for f in plan.free if f not in set(due)),
            log_files=log_files,
            plan=plan,
        )

    def _end_jobs(self, survey: Survey) -> tuple[str, ...]:
        c = self.coordinator
        for job in survey.jobs.overdue:
            with self._step("jobs"):
                end = JobEnd(job=job.job, done=False, at_ms=c.clock.now_ms(), write_id=c.write_ids())
                c.objects.put(keys.job_end_key(job.job), end)
        return tuple(job.job for job in survey.jobs.overdue)

    def _end_savepoints(self, survey: Survey) -> tuple[str, ...]:
        """Ends savepoints that have expired, and those whose maker came too late and died before it could notice."""
        done = []
        for record in (*survey.names.expired, *survey.names.void):
            try:
                Savepoints(self.coordinator).dispose(record.name)
            except ConflictError:
                continue  # something needs it after all; the next survey lists what
            done.append(record.name)
        return tuple(done)

    def _release(self, survey: Survey) -> tuple[str, ...]:
        """Raises tombstones, collects references again, and decides about every undecided tombstone."""
        subsumed = survey.subsumed
        if subsumed and self.verify is not None:
            for head in _heads(survey):
                entry = self.coordinator.objects.slot(head.timeline, head.sequence)
                assert isinstance(entry, Checkpoint)  # noqa: S101  (for the type checker; the entry never changes)
                self.verify(entry)
        why = f"by {survey.rule}" if survey.rule is not None else "by hand"
        for found in subsumed:
            place = keys.slot_key(found.timeline, found.sequence)
            with self._step("tombstones"):
                self._tombstones.raise_for(TombstoneKind.CHECKPOINT, found.name, why, place)
        undecided = [t for t in self.coordinator.index.tombstones(self.coordinator.objects).values() if not t.confirmed]
        if not undecided:
            return ()
        again = collect_roots(self.coordinator, self.rule)
        return tuple(sorted((t.name for t in undecided if self._decide(t, again)), key=lambda name: int(name[4:])))

    def _decide(self, tombstone: TombstoneRecord, again: Survey) -> bool:
        """Decides whether a checkpoint is released; a pin that was found after its tombstone was raised keeps it."""
        pinned = again.pin_reasons(tombstone)
        with self._step("decisions"):
            if pinned:
                self._tombstones.withdraw(tombstone, f"kept by {'; '.join(pinned)}")
                return False
            return self._tombstones.confirm(tombstone)

    def _record(self, plan: DeletionPlan, released: tuple[str, ...]) -> tuple[int, SweepRecord]:
        """Records free files and since when; of two concurrent sweeps, the second uses the findings of both."""
        c, series = self.coordinator, sweeps_of(self.coordinator)
        while True:
            number, last = series.newest()
            before = {} if last is None else last.free
            record = SweepRecord(
                rule=plan.rule,
                released=released,
                free={f.path: min(before.get(f.path, plan.now_ms), plan.now_ms) for f in plan.free},
                grace_ms=self.grace_ms,
                at_ms=plan.now_ms,
                write_id=c.write_ids(),
            )
            with self._step("record"):
                if series.put(number + 1, record) is PutOutcome.WON:
                    return number + 1, record

    def _delete(self, due: tuple[FreeFile, ...]) -> None:
        for start in range(0, len(due), BATCH):
            with self._step("files"):
                self.files.delete(f.path for f in due[start : start + BATCH])

    def _trim(self, logs: tuple[LogPrefix, ...]) -> int:
        count = 0
        for prefix in logs:
            with self._step("logs"):
                self.files.ensure_log_checkpoint(prefix.table, prefix.until)
                count += self.files.delete(f.path for f in prefix.files)
        return count

    def _end(self, number: int, due: tuple[FreeFile, ...], log_files: int) -> None:
        c = self.coordinator
        record = SweptRecord(
            files=len(due),
            bytes=sum(f.bytes for f in due),
            log_files=log_files,
            at_ms=c.clock.now_ms(),
            write_id=c.write_ids(),
        )
        with self._step("end"):
            c.objects.put(keys.swept_key(number), record)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        self.coordinator.listener(f"sweep.{name}", "before")
        yield
        self.coordinator.listener(f"sweep.{name}", "after")

    @property
    def _tombstones(self) -> Tombstones:
        c = self.coordinator
        return Tombstones(objects=c.objects, clock=c.clock, write_ids=c.write_ids)


def _heads(survey: Survey) -> Iterator[ManifestLine]:
    """The newest kept checkpoint of every timeline that is not closed."""
    for name in (survey.lines.once_live[-1], *survey.lines.forks):
        newest = next(survey.lines.line(name), None)
        if newest is not None:
            yield newest
