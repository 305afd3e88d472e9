"""A seeded walk over checkpoints, compactions, timelines, savepoints and sweeps, some of which die halfway.

The oracle is made of plain dicts. It says which checkpoints a sweep releases, which files must be there afterwards and
which must be gone; what a checkpoint holds was copied when it was completed.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from tests.support.crashes import CrashAt, Killed
from tests.support.retention import ASK, MemoryCache, RetentionPipeline
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.records.manifest_index import ManifestIndex
from tidemark.coordinator.records.states import Aborted, Completed, OpenPlan
from tidemark.coordinator.records.tombstones import of_checkpoints
from tidemark.coordinator.retention.deletion_plan import DeletionPlanner
from tidemark.coordinator.retention.root_set import collect_roots
from tidemark.declare.retention import Retention
from tidemark.errors import ConflictError, ReleasedError
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Failure, Genesis

Rows = dict[str, list[str]]
DAY_MS = 86_400_000


@dataclass
class Known:
    """A completed checkpoint, as it was when it was completed."""

    timeline: str
    parent: int | None
    at_ms: int
    rows: Rows
    files: set[str]


@dataclass
class RetentionTimeline:
    """A timeline."""

    own: list[int] = field(default_factory=list)
    begins: int | None = None
    closed: str | None = None
    open_id: int | None = None
    sinks_of: int | None = None
    """The checkpoint whose sink rows a restore has kept."""


@dataclass
class RetentionOracle:
    """What must be true, from plain values."""

    known: dict[int, Known] = field(default_factory=dict)
    lines: dict[str, RetentionTimeline] = field(default_factory=lambda: {"t1": RetentionTimeline()})
    once_live: list[str] = field(default_factory=lambda: ["t1"])
    savepoints: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)

    @property
    def live(self) -> str:
        return self.once_live[-1]

    def newest(self, timeline: str) -> int | None:
        line = self.lines[timeline]
        return line.own[-1] if line.own else line.begins

    def sinks(self, timeline: str) -> int | None:
        """The checkpoint whose sink rows a timeline has."""
        line = self.lines[timeline]
        return line.own[-1] if line.own else line.sinks_of or line.begins

    def pins(self, now_ms: int) -> set[int]:
        """What must stay whatever the rule says."""
        found = {n for n, until in self.savepoints.values() if until is None or until > now_ms}
        for name, line in self.lines.items():
            if line.closed is None and not line.own and line.begins is not None:
                found |= {line.begins} | ({line.sinks_of} if line.sinks_of is not None else set())
            newest = self.newest(name)
            if line.closed is None and line.open_id is not None and newest is not None:
                found.add(newest)
        return found

    def sweep(self, last: int | None, now_ms: int) -> None:
        """A sweep by `keep_last(last)`; None = by no rule."""
        if last is not None:
            kept = self.pins(now_ms) | self._kept(last)
            self.released |= set(self.known) - kept
        over = [n for n, (at, until) in self.savepoints.items() if until is not None and until <= now_ms]
        for name in over:
            if not self._needed(self.savepoints[name][0]):
                del self.savepoints[name]

    def _needed(self, checkpoint: int) -> bool:
        """Whether a savepoint of it cannot be disposed."""
        for name, line in self.lines.items():
            newborn = not line.own and line.begins == checkpoint
            if line.closed is None and (newborn or (line.open_id is not None and self.newest(name) == checkpoint)):
                return True
        return False

    def _kept(self, last: int) -> set[int]:
        lineage, number = [], self.newest(self.live)
        while number is not None:
            lineage.append(number)
            number = self.known[number].parent
        together = [n for name in self.once_live for n in self.lines[name].own]
        histories = [
            lineage,
            sorted(together, key=lambda n: (self.known[n].at_ms, n), reverse=True),
            *(line.own[::-1] for name, line in self.lines.items() if line.closed is None and name != self.live),
        ]
        return {n for history in histories for n in [x for x in history if x not in self.released][:last]}

    def needed(self) -> set[str]:
        """Files that must be there."""
        return {path for n, known in self.known.items() if n not in self.released for path in known.files}


def _is_of(key: str, row: str) -> bool:
    return f"'account': '{key}'" in row


class RetentionWalk:
    """One walk over one pipeline."""

    def __init__(self, retained: Any, seed: int, *, erases: bool = False) -> None:
        self.retained: RetentionPipeline = retained
        self.rng, self.oracle = Random(seed), RetentionOracle()
        self.trace: list[str] = []
        self.number = 0
        self.pending: dict[str, list[tuple[set[str], bool]]] = {}
        """Per timeline the files of compactions, and whether a plan was made since that may adopt them."""
        self.swept = self.freed = self.erased = self.ended = 0
        self.erases = erases

    def steps(self, count: int) -> "RetentionWalk":
        """So many verbs."""
        verbs: dict[Callable[[], None], int] = {
            self.advance: 12,
            self.merge: 4,
            self.leave_open: 2,
            self.abandon: 1,
            self.fork: 2,
            self.restore: 2,
            self.promote: 1,
            self.end: 2,
            self.jump: 1,
            self.save: 2,
            self.dispose: 1,
            self.sweep: 5,
        } | ({self.erase: 4} if self.erases else {})
        for _ in range(count):
            (verb,) = self.rng.choices(list(verbs), list(verbs.values()))
            self.trace.append(verb.__name__)
            verb()
        self.sweep()
        return self

    def advance(self) -> None:
        """A checkpoint on any open timeline; what was left open is finished."""
        name = self._timeline()
        if self.oracle.lines[name].open_id is None:
            self._planned(name)
        self._completed(name, self.retained.checkpoint(*self._accounts(), timeline=name))

    def _completed(self, name: str, found: Checkpoint) -> None:
        line = self.oracle.lines[name]
        held = self._known(found, name)
        assert line.open_id in (None, found.id)
        line.own.append(found.id)
        line.open_id = None
        self.oracle.known[found.id] = held
        self.pending[name] = [(files, planned) for files, planned in self.pending.get(name, []) if not planned]

    def merge(self) -> None:
        """A compaction of the live timeline's newest checkpoint, for the next plan to adopt."""
        before, live = self.retained.data(), self.oracle.live
        uid = self.rng.choice(("accounts", "teller", ""))
        if not self.oracle.lines[live].own:
            return
        if self.retained.merge(uid) if uid else self.retained.merge_rows(self.rng.choice((0, 2, 3))):
            self.pending.setdefault(live, []).append((self.retained.data() - before, False))

    def leave_open(self) -> None:
        """A plan whose attempt dies on the way."""
        name = self._timeline()
        self.retained.pay(*self._accounts())
        found = self.retained.coordinator.trigger(self.retained.pipeline, ASK, name)
        if isinstance(found, Completed):  # it had died behind its seal
            self._completed(name, found.checkpoint)
            return
        assert isinstance(found, OpenPlan)
        if self.oracle.lines[name].open_id is None:
            self._planned(name)
        self.oracle.lines[name].open_id = found.plan.id
        owned = self.retained.coordinator.begin(found.plan)
        if isinstance(owned, OwnedAttempt) and self.rng.random() < 0.7:
            crash = CrashAt(self.rng.randrange(1, 30))
            try:
                self.retained.run(owned, crash)
            except Killed:
                self.trace.append(f"  died at {':'.join(crash.at)}")

    def abandon(self) -> None:
        """An open plan is given up."""
        for name, line in self.oracle.lines.items():
            if line.open_id is not None and line.closed is None:
                plan = self.retained.coordinator.plan_of(line.open_id)
                self.retained.coordinator.abort(plan, Failure(reason=FailureReason.DECLINED, message="x", next="y"))
                if isinstance(self.retained.coordinator.state(plan), OpenPlan):
                    raise AssertionError("it is still open")
                if type(self.retained.coordinator.state(plan)).__name__ == "Aborted":
                    line.open_id = None
                    self.pending[name] = [(files, False) for files, _ in self.pending.get(name, [])]
                return

    def fork(self) -> None:
        """Of any checkpoint; a released one is refused."""
        number = self._any()
        if number is None:
            return
        name = self._name("f")
        if number in self.oracle.released:
            self._refused(lambda: self.retained.fork(name, number))
            return
        self.retained.fork(name, number)
        self.oracle.lines[name] = RetentionTimeline(begins=number)

    def restore(self) -> None:
        """To any checkpoint; a released one is refused."""
        number = self._any()
        if number is None:
            return
        if number in self.oracle.released:
            self._refused(lambda: self.retained.restore(number))
            return
        head = self.oracle.sinks(self.oracle.live)
        closing = self.retained.restore(number)
        self.oracle.lines[closing.successor] = RetentionTimeline(begins=number, sinks_of=head)
        self._close(closing.successor)

    def promote(self) -> None:
        """A fork becomes live."""
        forks = [n for n, line in self.oracle.lines.items() if n != self.oracle.live and line.closed is None]
        if forks:
            name = self.rng.choice(forks)
            self.retained.promote(name)
            self._close(name)

    def end(self) -> None:
        """A fork is closed, unless a plan of its is open."""
        forks = [n for n, line in self.oracle.lines.items() if n != self.oracle.live and line.closed is None]
        if not forks:
            return
        name = self.rng.choice(forks)
        if self.oracle.lines[name].open_id is not None:
            with pytest.raises(ConflictError, match="is in progress on timeline"):
                self.retained.end(name)
            return
        self.retained.end(name)
        self.oracle.lines[name].closed = "nobody"
        self.ended += 1

    def jump(self) -> None:
        """The clock is set a day forward, or back (fault 24): nothing of what must be true changes."""
        clock = self.retained.clock
        clock.ms += self.rng.choice((DAY_MS, -DAY_MS if clock.ms > 2 * DAY_MS else DAY_MS))

    def save(self) -> None:
        """A name for any checkpoint, perhaps for a while only."""
        number, name = self._any(), self._name("s")
        if number is None:
            return
        until = self.rng.choice((None, self.retained.clock.now_ms() + self.rng.randrange(1, 20_000)))
        if number in self.oracle.released:
            self._refused(lambda: self.retained.save(name, number, until))
            return
        self.retained.save(name, number, until)
        self.oracle.savepoints[name] = (number, until)

    def dispose(self) -> None:
        """A name ends, unless it is needed."""
        for name in sorted(self.oracle.savepoints)[:1]:
            try:
                self.retained.savepoints.dispose(name)
                del self.oracle.savepoints[name]
            except ConflictError:
                self.trace.append("  needed")

    def sweep(self) -> None:
        """A sweep, which may die anywhere and is repeated; then all is compared."""
        last = self.rng.choice((1, 1, 2, 3, 5, None))
        rule = None if last is None else Retention.keep_last(last)
        before = self.retained.data()
        crash = CrashAt(self.rng.choice((None, self.rng.randrange(1, 40))))
        try:
            self.retained.sweep(rule, crash=crash)
        except Killed:
            self.trace.append(f"  died at {':'.join(crash.at)}")
            self.retained.sweep(rule)
        self.oracle.sweep(last, self.retained.clock.now_ms())
        self.swept += 1
        self.freed += len(before - self.retained.data())
        self.compare()

    def erase(self) -> None:
        """A key leaves every restore point; it may die anywhere and is repeated, perhaps after something else."""
        uid, key = self.rng.choice(("accounts", "teller")), self.rng.choice(("a", "b", "c"))
        crash = CrashAt(self.rng.choice((None, self.rng.randrange(1, 25))))
        before = self._holding(uid, key)
        try:
            done = self.retained.erase(uid, key, crash)
        except Killed:
            self.trace.append(f"  died at {':'.join(crash.at)}")
            self._look_at_plans()
            self._forget(uid, key, partly=True)
            if self.rng.random() < 0.5:
                self.advance()
            if self.rng.random() < 0.3:
                self.merge()
            done = self.retained.erase(uid, key)
        self.erased += bool(before)
        assert bool(before) <= bool(done.number) or any(crash.at), "it was there, and nothing was done"
        self._look_at_plans()
        self._forget(uid, key)
        assert not self._holding(uid, key), f"{key} of {uid} is still in {self._holding(uid, key)}"
        self.compare(swept=False)

    def _holding(self, uid: str, key: str) -> list[str]:
        found = [self.retained.coordinator.checkpoint(n) for n in self.oracle.known if n not in self.oracle.released]
        return [c.plan.name for c in found if any(_is_of(key, r) for of in self._of(uid, c).values() for r in of)]

    def _of(self, uid: str, found: Checkpoint) -> dict[str, list[str]]:
        """What an erasure reaches: the state, the sink and the dead letters of an operator."""
        return {kind: rows for kind, rows in self.retained.rows(found).items() if kind.startswith(f"{uid} ")}

    def _look_at_plans(self) -> None:
        """An erasure aborts open plans and publishes sealed ones."""
        for name, line in self.oracle.lines.items():
            if line.open_id is None or line.closed is not None:
                continue
            state = self.retained.coordinator.state(self.retained.coordinator.plan_of(line.open_id))
            if isinstance(state, Completed):
                self._completed(name, state.checkpoint)
            elif isinstance(state, Aborted):
                line.open_id = None
                self.pending[name] = [(files, False) for files, _ in self.pending.get(name, [])]

    def _forget(self, uid: str, key: str, *, partly: bool = False) -> None:
        """What the oracle knows of a key goes; files have other names. `partly`: where the erasure came to it."""
        for number, known in self.oracle.known.items():
            if number in self.oracle.released:
                continue
            found = self.retained.coordinator.checkpoint(number)
            for held, rows in self._of(uid, found).items():
                left = [row for row in known.rows[held] if not _is_of(key, row)]
                if not partly or rows == left:
                    known.rows[held] = left
            known.files = self.retained.named(found)

    def compare(self, *, swept: bool = True) -> None:
        """Released is what the oracle says; the rest reads back to what it was; nothing is there that nobody needs."""
        gone = {int(n[4:]) for n, t in of_checkpoints(self.retained.coordinator.objects).items() if t.confirmed}
        assert gone == self.oracle.released, (sorted(gone), sorted(self.oracle.released))
        for number, known in self.oracle.known.items():
            if number not in gone:
                found = self.retained.coordinator.checkpoint(number)
                assert self.retained.rows(found) == known.rows, f"chk-{number} holds something else than it did"
        self._compare_indexes()
        data, needed = self.retained.data(), self.oracle.needed()
        assert needed <= data, f"needed, and gone: {sorted(needed - data)}"
        if not swept:
            return
        left = [path for path in sorted(data - needed) if not self._tolerated(path)]
        assert not left, f"needed by nobody, and there: {left}"

    def _compare_indexes(self) -> None:
        """What a look finds by the index that has come along is what it finds by none, and by one that was kept."""
        cache = self.retained.index.cache
        assert isinstance(cache, MemoryCache)
        held, rule = cache.held, Retention.keep_last(2)
        name = next(iter(held), None)
        if name is not None and self.rng.random() < 0.2:
            at = self.rng.randrange(len(held[name]))
            held[name] = held[name][:at] + self.rng.choice((b"", b"x", b"0")) + held[name][at + 1 :]
        c, files = self.retained.coordinator, self.retained.files
        anew = DeletionPlanner(
            coordinator=c, files=files, survey=collect_roots(replace(c, index=ManifestIndex()), rule)
        )
        kept = ManifestIndex(MemoryCache(dict(held)))
        for index in (kept, self.retained.index):
            judge = DeletionPlanner(coordinator=c, files=files, survey=collect_roots(replace(c, index=index), rule))
            assert judge.survey == anew.survey
            for after in (True, False):
                assert judge.registry(after_release=after) == anew.registry(after_release=after)
        if self.rng.random() < 0.3:
            self.retained.index = kept  # another process goes on

    def _tolerated(self, path: str) -> bool:
        """Of an open plan, of a compaction that waits for the next plan, of a timeline without a checkpoint."""
        lines = [line for line in self.oracle.lines.values() if line.closed is None]
        folder = path.split("/")[-2]
        if any(line.open_id is not None and folder.startswith(f"{line.open_id}.") for line in lines):
            return True
        if any(path in f for n, kept in self.pending.items() if self.oracle.lines[n].closed is None for f, _ in kept):
            return True
        if "/erasure." in path and any(path in self._began_with(n) for n, line in self._newborn()):
            return True  # written by a try that died once it had revised the timeline, and not its parent
        newborn = [line.sinks_of for line in lines if not line.own and line.sinks_of is not None]
        return "/sinks/" in path and any(path in self.oracle.known[number].files for number in newborn)

    def _newborn(self) -> list[tuple[str, RetentionTimeline]]:
        return [
            (n, line) for n, line in self.oracle.lines.items() if line.closed is None and not line.own and n != "t1"
        ]

    def _began_with(self, name: str) -> set[str]:
        genesis = self.retained.coordinator.timelines.entry(name, 1)
        assert isinstance(genesis, Genesis)
        return {path for h in genesis.handles.values() for s in h for path in self.retained.of_version(s)}

    def _known(self, found: Checkpoint, name: str) -> Known:
        line = self.oracle.lines[name]
        return Known(
            timeline=name,
            parent=self.oracle.newest(name),
            at_ms=found.plan.logical_time_ms,
            rows=deepcopy(self.retained.rows(found)),
            files=self.retained.named(found) if line else set(),
        )

    def _planned(self, name: str) -> None:
        self.pending[name] = [(files, True) for files, _ in self.pending.get(name, [])]

    def _close(self, successor: str) -> None:
        self.oracle.lines[self.oracle.live].closed = successor
        self.oracle.once_live.append(successor)

    def _refused(self, act: Callable[[], object]) -> None:
        try:
            act()
        except ReleasedError:
            return
        raise AssertionError("a released checkpoint was taken")

    def _timeline(self) -> str:
        names = [name for name, line in self.oracle.lines.items() if line.closed is None]
        return self.rng.choice([self.oracle.live, *names])

    def _any(self) -> int | None:
        return self.rng.choice(sorted(self.oracle.known)) if self.oracle.known else None

    def _accounts(self) -> list[str]:
        return [self.rng.choice(("a", "b", "c", "")) for _ in range(self.rng.randrange(0, 4))]

    def _name(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}{self.number}"
