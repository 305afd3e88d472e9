"""The cluster that simulated actors share: a store and tables whose operations interleave and fail, a growing log."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from random import Random

import greenlet

from tests.support.interleaving import Scheduler
from tests.support.memory import START_MS, MemoryPipeline, Payment, payment
from tests.support.stepped_store import is_of_erasures
from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.job import CommitGap
from tidemark.model.checkpoint.commits import CommitRequest, Committed
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed, WrittenRun
from tidemark.model.checkpoint.object_keys import outcome_key
from tidemark.model.checkpoint.plan import Slot
from tidemark.model.checkpoint.store_objects import Closing
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.ports import Fence, PutOutcome, UncertainPut
from tidemark.testing.twin.memory import (
    Fault,
    FaultyStore,
    ManualClock,
    MemoryLog,
    MemoryStore,
    MemoryTables,
    SequentialIds,
)
from tidemark.testing.twin.tables import MemoryTableVersion, Row

PARTITIONS = (TopicPartition("topic", 0), TopicPartition("topic", 1))


class Account(state.Keyed):
    """A state that the oracle also computes: count, sum and last amount."""

    payments: int = state.count()
    total: int | None = state.sum("amount")
    last: int | None = state.latest("amount")


class Declared(Pipeline):
    """A pipeline that caches its schemas, because thousands of schedules read them."""

    @cached_property
    def _bound(self) -> dict[str, OperatorSchema]:
        return super().schemas()

    @cached_property
    def fingerprint(self) -> str:
        return super().fingerprint

    def schemas(self) -> dict[str, OperatorSchema]:
        return self._bound


PIPELINE = Declared(
    name="sim",
    source=KafkaSource("topic", Payment),
    operators=[Fold("accounts", key_by="account", state=Account)],
    max_dead_letters=1.0,
)
OTHER_CODE = replace(PIPELINE, max_dead_letters=0.99)
"""The same pipeline after a deployment: its open plans are aborted with CODE_CHANGED."""


class SimulatedStore:
    """A store whose operations yield to the scheduler and may fail. No actor erases keys; see `SteppedStore`."""

    def __init__(self, world: "SimulatedCluster") -> None:
        self._world = world
        self._inner = FaultyStore(MemoryStore(world.objects), self._choose)

    def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
        assert not is_of_erasures(key), f"unexpected erasure: {key}"
        self._world.scheduler.pause(f"put {key}")
        return self._inner.put_if_absent(key, body)

    def get(self, key: str) -> bytes | None:
        if not is_of_erasures(key):
            self._world.scheduler.pause(f"get {key}")
        return self._inner.get(key)

    def list(self, prefix: str) -> Sequence[str]:
        if not is_of_erasures(prefix):
            self._world.scheduler.pause(f"list {prefix}")
        return self._inner.list(prefix)

    def _choose(self, operation: str, key: str) -> Fault | None:
        if not self._world.faulty:
            return None
        dice = self._world.rng.random()
        if operation == "list":
            return Fault.STALE if dice < 0.1 else None
        if operation == "get":
            return Fault.REFUSED if dice < 0.002 else None
        return next((f for f, p in _PUT_FAULTS if dice < p), None)


_PUT_FAULTS = ((Fault.LOST_REPLY, 0.03), (Fault.LOST_REQUEST, 0.05), (Fault.REFUSED, 0.06))


class SimulatedTables(MemoryTables):
    """Tables whose steps interleave. They report a commit on a version that was read after the attempt was revoked."""

    def __init__(self, world: "SimulatedCluster") -> None:
        super().__init__()
        self._world = world
        self._fences: dict[object, Fence] = {}
        self._stale: dict[object, bool] = {}

    def write(self, folder: str, rows: Sequence[Row]) -> WrittenRun:
        self._world.scheduler.pause(f"write {folder}")
        return super().write(folder, rows)

    def commit(self, request: CommitRequest, fence: Fence) -> Committed:
        self._fences[greenlet.getcurrent()] = fence
        return super().commit(request, fence)

    def _latest(self, table: str) -> int:
        self._world.scheduler.pause(f"version {table}")
        me = greenlet.getcurrent()
        self._stale[me] = self._world.is_revoked(self._fences[me])
        return super()._latest(table)

    def _compare_and_set(self, table: str, version: int, made: MemoryTableVersion) -> bool:
        world = self._world
        world.scheduler.pause(f"commit {table} {version + 1}")
        done = super()._compare_and_set(table, version, made)
        if done and self._stale[greenlet.getcurrent()]:
            world.complaints.append(f"I6: {table} {version + 1} committed on a version read after the revocation")
        if done and world.faulty and world.rng.random() < 0.03:
            raise UncertainPut(table)
        return done


class SimulatedCluster(MemoryPipeline):
    """The cluster of one schedule, generated from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.scheduler = Scheduler(self.rng)
        self.objects: dict[str, bytes] = {}
        self.faulty = self.rng.random() < 0.6
        self.log = MemoryLog()
        self.clock = ManualClock(START_MS)
        self.ids = SequentialIds()
        self.store = SimulatedStore(self)
        self.reads_ahead, self.answers_late, self.heads = seed % 2 == 1, seed % 4 == 3, {}
        self.tables = SimulatedTables(self)
        self.owners: list[tuple[int, int]] = []
        self.complaints: list[str] = []
        self.told: list[Slot] = []
        self.runs: list[str] = []
        self.log.create("topic", len(PARTITIONS))
        self.produce(self.rng.randrange(1, 6))

    def produce(self, count: int) -> None:
        rng = self.rng
        for _ in range(count):
            tp = PARTITIONS[rng.randrange(2)]
            key, amount = rng.choice(("a", "b", "c", None)), rng.randrange(1 << 40)
            value = b"{" if rng.random() < 0.1 else payment(key, amount)
            self.log.append(tp, value, timestamp_ms=self.clock.now_ms())
            if rng.random() < 0.1:
                self.log.skip(tp)

    def is_revoked(self, fence: Fence) -> bool:
        """Whether an attempt is revoked now. Reads the objects directly, so that no other actor runs meanwhile."""
        if not isinstance(fence, CommitGap):
            return False
        attempt = fence.attempt
        raw = self.objects.get(outcome_key(attempt.plan.slot, attempt.number))
        return raw is not None and b'"kind":"revoked"' in raw

    def look_at(self, promoted: Closing) -> None:
        """Checks that a promote loses no records. Reads the objects directly, so that no other actor runs meanwhile."""
        old, new = (self._ends(name) for name in (promoted.timeline, promoted.successor))
        if any(new.get(tp, 0) < end for tp, end in old.items()):
            self.complaints.append(f"I1: {promoted.successor} was promoted at {new}, {promoted.timeline} had {old}")

    def look_at_interval(self, made: Checkpoint, end: datetime) -> None:
        """Checks that the last checkpoint of a DAG run covers the interval of the run."""
        if made.covered_until_ms is None or made.covered_until_ms < end.timestamp() * 1000:
            self.complaints.append(f"E5: {made.plan.slot} ended a DAG run up to {end}, covered {made.covered_until_ms}")

    def _ends(self, timeline: str) -> dict[str, int]:
        ends: dict[str, int] = {}
        for key in sorted(k for k in self.objects if k.startswith(f"timelines/{timeline}/")):
            body = json.loads(self.objects[key])["body"]
            ranges = body.get("ranges") or body.get("plan", {}).get("ranges", {})
            ends |= {tp: within["end"] for tp, within in ranges.items()}
        return ends

    def between(self) -> None:
        """Randomly appends a record or advances the clock, between two steps."""
        dice = self.rng.random()
        if dice < 0.03:
            self.produce(1)
        elif dice < 0.05:
            self.clock.advance(1)
        elif dice < 0.053:
            self.clock.advance(11 * 60_000)  # beyond checkpoint_timeout

    def execute(self, attempt: OwnedAttempt) -> Sealed:
        self.owners.append((attempt.plan.id, attempt.number))
        return self.executed(PIPELINE, attempt)
