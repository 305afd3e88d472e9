"""The erasure of a key: recorded, rewritten, revised, until a search finds it nowhere (ADR 0015).

The order is the proof. The record is put first: plans made since then drop the records that it blocks. Plans made
before are aborted or published. Files are written again and committed; then manifests are revised: first the geneses of
timelines without a checkpoint of their own, then checkpoints, newest first. Then everything is searched once more. A
process that has used an old revision in the meantime either notices the revision, or its result is found. If the
erasure is killed at any point, a repetition does the rest.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator, state_erased
from tidemark.coordinator.checkpoints.idle import completed_idle
from tidemark.coordinator.records.hold_records import Holds
from tidemark.coordinator.records.objects import encode
from tidemark.coordinator.records.publication_steps import PublicationSteps
from tidemark.coordinator.records.states import SealedPlan
from tidemark.coordinator.records.timelines import Erasures, is_stillborn, revision_of
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.coordinator.retention.erasure_search import Entry, KeyOccurrences, Searcher, list_waiting_plans
from tidemark.coordinator.retention.file_rewrites import Rewriter, Rewritten
from tidemark.coordinator.retention.open_jobs import erasure_job
from tidemark.errors import ConflictError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint, Revised
from tidemark.model.checkpoint.store_objects import Genesis, JobEnd, JobRecord
from tidemark.model.core.canonical import sha256_of
from tidemark.model.retention.erasure import ErasureEnd, ErasureRecord
from tidemark.ports import KeyFiles, PutOutcome, StateTables, TableFiles

ROUNDS = 5
"""The most rounds of an erasure while the pipeline continues to make checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRequest:
    """An erasure as the command line or a program requests it.

    Attributes:
        uid: uid of the operator.
        key: values of its key columns, as text.
        by: of a FlatMap, which has no keys, the columns of its rows that hold these values.
        forever: block future records of the key, too; otherwise, records that are read later count.
        owner: the requester.
        now: delete old files at once, instead of with the next sweep.
    """

    uid: str
    key: tuple[str, ...]
    forever: bool = False
    owner: str = ""
    now: bool = False
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """The result of an erasure.

    Attributes:
        number: number of its record; 0 if there was nothing to erase or to block.
        restore_points: names of the restore points that were revised because they held the key.
        files: number of files that were written again.
        rows: number of rows of the key in these files.
    """

    number: int
    restore_points: tuple[str, ...] = ()
    files: int = 0
    rows: int = 0


