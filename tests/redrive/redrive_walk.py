"""A random walk over requests, restores, backfills and crashes, and an oracle that keeps plain dicts.

The oracle has no tables, plans or ranges: it moves each record between `applied` and `letters`, for each timeline.
"""

import random
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace

from tests.support.crashes import Killed
from tests.support.memory import MemoryPipeline
from tidemark import Fold, KafkaSource, Pipeline, Process, state
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.records.redrive_requests import RedriveHistory, RedriveRequests
from tidemark.coordinator.records.states import OpenPlan
from tidemark.coordinator.recovery.backfill import Backfill, BackfillRequest
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.redrive import LetterRow, RedriveRecord, group_rows, letter_place
from tidemark.model.checkpoint.store_objects import Failure
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.state.row_compaction import RowPolicy
from tidemark.ports import PlanRequest

ASK = PlanRequest(origin="test")
PARTITIONS = 2
Record = tuple[int, ...]
"""Partition and offset; for a record that another operator emitted its number as well."""


@dataclass(frozen=True)
class Strict:
    """The buggy release: it wants a kind."""

    account: str | None
    amount: int
    kind: str


@dataclass(frozen=True)
class Lenient:
    """The corrected release."""

    account: str | None
    amount: int
    kind: str | None


class Sums(state.Keyed):
    """What is folded, in a way that shows whether a record counted twice, and which one was the last."""

    records: int = state.count()
    total: int | None = state.sum("amount")
    last: int | None = state.latest("amount")


class Seen(state.Keyed):
    """The same of a process, whose last record is the one that came last."""

    records: int = state.value(0)
    total: int = state.value(0)
    last: int | None = state.value(None)


def see(key: str, records: Iterable[Strict | Lenient], kept: Seen) -> None:
    """The function of the process."""
    for record in records:
        kept.records += 1
        kept.total += record.amount


def pipeline_of(record: type) -> Pipeline:
    """A release of the pipeline."""
    return Pipeline(
        name="sums",
        source=KafkaSource("payments", record),
        operators=[
            Fold("sums", key_by="account", state=Sums),
            Fold("mirror", key_by="account", state=Sums),
            Process("seen", key_by="account", state=Seen, function=see),
        ],
        max_dead_letters=1.0,
    )


RELEASES = {"strict": pipeline_of(Strict), "lenient": pipeline_of(Lenient)}


@dataclass
class PlainLine:
    """A timeline as plain dicts.

    Attributes:
        read: how far each partition is read.
        applied: records that count.
        letters: letters of the operator that is asked for, with the checkpoint that refused them.
        steps: ids of the checkpoints, with what they read and redrove.
    """

    read: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    applied: set[Record] = field(default_factory=set)
    letters: dict[Record, int] = field(default_factory=dict)
    steps: list[tuple[int, dict[int, int], set[Record]]] = field(default_factory=list)


@dataclass
class RedriveWorld(MemoryPipeline):
    """Store, log and tables, whose steps may be killed."""

    kill_at: int = 0

    def __post_init__(self) -> None:
        self.log.create("payments", PARTITIONS)

    @property
    def coordinator(self) -> CheckpointCoordinator:
        return replace(super().coordinator, listener=self.crash, name="sums")

    def crash(self, step: str, moment: str) -> None:
        """Kills when the countdown ends."""
        if self.kill_at:
            self.kill_at -= 1
            if not self.kill_at:
                raise Killed


