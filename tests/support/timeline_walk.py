"""A seeded random walk of operations on timelines, some of which die halfway. The oracle predicts each result."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

import pytest

from tests.support.crashes import CrashAt, Killed
from tests.support.memory import Payment
from tests.support.spark import TwinPipeline
from tests.support.timeline_oracle import TimelineOracle
from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Process, state
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.job import CheckpointJob
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.records.states import Promoted, PromotionBlocked, Restored
from tidemark.coordinator.recovery.promotion import Promotion
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.coordinator.recovery.timeline_end import Ending
from tidemark.errors import ConflictError, NotFoundError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.object_keys import slot_key
from tidemark.model.checkpoint.store_objects import Closing
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.ports import PlanRequest
from tidemark.testing.twin.memory import MemoryStore

PARTITIONS = 2
TOPIC = "payments"
UNPLANNED = {("queries", "before"), ("queries", "after"), ("ids", "before"), ("ids", "after"), ("plan", "before")}
"""Crash points before the plan is stored: no plan stays open after them."""
CLAIMED = {("fate", "after"), ("closing", "before")}
"""Crash points after which another call may still finish a promote or a restore."""


class Account(state.Keyed):
    """The state of the fold."""

    payments: int = state.count()
    total: int | None = state.sum("amount")


class Count(state.Keyed):
    """The state of the process."""

    payments: int = state.value(0)


@dataclass(frozen=True)
class Told:
    """The output of the process: the number of payments of the account so far."""

    account: str
    so_far: int


def tell(account: str, payments: Iterator[Payment], count: Count) -> Iterator[Told]:
    """Emits a row per payment."""
    for _ in payments:
        count.payments += 1
        yield Told(account, count.payments)


PIPELINE = Pipeline(
    name="walk",
    source=KafkaSource(TOPIC, Payment),
    operators=[
        Fold("accounts", key_by="account", state=Account),
        Process("teller", key_by="account", state=Count, function=tell, emits=Told, sink=DeltaSink("told")),
    ],
)


@dataclass(frozen=True)
class Copied:
    """The second output of a process."""

    account: str
    so_far: int


def tell_twice(account: str, payments: Iterator[Payment], count: Count) -> Iterator[Told | Copied]:
    """Emits a row per payment to each output."""
    for told in tell(account, payments, count):
        yield Copied(told.account, told.so_far)
        yield told


TELLER = Process(
    "teller",
    key_by="account",
    state=Count,
    function=tell_twice,
    emits={"told": Told, "copied": Copied},
    sinks={"told": DeltaSink("told"), "copied": DeltaSink("copied")},
)
TWO_OUTPUTS = replace(PIPELINE, operators=[PIPELINE.operator("accounts"), TELLER])
"""The same pipeline, whose process has a second output with a sink."""


class TimelineWalk:
    """A walk over one pipeline, with the oracle that follows it."""

    def __init__(self, world: TwinPipeline, seed: int, *, compares_at_once: bool = True) -> None:
        self.world, self.rng, self.compares_at_once = world, Random(seed), compares_at_once
        self.oracle = TimelineOracle({p: [] for p in range(PARTITIONS)})
        self.manifests: dict[str, bytes] = {}
        self.trace: list[str] = []
        self.number = 0
        self.claims: set[str] = set()

    def steps(self, count: int) -> None:
        """Runs `count` random operations, and compares the live timeline with the oracle after each."""
        verbs: dict[Callable[[], None], int] = {
            self.produce: 5,
            self.advance: 9,
            self.restore: 2,
            self.fork: 2,
            self.promote: 3,
            self.end: 1,
            self.save: 1,
            self.dispose: 1,
        }
        for _ in range(count):
            (verb,) = self.rng.choices(list(verbs), list(verbs.values()))
            self.trace.append(verb.__name__)
            verb()
            assert self.world.coordinator.timelines.live() == self.oracle.live

    def produce(self) -> None:
        for _ in range(self.rng.randrange(1, 5)):
            p, account, amount = self.rng.randrange(PARTITIONS), self.rng.choice("abc"), self.rng.randrange(100)
            value = json.dumps({"account": account, "amount": amount}).encode()
            self.world.log.append(TopicPartition(TOPIC, p), value, timestamp_ms=self.oracle.send(p, account, amount))

    def advance(self) -> None:
        """Runs a checkpoint on the live timeline or on a fork; it may die at any step."""
        oracle, rng = self.oracle, self.rng
        name = rng.choice([oracle.live, oracle.live, *oracle.ready()])
        at_most, crash = rng.choice((None, 1, 2, 3)), CrashAt(rng.choice((None, None, None, rng.randrange(1, 60))))
        ends = oracle.planned(name, at_most)
        coordinator = self._coordinator(crash)
        line = CheckpointLoop(
            coordinator=coordinator,
            pipeline=self.world.pipeline,
            execute=lambda a: self._job(crash).execute(a),
            timeline=name,
        )
        try:
            done = line.run_once(PlanRequest(origin="walk", max_records=at_most)).checkpoints[0]
        except Killed:
            self.trace.append(f"  {name} died {crash.at}")
            if crash.at not in UNPLANNED:
                oracle.lines[name].pending = ends
            if crash.at != ("publish", "after"):
                return
            found = self.world.coordinator.head(name).entry
            assert isinstance(found, Checkpoint)
            done = found
        assert done.plan.slot.timeline == name
        oracle.complete(name, done.id, ends)
        key = slot_key(name, done.plan.slot.sequence)
        self.manifests[key] = self._objects[key]
        if self.compares_at_once:
            self.compare(done.id)

    def restore(self) -> None:
        """Restores any checkpoint of any timeline, or a savepoint; it may die at any step."""
        oracle, rng = self.oracle, self.rng
        if not oracle.snapshots:
            return
        name = rng.choice(sorted(oracle.savepoints)) if oracle.savepoints and rng.random() < 0.5 else None
        claim, to = name is not None and rng.random() < 0.5, rng.choice(sorted(oracle.snapshots))
        asked = RestoreRequest(
            savepoint=name,
            checkpoint=to if name is None else None,
            claim=claim,
            restore_sinks=rng.random() < 0.5,
            request=self._name("r"),
        )
        to = to if name is None else oracle.savepoints[name]
        crash = CrashAt(rng.choice((None, None, 1, 2, 3, 4, 5, 6)))
        begun = f"t{oracle.numbered + 1}"
        left, died = oracle.left(to), True
        while died:
            try:
                done = Recovery(coordinator=self._coordinator(crash), pipeline=self.world.pipeline).restore(
                    asked.find_restore_point(self.world.coordinator), asked.request
                )
                died = False
            except Killed:
                self.trace.append(f"  restore died {crash.at}")
            if crash.at != ("genesis", "before") and begun not in oracle.lines:
                oracle.numbered += 1
                oracle.begin(begun, to, keep_rows=not asked.restore_sinks)
            if claim and (not died or crash.at[0] in {"fate", "closing"}) and name in oracle.savepoints:
                oracle.ended[name] = oracle.savepoints.pop(name)
                oracle.claimed[name] = begun
            if crash.at in CLAIMED:
                self.claims.add(begun)
            if crash.at == ("closing", "after") and oracle.live != begun:
                oracle.close(begun)
            if died and rng.random() < 0.4:
                return  # without a retry
            crash = crash if died is False else CrashAt(None)
        assert isinstance(done, Restored)
        assert done.genesis.timeline == begun
        assert [c.id for c in done.left] == left
        if oracle.live != begun:
            oracle.close(begun)

    def fork(self) -> None:
        """Forks any checkpoint twice under the same name; the second call finds the fork."""
        oracle, rng = self.oracle, self.rng
        if not oracle.snapshots:
            return
        to, name = rng.choice(sorted(oracle.snapshots)), self._name("f")
        restore_point = RestoreRequest(checkpoint=to).find_restore_point(self.world.coordinator)
        recovery = Recovery(coordinator=self.world.coordinator, pipeline=self.world.pipeline)
        assert recovery.fork(restore_point, name).won
        assert not recovery.fork(restore_point, name).won
        oracle.begin(name, to, keep_rows=False)

    def promote(self) -> None:
        """Promotes a timeline that is neither live nor closed; it may die at any step."""
        oracle, rng = self.oracle, self.rng
        if not oracle.ready():
            return
        name, discard = rng.choice(oracle.ready()), rng.random() < 0.3
        lacking, left = oracle.lacking(name), oracle.left(oracle.lines[name].newest)
        crash = CrashAt(rng.choice((None, None, 1, 2, 3, 4)))
        try:
            done = Promotion(coordinator=self._coordinator(crash)).promote(name, discard=discard)
        except Killed:
            self.trace.append(f"  promote died {crash.at}")
            if crash.at in CLAIMED:
                self.claims.add(name)
            if crash.at != ("closing", "after"):
                return
            done = Promotion(coordinator=self.world.coordinator).promote(name)
            closing = self.world.coordinator.head(oracle.live).entry
            assert isinstance(closing, Closing)
            assert done == Promoted(closing=closing)
            oracle.close(name)
            return
        if lacking and not discard:
            assert isinstance(done, PromotionBlocked)
            assert [c.id for c in done.lacking] == lacking
            return
        assert isinstance(done, Promoted)
        assert [c.id for c in done.left] == lacking
        assert sorted(c.id for c in (*done.left, *done.replaced)) == sorted(left)
        oracle.close(name)

    def end(self) -> None:
        """Closes a timeline that is not live, unless it has a plan or may become live; it may die at any step."""
        oracle, rng = self.oracle, self.rng
        if not oracle.ready() or rng.random() < 0.5:
            return
        name, crash = rng.choice(oracle.ready()), CrashAt(rng.choice((None, None, 1, 2, 3, 4, 5, 6)))
        for at in (crash, CrashAt(None)):
            try:
                Ending(coordinator=self._coordinator(at)).close(name)
                break
            except Killed:
                self.trace.append(f"  end died {crash.at}")
            except ConflictError as error:
                busy = "is in progress" in error.what
                assert (oracle.lines[name].pending is not None) if busy else (name in self.claims)
                return
        oracle.end(name)

    def save(self) -> None:
        """Creates a savepoint of any checkpoint."""
        if self.oracle.snapshots:
            name, to = self._name("s"), self.rng.choice(sorted(self.oracle.snapshots))
            self.world.savepoints.create(SavepointRequest(name=name, owner="walk", origin=name, checkpoint=to))
            self.oracle.savepoints[name] = to

    def dispose(self) -> None:
        """Disposes of a savepoint unless a timeline needs it. A disposed savepoint cannot be restored."""
        oracle, savepoints = self.oracle, Savepoints(self.world.coordinator)
        for name in sorted(oracle.savepoints)[:1]:
            if oracle.needs(oracle.savepoints[name]):
                with pytest.raises(ConflictError, match="is needed by"):
                    savepoints.dispose(name)
            else:
                savepoints.dispose(name)
                oracle.ended[name] = oracle.savepoints.pop(name)
        for name in sorted(oracle.ended)[:1]:
            with pytest.raises(NotFoundError):
                RestoreRequest(savepoint=name).find_restore_point(self.world.coordinator)

    def compare(self, number: int) -> None:
        """Compares the state and the sink of a checkpoint with the oracle's snapshot."""
        found, wanted = self.world.coordinator.checkpoint(number), self.oracle.snapshots[number]
        accounts = {r["account"]: (r["payments"], r["total"]) for r in self.world.state("accounts", found)}
        assert accounts == wanted.accounts
        counts = {r["account"]: r["payments"] for r in self.world.state("teller", found)}
        assert counts == {account: count for account, (count, _) in wanted.accounts.items()}
        for uid in found.plan.sinks:
            emitted = self.world.emitted(uid, found)
            assert {r["_uid"] for r in emitted} <= {uid}
            rows = [((r["_partition"], r["_offset"]), (r["account"], r["so_far"])) for r in emitted]
            assert len(rows) == len(dict(rows)), "a row is duplicated"
            assert dict(rows) == wanted.rows

    def compare_all(self) -> None:
        """Compares every checkpoint of every timeline: its manifest byte for byte, its state and its sink."""
        for key, raw in self.manifests.items():
            assert self._objects[key] == raw
        for number in self.oracle.snapshots:
            self.compare(number)
        assert set(self.world.coordinator.timelines.names()) | {"t1"} == set(self.oracle.lines)

    @property
    def _objects(self) -> dict[str, bytes]:
        assert isinstance(self.world.store, MemoryStore)
        return self.world.store.objects

    def _coordinator(self, crash: CrashAt) -> CheckpointCoordinator:
        return replace(self.world.coordinator, listener=crash)

    def _job(self, crash: CrashAt) -> CheckpointJob:
        world = self.world
        return CheckpointJob(
            compute=world.compute,
            tables=world.tables,
            clock=world.clock,
            write_ids=world.ids,
            listener=crash,
            max_dead_letters=0.0,
        )

    def _name(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}{self.number}"