@dataclass(frozen=True, kw_only=True)
class Eraser:
    """Erases a key of one operator.

    Attributes:
        coordinator: of the pipeline; its listener is called at steps `erase.record`, `.job`, `.plans`, `.files`,
            `.commit`, `.revision` and `.end`.
        tables: commits to tables.
        files: files of the tables.
        logs: logs of the tables.
        request: the request.
        key: the request's key, typed as the operator's key columns.
        columns: of a FlatMap, name and SQL type of the columns that the request names.
    """

    coordinator: CheckpointCoordinator
    tables: StateTables
    files: KeyFiles
    logs: TableFiles
    request: ErasureRequest
    key: tuple[object, ...]
    columns: tuple[tuple[str, str], ...] = ()

    @property
    def searcher(self) -> Searcher:
        """Searches for the key."""
        return Searcher(
            coordinator=self.coordinator,
            tables=self.tables,
            files=self.files,
            uid=self.request.uid,
            key=self.key,
            columns=self.columns,
        )

    def erase(self) -> Erased:
        """Erases the key from every restore point that is kept; a repetition finishes what an earlier call left.

        Raises:
            ConflictError: a restore point that holds the key is under a legal hold; another process commits to a table
                at the same time; or the pipeline continues so fast that the key is found again in every round.
            CorruptObjectError, StoreError: an object or a file is damaged, or cannot be read or written.
        """
        searcher, done, record = self.searcher, Erased(number=0), None
        for n in range(ROUNDS):
            found = searcher.search_keys()
            refuse_held(self.coordinator, found)
            record = self._find_or_put_record(found, record)
            if record is None:
                return done
            # At least one round: a plan made before the record was put is either found, or finds a newer head.
            if n and found.is_clean and not self._is_waiting(record, found):
                self._end(record, done)
                return replace(done, number=record.number)
            done = _added(done, self._round(record, found, searcher), record)
        raise ConflictError(
            f"the key was found again after {ROUNDS} rounds: the pipeline keeps completing checkpoints with it",
            safe="every revised restore point is whole, and without the key.",
            next="repeat the erasure, with --block if the key must never count again.",
        )

    def _round(self, record: ErasureRecord, found: KeyOccurrences, searcher: Searcher) -> Erased:
        with self._job(record) as job:
            self._settle_plans(record, found)
            found = searcher.search_keys()
            rewriter = Rewriter(
                coordinator=self.coordinator, tables=self.tables, logs=self.logs, searcher=searcher, job=job
            )
            done = rewriter.rewrite(found)
            names = self._revise(record, found, done)
        held = [h for files in found.files.values() for h in files.values()]
        return Erased(number=record.number, restore_points=names, files=len(held), rows=sum(h.rows for h in held))

    def _find_or_put_record(self, found: KeyOccurrences, last: ErasureRecord | None) -> ErasureRecord | None:
        """The record of this erasure: an open one that covers all offsets that were read, or a new one."""
        wanted, erasures = self.request, Erasures(self.coordinator.objects)
        reached, same = found.reached, [r for r in erasures.open() if _is_same(r, wanted, found.uids)]
        if same and (found.is_clean or same[-1].covers(reached)):
            return same[-1]
        # Another call has ended the record, but this call has revised the parent of a new timeline since: it must
        # settle that.
        is_left = last is not None and bool(found.survey.stillborn)
        # A target may hold the key where no restore point does, and its next step erases the keys of records.
        is_published = last is None and bool(PublicationSteps(self.coordinator.objects).places(found.uids))
        is_needed = is_left or is_published or (wanted.forever and not self._is_blocked(found.uids))
        if found.is_clean and not is_needed:
            return None
        while True:
            number = erasures.newest() + 1
            record = ErasureRecord(
                number=number,
                uids=tuple(sorted(found.uids)),
                key=wanted.key,
                ends=found.ends,
                reached=reached,
                forever=wanted.forever,
                owner=wanted.owner,
                at_ms=self.coordinator.clock.now_ms(),
                write_id=self.coordinator.write_ids(),
                columns=self.columns,
            )
            with self._step("record"):
                if erasures.series.put(number, record) is PutOutcome.WON:
                    return record

    def _is_waiting(self, record: ErasureRecord, found: KeyOccurrences) -> bool:
        """Whether a plan or a timeline was made from a state that was revised since."""
        c = self.coordinator
        late = (e for e in found.entries if isinstance(e, Genesis) and is_stillborn(c.objects, e))
        return any(late) or any(list_waiting_plans(c, found.survey, record.number))

    def _is_blocked(self, uids: frozenset[str]) -> bool:
        """Whether the key is already blocked for good."""
        erasures = Erasures(self.coordinator.objects)
        found = erasures.until(erasures.newest())
        return any(r.forever and _is_same(r, self.request, uids) for r in found)

    def _settle_plans(self, record: ErasureRecord, found: KeyOccurrences) -> None:
        """Ends plans that may still bring the key in: sealed plans are published, plans that read nothing completed."""
        c = self.coordinator
        for standing in list_waiting_plans(c, found.survey, record.number):
            with self._step("plans"):
                if isinstance(standing, SealedPlan):
                    c.publish(standing.plan, standing.sealed)
                elif standing.plan.slot.sequence == 1 and all(r.is_empty for _, r in standing.plan.ranges.items()):
                    completed_idle(c, standing.plan)
                else:
                    c.abort(standing.plan, state_erased(standing.plan))

    def _revise(self, record: ErasureRecord, found: KeyOccurrences, done: Rewritten) -> tuple[str, ...]:
        """Puts revisions. Returns the names of restore points that held the key.

        Heads are revised whether they held it or not, so that no plan made before the record takes an attempt.
        Timelines that begin at a revised checkpoint are revised too.
        """
        parents: dict[int, int] = {}
        checkpoints: list[Checkpoint] = []
        for entry in found.entries:
            if isinstance(entry, Checkpoint) and (entry.id in found.heads or done.changes(entry)):
                checkpoints.append(entry)
                parents[entry.id] = entry.revision + 1
        for genesis in (e for e in found.entries if isinstance(e, Genesis)):
            # A timeline that was begun while its parent was revised has been searched: from now on it counts like any
            # other.
            now, sinks = (self._revision_after(number, parents) for number in (genesis.parent, genesis.sinks_of))
            if genesis.is_behind(now, sinks) or done.changes(genesis):
                seen = sinks + 1 if genesis.sinks_revision else 0
                after = done.revise(replace(genesis, parent_revision=now, sinks_revision=seen), record.number)
                if not self._put(record, genesis, after, done):
                    return ()
        for checkpoint in checkpoints:
            if not self._put(record, checkpoint, done.revise(checkpoint, record.number), done):
                return ()
        return tuple(found.by_entry)

    def _revision_after(self, checkpoint: int, revised: Mapping[int, int]) -> int:
        """The revision of a manifest after this round; `revised` has those that it puts."""
        known = revised.get(checkpoint)
        return revision_of(self.coordinator.objects, checkpoint) if known is None and checkpoint else known or 0

    def _put(self, record: ErasureRecord, before: Entry, entry: Entry, done: Rewritten) -> bool:
        """Puts a revision. False if another erasure was faster, which ends this round: the next one searches again."""
        c, slot = self.coordinator, before.plan.slot if isinstance(before, Checkpoint) else before
        revised = Revised(
            revision=before.revision + 1,
            predecessor=sha256_of(encode(before)),
            erasure=record.number,
            commits=tuple(done.commits),
            at_ms=c.clock.now_ms(),
            write_id=c.write_ids(),
        )
        with self._step("revision"):
            key = keys.revision_key(slot.timeline, slot.sequence, revised.revision)
            return c.objects.put(key, replace(entry, revised=revised)) is PutOutcome.WON

    def _end(self, record: ErasureRecord, done: Erased) -> None:
        c = self.coordinator
        end = ErasureEnd(
            number=record.number,
            restore_points=done.restore_points,
            files=done.files,
            rows=done.rows,
            at_ms=c.clock.now_ms(),
            write_id=c.write_ids(),
        )
        with self._step("end"):
            # Also end the records that it supersedes: they covered fewer records of the same key.
            for same in Erasures(c.objects).open():
                if _is_same(same, self.request, frozenset(record.uids)):
                    c.objects.put(keys.erasure_end_key(same.number), replace(end, number=same.number))

    @contextmanager
    def _job(self, record: ErasureRecord) -> Iterator[str]:
        """Keeps a job open, so that files in its folders are left alone until the erasure has ended."""
        c, write_id = self.coordinator, self.coordinator.write_ids()
        job, opened = erasure_job(record.number, write_id), c.clock.now_ms()
        made = JobRecord(
            job=job, kind="erasure", uid=self.request.uid, checkpoint=0, opened_at_ms=opened, write_id=write_id
        )
        with self._step("job"):
            c.objects.put(keys.job_key(job), made)
        yield job
        c.objects.put(keys.job_end_key(job), JobEnd(job=job, done=True, at_ms=c.clock.now_ms(), write_id=write_id))

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        self.coordinator.listener(f"erase.{name}", "before")
        yield
        self.coordinator.listener(f"erase.{name}", "after")


