"""Sweeps beside everything that may need a file, interleaved at every operation on the store, a table or the disk.

Half of the schedules have one fold; the others the whole pipeline: a process with a Delta sink, one with an outbox for
Kafka, and dead letters.

Actors may die or sleep at any operation. Whatever an actor was told must stay true: what is pinned can be read, what
was begun can go on, and every checkpoint that was not released holds what it held.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from random import Random
from typing import Any

from greenlet import getcurrent

from tests.retention.leftovers import leaks, orphans, unsent
from tests.support.crashes import Killed
from tests.support.interleaving import Scheduler
from tests.support.retention import ASK, ONE_FOLD, OUTBOX, MemoryRetentionPipeline
from tests.support.simulation import Declared
from tests.support.stepped_store import SteppedStore
from tidemark.coordinator.checkpoints.jobs import open_job, refuse_doomed
from tidemark.coordinator.checkpoints.loop import CheckpointLoop, list_undelivered, record_delivery
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.timeline_tree import branches
from tidemark.coordinator.records.tombstones import of_checkpoints
from tidemark.coordinator.recovery.promotion import Promotion
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.timeline_end import Ending
from tidemark.coordinator.retention.root_set import Survey, collect_roots
from tidemark.declare.retention import Retention
from tidemark.errors import ConflictError, NotFoundError, StoreError, TidemarkError
from tidemark.model.checkpoint.manifest import Checkpoint, WrittenRun
from tidemark.model.checkpoint.object_keys import job_key
from tidemark.model.checkpoint.store_objects import Closing, JobRecord
from tidemark.model.retention.shared_state import StoredFile
from tidemark.testing.twin.memory import ManualClock, SequentialIds
from tidemark.testing.twin.table_files import MemoryTableFiles
from tidemark.testing.twin.tables import MemoryTables

Prepared = tuple[MemoryRetentionPipeline, dict[int, dict[str, list[str]]]]
Act = Callable[[], None]
PREPARED = 40
"""So many worlds are made, for schedules to begin in."""
FAST, WHOLE = (Declared(**{f.name: getattr(p, f.name) for f in fields(p)}) for p in (ONE_FOLD, OUTBOX))
EXPECTED = (ConflictError, NotFoundError)
"""What an actor may be told; a StoreError would say that a file has gone under its feet."""


@dataclass
class SlowTables(MemoryTables):
    """Tables whose writes and commits are steps."""

    pause: Callable[[str], None] = lambda what: None

    def write(self, folder: str, rows: Any) -> WrittenRun:
        self.pause(f"write {folder}")
        return super().write(folder, rows)

    def _latest(self, table: str) -> int:
        self.pause(f"version {table}")
        return super()._latest(table)

    def _compare_and_set(self, table: str, version: int, made: Any) -> bool:
        self.pause(f"commit {table}")
        return super()._compare_and_set(table, version, made)


@dataclass(frozen=True)
class SlowFiles(MemoryTableFiles):
    """A disk whose every file is a step."""

    pause: Callable[[str], None] = lambda what: None

    def files(self, folder: str) -> Sequence[StoredFile]:
        self.pause(f"files {folder}")
        return super().files(folder)

    def delete(self, paths: Iterable[str]) -> int:
        count = 0
        for path in paths:
            self.pause(f"delete {path}")
            count += super().delete([path])
        return count


class Stopped(BaseException):
    """A process is gone."""


def made(seed: int, whole: bool) -> "Prepared":
    """A line of checkpoints, perhaps compacted, forked, delivered, swept; and what each checkpoint held."""
    rng, held = Random(seed), dict[int, dict[str, list[str]]]()
    pipeline = WHOLE if whole else FAST
    retained = MemoryRetentionPipeline(pipeline=pipeline, store=SteppedStore(), tables=SlowTables())

    def keep(found: Checkpoint) -> None:
        held[found.id] = retained.rows(found)

    for _ in range(rng.randrange(2, 5)):
        keep(retained.checkpoint(rng.choice("ab")))
        if rng.random() < 0.4:
            retained.merge(rng.choice(list(pipeline.schemas())))
        if rng.random() < 0.5:
            deliver(retained)
    if rng.random() < 0.3:
        abandon(retained, rng.choice(sorted(held)))
    if rng.random() < 0.4:
        retained.fork("old", rng.choice(sorted(held)))
        if rng.random() < 0.5:
            keep(retained.checkpoint("a", timeline="old"))
    if rng.random() < 0.3:
        retained.sweep(Retention.keep_last(2), grace_ms=rng.choice((0, 10_000)))
    return retained, held


prepared = lru_cache(maxsize=None)(made)


def prepare() -> None:
    """Makes every world now: what a planted bug makes would be handed on to schedules without it."""
    for number in range(PREPARED):
        for whole in (False, True):
            prepared(number, whole)


def abandon(retained: MemoryRetentionPipeline, checkpoint: int) -> None:
    """Leaves a restore behind that died between its genesis and its closing."""

    def crash(step: str, moment: str) -> None:
        if (step, moment) == ("genesis", "after"):
            raise Stopped

    c = replace(retained.coordinator, listener=crash)
    with suppress(Stopped):
        Recovery(coordinator=c).restore(RestorePoint(checkpoint=retained.coordinator.checkpoint(checkpoint)))


def deliver(retained: MemoryRetentionPipeline, pause: Callable[[str], None] = lambda what: None) -> None:
    """Sends what waits in outboxes, oldest first."""
    for due in list_undelivered(retained.coordinator):
        pause(f"send {due.table.name} of {due.checkpoint.plan.name}")
        try:
            retained.held(due.table.handle)
        except StoreError:
            if due.checkpoint.id in {again.checkpoint.id for again in list_undelivered(retained.coordinator)}:
                raise
            continue  # sent, or left behind by a restore, meanwhile
        record_delivery(retained.coordinator, due)


def copied(world: "Prepared") -> "Prepared":
    """A world of its own with what another one has."""
    old, held = world
    tables = SlowTables(
        files=dict(old.tables.files),
        tables={name: list(versions) for name, versions in old.tables.tables.items()},
        oldest=dict(old.tables.oldest),
        log_checkpoints={name: set(found) for name, found in old.tables.log_checkpoints.items()},
    )
    retained = MemoryRetentionPipeline(
        pipeline=old.pipeline,
        store=SteppedStore(dict(old.store.objects)),
        log=deepcopy(old.log),
        tables=tables,
        clock=ManualClock(old.clock.ms),
        ids=SequentialIds(old.ids.last),
    )
    return retained, dict(held)


class Races:
    """One schedule, from a seed.

    Attributes:
        takes_the_whole: whether half of the schedules have the whole pipeline.
        erases: whether a process may erase.
        expected: what a process may be told.
    """

    takes_the_whole = True
    erases = False
    expected: tuple[type[TidemarkError], ...] = EXPECTED

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.scheduler = Scheduler(self.rng)
        self.dead: set[object] = set()
        self.pinned: list[tuple[str, int]] = []
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.disposed: set[str] = set()
        self.retained, self.held = copied(prepared(seed % PREPARED, self.takes_the_whole and seed % 2 == 1))
        self.retained.reads_ahead, self.retained.answers_late = seed % 4 >= 2, seed % 8 >= 6
        retained, pause = self.retained, self._pause
        assert isinstance(retained.tables, SlowTables)
        retained.store.pause, retained.tables.pause, retained.store.erases = pause, pause, self.erases
        retained.files = SlowFiles(retained.tables, pause)

    def _pause(self, what: str) -> None:
        """A process that was killed does nothing more, not even in its finally blocks."""
        if getcurrent() in self.dead:
            raise Killed
        try:
            self.scheduler.pause(what)
        except Killed:
            self.dead.add(getcurrent())
            raise

    def actors(self) -> "Races":
        """Fills the schedule: one or two of those that it is about, and some of those that they may harm."""
        rng, add = self.rng, self.scheduler.add
        name, act = self.lead
        for n in range(rng.choice((1, 1, 2))):
            add(f"{name}{n}", self._patient(act))
        for name in rng.sample(sorted(self.others), rng.randrange(1, 4)):
            add(name, self._patient(self.others[name]))
        return self

    @property
    def lead(self) -> tuple[str, Callable[[], None]]:
        """Who it is about."""
        return "sweep", self._sweep

    @property
    def others(self) -> dict[str, Callable[[], None]]:
        """Who may be beside them."""
        return {
            "pin": self._pin,
            "fork": self._overtaken(self._fork),
            "restore": self._restore,
            "finish": self._finish,
            "deliver": self._deliver,
            "run": self._overtaken(self._run),
            "merge": self._overtaken(self._merge),
            "export": self._export,
            "dispose": self._dispose,
            "end": self._end,
            "promote": self._promote,
        }

    def go(self) -> list[str]:
        """What was broken, in words; then the world is left to itself and swept twice."""
        self.scheduler.go(lambda: None)
        broken = [*self._broken(), *self._closed_orphans()]
        self.retained.sweep(Retention.keep_last(1))
        self.retained.sweep(Retention.keep_last(1))
        return [*broken, *self._broken(), *self._left(), *self._goes_on()]

    def _patient(self, act: Callable[[], None]) -> Callable[[], None]:
        def go() -> None:
            try:
                act()
            except self.expected as error:
                self.scheduler.trace.append(f"  {type(error).__name__}: {error.what}")

        return go

    def _overtaken(self, act: Callable[[], None]) -> Callable[[], None]:
        """What works on a timeline that is closed meanwhile works for nothing, and may find its files gone."""

        def go() -> None:
            timelines = self.retained.coordinator.timelines
            live = timelines.live()
            try:
                act()
            except StoreError:
                if live == timelines.live() and not any(self._is_closed(name) for name in self.begun):
                    raise

        return go

    def _any(self) -> int:
        return self.rng.choice(sorted(self.held))

    def _sweep(self) -> None:
        self.retained.sweep(Retention.keep_last(1))

    def _pin(self) -> None:
        name, number = f"s{self.rng.randrange(10**6)}", self._any()
        self.retained.save(name, number)
        self.pinned.append((name, number))

    def _fork(self) -> None:
        name = f"f{self.rng.randrange(10**6)}"
        found = self.retained.coordinator.checkpoint(self._any())
        self.retained.recovery.fork(RestorePoint(checkpoint=found), name)
        self.begun.append(name)
        self._run(name)

    def _restore(self) -> None:
        found = self.retained.coordinator.checkpoint(self._any())
        self.retained.recovery.restore(RestorePoint(checkpoint=found))

    def _finish(self) -> None:
        """Repeats a restore that died, in the words that it was asked in."""
        for genesis in (b.genesis for b in branches(self.retained.coordinator.timelines) if b.fate == "not live"):
            assert genesis is not None, "the first timeline was live"
            found = self.retained.coordinator.checkpoint(genesis.parent)
            self.retained.recovery.restore(RestorePoint(checkpoint=found))
            break

    def _deliver(self) -> None:
        deliver(self.retained, self._pause)

    def _run(self, timeline: str | None = None) -> None:
        retained = self.retained
        retained.pay(self.rng.choice(("a", "b", "") if retained.pipeline is WHOLE else "ab"))
        CheckpointLoop(
            coordinator=retained.coordinator, pipeline=retained.pipeline, execute=retained.run, timeline=timeline
        ).run_once(ASK)

    def _merge(self) -> None:
        """A compaction as the product has it: job record, files, commit, record."""
        retained = self.retained
        newest, uid = next(retained.coordinator.checkpoints(), None), self.rng.choice(list(retained.pipeline.schemas()))
        if self.rng.random() < 0.5:
            retained.merge_rows(self.rng.choice((0, 2)))
            return
        if newest is None or not newest.handles[uid]:
            return
        job = f"{retained.ids.last + 1:032x}"
        opened = JobRecord(
            job=job, kind="compaction", uid=uid, checkpoint=newest.id,
            opened_at_ms=retained.clock.now_ms(), write_id=job,
        )  # fmt: skip
        retained.coordinator.objects.put(job_key(job), opened)
        refuse_doomed(retained.coordinator, newest.id)
        retained.compact(newest, uid, newest.handles[uid], job=job)

    def _export(self) -> None:
        """Reads a checkpoint for a while, under a job; what it has begun it can end."""
        found = self.retained.coordinator.checkpoint(self._any())
        with open_job(self.retained.coordinator, "export", found.id):
            for _ in range(40):
                self.retained.coordinator.objects.list("ids/")
                if self.retained.rows(found) != self.held[found.id]:
                    raise AssertionError(f"an export of {found.plan.name} reads something else")

    def _dispose(self) -> None:
        for record in self.retained.savepoints.list()[:1]:
            self.retained.savepoints.dispose(record.name)
            self.disposed.add(record.name)

    def _forks(self) -> list[str]:
        """Timelines that may become live: forks, and what restores left that died."""
        timelines = self.retained.coordinator.timelines
        return [b.timeline for b in branches(timelines) if b.fate in {"fork", "not live"}]

    def _is_closed(self, name: str) -> bool:
        return isinstance(self.retained.coordinator.head(name).entry, Closing)

    def _end(self) -> None:
        found = self._forks()
        for name in self.rng.sample(found, min(1, len(found))):
            Ending(coordinator=self.retained.coordinator).close(name)
            self.ended.append(name)

    def _promote(self) -> None:
        for name in self._forks()[-1:]:
            Promotion(coordinator=self.retained.coordinator).promote(name, discard=True)

    def _broken(self) -> list[str]:
        """What does not hold of checkpoints and savepoints; reads as the hub, so that nobody goes on."""
        c, found = self.retained.coordinator, []
        gone = {name for name, t in of_checkpoints(c.objects).items() if t.confirmed}
        for checkpoint in c.timelines.all():
            if checkpoint.plan.name in gone:
                continue
            try:
                rows = self.retained.rows(checkpoint)
            except StoreError as error:
                found.append(f"I5: {checkpoint.plan.name} is kept, and {error.what}")
                continue
            if rows != self.held.get(checkpoint.id, rows):
                found.append(f"I4: {checkpoint.plan.name} holds something else than it did")
        found += [f"I5: an outbox waits, and {x.plan.name} is released" for x in unsent(c) if x.plan.name in gone]
        standing = [(name, number) for name, number in self.pinned if name not in self.disposed]
        found += [f"I5: savepoint {n} was promised, chk-{i} is released" for n, i in standing if f"chk-{i}" in gone]
        return found

    def _closed_orphans(self) -> list[str]:
        """Closes what nobody was promised, and says what cannot be closed."""
        retained, found = self.retained, []
        left = orphans(retained.coordinator, {*self.begun, "old"})
        if left:
            retained.checkpoint("a")  # the place that a promote or a restore has claimed is taken now
        for name in left:
            try:
                Ending(coordinator=retained.coordinator).close(name)
            except ConflictError as error:
                if "is in progress" not in error.what:
                    found.append(f"{name} was never live, and cannot be closed: {error.what}")
        return found

    def _left(self) -> list[str]:
        """What retention keeps for nobody, after two sweeps with nobody beside them."""
        return leaks(self.retained)

    def _goes_on(self) -> list[str]:
        """Every timeline that was promised, and the live one, takes a checkpoint."""
        c, found = self.retained.coordinator, []
        survey = collect_roots(c, Retention.keep_last(1))
        kept = survey.lines.checkpoints
        found += [f"{name} was ended, and keeps {kept[name]}" for name in self._kept_by_nobody(survey)]
        if self._is_closed(c.timelines.live()):
            found.append(f"I6: the live timeline {c.timelines.live()} is closed")
        for name in {*self.begun, c.timelines.live()}:
            if self._is_closed(name):
                continue
            try:
                self.retained.rows(self.retained.checkpoint("a", timeline=name))
            except (StoreError, NotFoundError) as error:
                found.append(f"I10: timeline {name} does not go on: {error.what}")
        return found

    def _kept_by_nobody(self, survey: Survey) -> list[str]:
        """Timelines that were ended, and keep checkpoints that nothing else keeps, after two sweeps."""
        lines, reasons, rule = survey.lines, survey.reasons, {"newest", "keep_last(1)"}
        came_from = list(lines.line(lines.once_live[-1]))
        unpinned = {
            name
            for name, own in lines.checkpoints.items()
            if any(rule & {*reasons[c.id]} and c not in came_from for c in own)
        }
        return sorted(unpinned & set(self.ended))


@dataclass(frozen=True)
class Explored:
    """One schedule: what was broken, and who did what."""

    found: list[str]
    trace: list[str]


def explore(seed: int) -> Explored:
    """Plays one schedule."""
    races = Races(seed).actors()
    try:
        found = races.go()
    except Exception as error:  # whatever an actor lets escape is a find
        found = [f"{type(error).__name__} escaped: {error!r}"]
    return Explored(found, races.scheduler.trace)


def repro(seed: int, bug: str | None = None) -> str:
    """The line that repeats a schedule."""
    return f"PYTHONPATH=include python -m tests.retention.races --seed {seed}" + (f" --bug {bug}" if bug else "")


def main() -> int:
    """The command: `--seed N` prints a trace, `--schedules N` plays that many."""
    from tests.retention.retention_bugs import BUGS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--bug", choices=sorted(BUGS))
    asked = parser.parse_args()
    prepare()
    with BUGS[asked.bug]() if asked.bug else ExitStack():
        if asked.seed is not None:
            played = explore(asked.seed)
            print(*played.trace, *played.found, sep="\n")
            return bool(played.found)
        for seed in range(asked.first, asked.first + asked.schedules):
            if found := explore(seed).found:
                print(*found, repro(seed, asked.bug), sep="\n")
                return 1
    print(f"{asked.schedules} schedules from seed {asked.first}, 0 violations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
