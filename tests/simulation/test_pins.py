"""Pins and deletions, interleaved at every operation on the store, with processes that die or sleep through the others.

The other simulation has checkpoints; this one has savepoints of one checkpoint, retention's side of the meeting as
design section 6 has it, and disposals beside forks. What a process was told must stay true.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import pytest

from tests.support.bank import BankPipeline
from tests.support.interleaving import Scheduler
from tests.support.stepped_store import SteppedStore
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.tombstones import Tombstones
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.errors import ConflictError, NotFoundError, ReleasedError
from tidemark.model.retention.savepoint import SavepointRequest, TombstoneKind

SEEDS = range(400)
CHECKPOINT, SAVEPOINT = TombstoneKind.CHECKPOINT, TombstoneKind.SAVEPOINT


@dataclass
class PinnedCheckpoint:
    """One checkpoint, and what processes were told."""

    seed: int
    told: list[str] = field(default_factory=list)
    deleted: bool = False

    def __post_init__(self) -> None:
        bank = BankPipeline()
        bank.send(1)
        bank.complete()
        self.scheduler = Scheduler(Random(self.seed))
        self.coordinator = replace(bank.coordinator, store=SteppedStore(bank.store.objects, self.scheduler.pause))

    @property
    def savepoints(self) -> Savepoints:
        return Savepoints(self.coordinator)

    @property
    def tombstones(self) -> Tombstones:
        return self.savepoints.tombstones

    def pin(self, name: str) -> None:
        """A pinner; what it was told is kept."""
        try:
            self.savepoints.create(SavepointRequest(name=name, owner="ann", origin=name))
            self.told.append(name)
        except (ConflictError, ReleasedError):
            self.scheduler.trace.append(f"  {name} was refused")

    def delete(self) -> None:
        """Retention: tombstone, pins, decision, deletion, in the order of `Sweeper`."""
        standing, _ = self.tombstones.raise_for(CHECKPOINT, "chk-1", "released")
        if 1 in self.savepoints.pins():
            self.tombstones.withdraw(standing, "pinned")
        elif self.tombstones.confirm(standing):
            self.scheduler.pause("delete")
            self.deleted = True

    def fork(self, name: str) -> None:
        """A fork of savepoint `sp`: genesis, then a look for tombstones; it gives up where there is one."""
        try:
            found = self.savepoints.checkpoint_of("sp")
            Recovery(coordinator=self.coordinator).fork(RestorePoint(checkpoint=found, savepoint="sp"), name)
            self.told.append(name)
        except (ConflictError, NotFoundError):
            self.scheduler.trace.append(f"  {name} was refused")

    def dispose(self) -> None:
        """A disposal of it."""
        try:
            self.savepoints.dispose("sp")
        except ConflictError:
            self.scheduler.trace.append("  the disposal was refused")

    def interleave(self, **actors: Callable[[], None]) -> None:
        for name, act in actors.items():
            self.scheduler.add(name, act)
        self.scheduler.go(lambda: None)


@pytest.mark.parametrize("deleters", [1, 2])
def test_a_pin_and_a_deletion_meet_and_never_both_succeed(deleters: int) -> None:
    seen = set()
    for seed in SEEDS:
        world = PinnedCheckpoint(seed)
        sweepers = {f"retention{n}": world.delete for n in range(deleters)}
        world.interleave(**sweepers, one=partial(world.pin, "one"), two=partial(world.pin, "two"))
        promised = bool(world.told)
        assert not (promised and world.deleted), "\n".join([f"seed {seed}", *world.scheduler.trace])
        # Whoever died is repeated: a pin that nobody was told of is withdrawn where its checkpoint is gone.
        for name in ("one", "two"):
            world.pin(name)
        assert not (world.deleted and world.savepoints.pins()), f"seed {seed}"
        seen.add((promised, world.deleted))
    assert seen == {(True, False), (False, True), (False, False)}, "each way was gone"


@pytest.mark.parametrize("disposers", [1, 2])
def test_a_fork_and_a_disposal_meet_and_never_both_succeed(disposers: int) -> None:
    seen = set()
    for seed in SEEDS:
        world = PinnedCheckpoint(seed)
        world.pin("sp")
        world.told.clear()
        disposals = {f"disposal{n}": world.dispose for n in range(disposers)}
        world.interleave(**disposals, fork=partial(world.fork, "a"), other=partial(world.fork, "b"))
        found = world.savepoints.find("sp")
        assert found is not None
        trace = "\n".join([f"seed {seed}", *world.scheduler.trace])
        assert not (world.told and found.disposed), trace
        seen.add((bool(world.told), found.disposed))
    assert {(True, False), (False, True)} <= seen, "each way was gone"