class RedriveWalk:
    """The walk: each step does the same to the pipeline and to the oracle."""

    releases = RELEASES

    def __init__(self, seed: int, uid: str = "sums") -> None:
        self.uid = uid
        self.chance = random.Random(seed)
        self.world = RedriveWorld()
        self.release = "strict"
        self.live = "t1"
        self.line = PlainLine()
        self.snapshots: dict[int, PlainLine] = {}
        self.values: dict[Record, tuple[str | None, int, str]] = {}
        self.pending: list[tuple[str, set[tuple[Record, int]]]] = []
        self.asked: list[tuple[LetterRow, ...]] = []
        self.trace: list[str] = []
        self.redriven = self.repeated = self.merged = 0

    def step(self) -> None:
        """Takes one random step."""
        steps: list[tuple[Callable[[], None], int]] = [
            (self.send, 5),
            (self.checkpoint, 6),
            (self.ask, 4),
            (self.ask_again, 2),
            (self.switch, 2),
            (self.abort, 2),
            (self.restore, 1),
            (self.backfill, 1),
            (self.compact, 2),
        ]
        steps += self.more_steps()
        act = self.chance.choices([f for f, _ in steps], [n for _, n in steps])[0]
        self.trace.append(act.__name__)
        act()

    def more_steps(self) -> list[tuple[Callable[[], None], int]]:
        """Further steps of a subclass, with their weights."""
        return []

    def send(self) -> None:
        """Sends records: good ones, some without the field, some without the key, some that are no JSON."""
        for _ in range(self.chance.randint(1, 4)):
            at, account, amount = (
                self.chance.randrange(PARTITIONS),
                self.chance.choice("abc"),
                self.chance.randint(1, 9),
            )
            how = self.chance.choices(["good", "kindless", "keyless", "broken"], [4, 4, 1, 1])[0]
            kind = "" if how == "kindless" else ',"kind":"x"'
            key = "" if how == "keyless" else f'"account":"{account}",'
            text = "{" if how == "broken" else f'{{{key}"amount":{amount}{kind}}}'
            offset = self.world.log.append(TopicPartition("payments", at), text.encode())
            self.values[at, offset] = (account, amount, how)

    def unit(self, row: LetterRow) -> Record:
        """The record of a letter."""
        return (row.partition, row.offset)

    def switch(self) -> None:
        """Deploys the other release."""
        self.release = "lenient" if self.release == "strict" else "strict"

    def checkpoint(self) -> None:
        """Completes a checkpoint, after kills at random steps."""
        while True:
            self.world.kill_at = self.chance.randint(1, 60) if self.chance.random() < 0.4 else 0
            try:
                found = self._loop().run_once(ASK).checkpoints
            except Killed:
                self.trace.append("  killed")
                newest = next(self.world.coordinator.checkpoints(), None)
                if newest is None or newest.id in self.snapshots:
                    continue
                found = (newest,)
            self.world.kill_at = 0
            (made,) = found
            break
        self.trace.append(f"  {made.plan.name} on {made.plan.slot} requests_seen={made.plan.requests_seen}")
        self._complete(made, set().union(*(rows for name, rows in self.pending if name == self.live)))
        self.pending.clear()

    def ask(self) -> None:
        """Asks for some letters of the live timeline."""
        rows = sorted(self.open_rows())
        some = tuple(row for row in rows if self.chance.random() < 0.6)
        if some:
            self._put(some)

    def ask_again(self) -> None:
        """Repeats an older request, of whatever timeline, or overlaps with one."""
        if self.asked:
            self._put(self.chance.choice(self.asked))

    def abort(self) -> None:
        """Plans, perhaps begins an attempt, and gives the plan up."""
        found = self._loop().plan(ASK).state
        if isinstance(found, OpenPlan):
            if self.chance.random() < 0.5:
                self.world.coordinator.begin(found.plan)
            failure = Failure(reason=FailureReason.DECLINED, message="declined", next="run it again")
            self.world.coordinator.abort(found.plan, failure)

    def compact(self) -> None:
        """Merges files of dead letters and sinks, few or all; the next plan reads the merged ones."""
        if self.line.steps:
            policy = self.chance.choice([RowPolicy.everything(), RowPolicy(runs=2)])
            self.merged += len(self.world.compact_rows(policy, self.live))

    def restore(self) -> None:
        """Goes back to any checkpoint of the live timeline."""
        if not self.line.steps:
            return
        number = self.chance.choice(self.line.steps)[0]
        point = RestoreRequest(checkpoint=number).find_restore_point(self.world.coordinator)
        self.world.recovery.restore(point, request=f"restore-{len(self.trace)}")
        self._settle(deepcopy(self.snapshots[number]))

    def backfill(self) -> None:
        """Repeats the newest checkpoints with the current release, and makes the result live."""
        if len(self.line.steps) < 2:
            return
        start = self.chance.randrange(len(self.line.steps) - 1)
        number, recorded = self.line.steps[start][0], self.line.steps[start + 1 :]
        request = BackfillRequest(
            begins=RestoreRequest(checkpoint=number),
            fork=f"fork-{len(self.trace)}",
            max_records=self.chance.choice([None, 3, 8]),
        )
        pipeline = self.releases[self.release]
        one = Backfill(coordinator=self.world.coordinator, pipeline=pipeline, request=request)
        one.begin()
        made = list(one.repeat(lambda attempt: self.world.executed(pipeline, attempt)))
        line = deepcopy(self.snapshots[number])
        by_id = {step[0]: step for step in recorded}
        live, self.line = self.line, line
        self.begins(number)
        for checkpoint in made:
            repeats = [by_id[n] for n in checkpoint.plan.replays]
            self._complete(checkpoint, {r: None for step in repeats for r in step[2]}, repeats[-1][1])
        assert [n for c in made for n in c.plan.replays] == [step[0] for step in recorded], live.steps
        one.promote(lambda: None)
        self._settle(self.line)

    def open_rows(self) -> set[LetterRow]:
        """The letters of the live timeline, by the product's history and the tables."""
        newest = next(self.world.coordinator.checkpoints(), None)
        if newest is None:
            return set()
        letters = {ack.uid: ack.dead_letters for ack in newest.sealed.acks}
        history = RedriveHistory.of(self.world.coordinator.timelines, self.live, 0, letters)
        ack = newest.ack(self.uid)
        assert ack is not None
        found = set()
        for checkpoint, row in self.world.tables.placed_rows(ack.dead_letters):
            topic, partition, offset, path = letter_place(row)
            found.add(LetterRow(checkpoint, topic, newest.plan.topic_ids[topic], partition, offset, path))
        return history.open_rows(self.uid, found)

    def _loop(self) -> CheckpointLoop:
        pipeline = self.releases[self.release]
        return CheckpointLoop(
            coordinator=self.world.coordinator, pipeline=pipeline, execute=lambda a: self._execute(pipeline, a)
        )

    def _execute(self, pipeline: Pipeline, attempt: OwnedAttempt) -> Sealed:
        return self.world.checkpoint_job(self.world.compute_of(pipeline), self.world.crash).execute(attempt)

    def _put(self, rows: tuple[LetterRow, ...]) -> None:
        draft = RedriveRecord(
            number=0,
            timeline=self.live,
            uid=self.uid,
            rows=group_rows(rows),
            out_of_order=self.uid == "seen",
            owner="walk",
            note="",
            origin="test",
            at_ms=0,
            write_id=self.world.ids(),
        )
        made = RedriveRequests(self.world.coordinator.objects).put(draft)
        self.trace.append(f"  request {made.number} of {made.count} letters")
        self.asked.append(rows)
        self.pending.append((self.live, {(self.unit(row), row.checkpoint) for row in rows}))

    def _complete(self, made: Checkpoint, asked: object, ends: dict[int, int] | None = None) -> None:
        """Does to the oracle what a checkpoint should have done, and compares.

        Args:
            made: the checkpoint.
            asked: (record, checkpoint) pairs of requests, or records of repeated redrives.
            ends: where the ranges end; None = where the log ends.
        """
        line = self.line
        if isinstance(asked, dict):
            again = {record for record in asked if record in line.letters}
        else:
            again = {record for record, at in asked if line.letters.get(record) == at}  # type: ignore[attr-defined]
        ends = ends or {p: self._end(p) for p in range(PARTITIONS)}
        new = {r for r in self.values if line.read[r[0]] <= r[1] < ends[r[0]]}
        refused = {r for r in new | again if self._is_refused(r)}
        assert not (new | again) & line.applied, "the oracle counts a record twice"
        for record in again - refused:
            del line.letters[record]
        line.letters |= dict.fromkeys(refused, made.id)
        line.applied |= (new | again) - refused
        before, line.read = line.read, dict(ends)
        line.steps.append((made.id, dict(ends), again))
        self.snapshots[made.id] = deepcopy(line)
        self.redriven += len(again)
        self.repeated += len(again) if isinstance(asked, dict) else 0
        self._compare(made, len(new), len(again), len(refused))
        assert made.sealed.facts.records == sum(ends[p] - before[p] for p in ends)
        self.emitted(made, new, again, refused)

    def emitted(self, made: Checkpoint, new: set[Record], again: set[Record], refused: set[Record]) -> None:
        """For a subclass: what a checkpoint read and redrove, and what it refused of both."""

    def begins(self, number: int) -> None:
        """For a subclass: a fork begins at a checkpoint."""

    def _end(self, partition: int) -> int:
        tp = TopicPartition("payments", partition)
        return self.world.log.partitions(frozenset({tp}), "read_committed")[tp].end

    def _is_refused(self, record: Record) -> bool:
        how = self.values[record][2]
        return how in ("broken", "keyless") or (how == "kindless" and self.release == "strict")

    def _compare(self, made: Checkpoint, read: int, redriven: int, refused: int) -> None:
        ack = made.ack(self.uid)
        assert ack is not None
        counts = (ack.read, ack.redriven, ack.applied, ack.dead_lettered)
        assert counts == (read, redriven, read + redriven - refused, refused), f"{made.plan.name}: {counts}"
        found = self.world.compute_of(self.releases[self.release]).resolve(made, self.uid)
        have = {key: (row["records"], row["total"], row["last"]) for (key,), row in found.items()}
        want: dict[str | None, tuple[int, int, int | None]] = {}
        # All records have one event time, so the last one is that of the greatest position, whenever it was applied.
        for record in sorted(self.line.applied):
            account, amount, _ = self.values[record]
            count, total, _ = want.get(account, (0, 0, 0))
            want[account] = (count + 1, total + amount, amount)
        if self.uid == "seen":
            want = {key: (count, total, None) for key, (count, total, _) in want.items()}
        assert have == want, f"{made.plan.name}: {have} instead of {want}"
        other = made.ack("mirror")
        assert other is not None and not other.redriven, "only the operator that was named gets them"

    def _settle(self, line: PlainLine) -> None:
        """A timeline has become live."""
        self.line, self.live = line, self.world.coordinator.timelines.live()
        self.pending.clear()
        self.compare_letters()

    def compare_letters(self) -> None:
        """Compares the letters that are left."""
        head = next(self.world.coordinator.checkpoints(), None)
        if head is not None and head.plan.slot.timeline == self.live:
            have = {self.unit(row): row.checkpoint for row in self.open_rows()}
            assert have == self.line.letters