def refuse_held(coordinator: CheckpointCoordinator, found: KeyOccurrences) -> None:
    """Refuses to erase a key from a restore point that is under a legal hold.

    Raises:
        ConflictError: the message names the savepoint, the holder, and the reason.
    """
    for name, hold in Holds(coordinator.objects).all().items():
        pinned = Savepoints(coordinator).find(name)
        if pinned is not None and pinned.checkpoint_name in found.by_entry:
            raise ConflictError(
                f"savepoint {name}, which holds the key, is under a legal hold of {hold.owner}: {hold.why}",
                safe="nothing was changed.",
                next=f"tidemark savepoint release {coordinator.name} {name}    (once it is over), then erase again.",
            )


def _is_same(record: ErasureRecord, wanted: ErasureRequest, uids: frozenset[str]) -> bool:
    is_key = record.key == wanted.key and tuple(name for name, _ in record.columns) == wanted.by
    return is_key and record.forever >= wanted.forever and set(record.uids) <= uids


def _added(before: Erased, now: Erased, record: ErasureRecord) -> Erased:
    names = dict.fromkeys((*before.restore_points, *now.restore_points))
    return Erased(
        number=record.number,
        restore_points=tuple(names),
        files=before.files + now.files,
        rows=before.rows + now.rows,
    )
