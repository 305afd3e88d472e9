"""A restore goes on with the sinks of the live timeline: it pins the checkpoint that they belong to (adr/0024)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.retention import MemoryRetentionPipeline
from tidemark.coordinator.checkpoints.job import ignore_step
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.states import Restored
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.timeline_end import Ending
from tidemark.declare.retention import Retention
from tidemark.errors import ConflictError

NEWEST = Retention.keep_last(1)


def shelved() -> MemoryRetentionPipeline:
    """Timeline t2 is live, with sinks of its own; a savepoint pins a checkpoint of t1."""
    retained = MemoryRetentionPipeline()
    for _ in range(3):
        retained.checkpoint("ann", "bob")
    retained.save("keep", 1)
    retained.restore(2)
    for _ in range(3):
        retained.checkpoint("ann")
    return retained


def beside(retained: MemoryRetentionPipeline, at: tuple[str, str], act: Callable[[], object]) -> Recovery:
    """A recovery that stands still at a crash point while something else happens."""
    done: list[object] = []

    def crash(step: str, moment: str) -> None:
        if (step, moment) == at and not done:
            done.append(None)
            act()

    return Recovery(coordinator=replace(retained.coordinator, listener=crash))


def outlived(retained: MemoryRetentionPipeline) -> None:
    """So many checkpoints of the live timeline that the log of its sink is trimmed behind the one before."""
    for _ in range(30):
        retained.checkpoint("ann")
    for _ in range(2):
        retained.sweep(NEWEST)


def whole(retained: MemoryRetentionPipeline) -> None:
    """The live timeline takes a checkpoint that can be read, and retention sweeps."""
    retained.sweep(NEWEST)
    assert retained.readable(retained.checkpoint("ann"))


def test_a_genesis_that_comes_too_late_for_its_sinks_is_refused_and_repeated() -> None:
    retained = shelved()
    restore_point = RestorePoint(checkpoint=retained.coordinator.checkpoint(1), savepoint="keep")
    with pytest.raises(ConflictError, match="whose sinks timeline t3 would continue, is about to be deleted"):
        beside(retained, ("genesis", "before"), lambda: outlived(retained)).restore(restore_point)
    assert retained.coordinator.timelines.live() == "t2"
    whole(retained)
    done = retained.recovery.restore(restore_point)
    assert isinstance(done, Restored)
    assert done.genesis.timeline == "t4", "what was refused can never become live"
    whole(retained)


def test_a_request_with_an_id_that_was_refused_is_carried_out_when_it_is_repeated() -> None:
    retained = shelved()
    restore_point = RestorePoint(checkpoint=retained.coordinator.checkpoint(1))
    with pytest.raises(ConflictError, match="whose sinks"):
        beside(retained, ("genesis", "before"), lambda: outlived(retained)).restore(restore_point, "r1")
    first = retained.recovery.restore(restore_point, "r1")
    whole(retained)
    again = retained.recovery.restore(restore_point, "r1")
    assert isinstance(again, Restored)
    assert (first.genesis, again.genesis.timeline, again.won) == (again.genesis, "t4", False)


def test_a_genesis_pins_the_checkpoint_whose_sinks_it_has_until_it_has_its_own() -> None:
    retained = shelved()
    head = next(retained.coordinator.checkpoints())
    restore_point = RestorePoint(checkpoint=retained.coordinator.checkpoint(1), savepoint="keep")
    done = beside(retained, ("genesis", "after"), lambda: outlived(retained)).restore(restore_point)
    assert isinstance(done, Restored)
    assert done.genesis.sinks_of == head.id
    assert retained.readable(head)
    whole(retained)
    retained.sweep(NEWEST)
    assert not retained.readable(head), "its sinks are those of a checkpoint of its own by now"


def test_what_was_refused_holds_nothing_and_can_be_closed() -> None:
    retained = shelved()
    retained.save("other", 2)
    restore_point = RestorePoint(checkpoint=retained.coordinator.checkpoint(2))
    with pytest.raises(ConflictError, match="whose sinks"):
        beside(retained, ("genesis", "before"), lambda: outlived(retained)).restore(restore_point)
    assert Ending(coordinator=replace(retained.coordinator, listener=ignore_step)).close("t3").won
    retained.savepoints.dispose("other")
    assert "chk-2" in retained.sweep(NEWEST).released


def test_a_restore_of_a_restore_without_checkpoints_pins_the_same_sinks() -> None:
    retained = shelved()
    head = next(retained.coordinator.checkpoints())
    first = retained.recovery.restore(RestorePoint(checkpoint=retained.coordinator.checkpoint(1)))
    second = retained.recovery.restore(RestorePoint(checkpoint=retained.coordinator.checkpoint(1)))
    assert isinstance(first, Restored) and isinstance(second, Restored)
    assert (first.genesis.sinks_of, second.genesis.sinks_of) == (head.id, head.id)
    whole(retained)
