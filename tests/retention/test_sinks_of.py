"""A restore goes on with the sinks of the live timeline: it pins the checkpoint that they belong to (adr/0024)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.retention import MemoryRetentionPipeline
from tidemark.coordinator.checkpoints.steps import ignore_step
from tidemark.coordinator.plans.restore_point import Beginning
from tidemark.coordinator.records.states import Restored
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.timeline_end import Ending
from tidemark.declare.retention import Retention
from tidemark.errors import ConflictError

NEWEST = Retention.keep_last(1)


def shelved() -> MemoryRetentionPipeline:
    """Timeline t2 is live, with sinks of its own; a savepoint pins a checkpoint of t1."""
    shelf = MemoryRetentionPipeline()
    for _ in range(3):
        shelf.checkpoint("ann", "bob")
    shelf.save("keep", 1)
    shelf.restore(2)
    for _ in range(3):
        shelf.checkpoint("ann")
    return shelf


def beside(shelf: MemoryRetentionPipeline, at: tuple[str, str], act: Callable[[], object]) -> Recovery:
    """A recovery that stands still at a crash point while something else happens."""
    done: list[object] = []

    def crash(step: str, moment: str) -> None:
        if (step, moment) == at and not done:
            done.append(None)
            act()

    return Recovery(coordinator=replace(shelf.coordinator, listener=crash))


def outlived(shelf: MemoryRetentionPipeline) -> None:
    """So many checkpoints of the live timeline that the log of its sink is trimmed behind the one before."""
    for _ in range(30):
        shelf.checkpoint("ann")
    for _ in range(2):
        shelf.sweep(NEWEST)


def whole(shelf: MemoryRetentionPipeline) -> None:
    """The live timeline takes a checkpoint that can be read, and retention sweeps."""
    shelf.sweep(NEWEST)
    assert shelf.readable(shelf.checkpoint("ann"))


def test_a_genesis_that_comes_too_late_for_its_sinks_is_refused_and_repeated() -> None:
    shelf = shelved()
    beginning = Beginning(checkpoint=shelf.coordinator.checkpoint(1), savepoint="keep")
    with pytest.raises(ConflictError, match="whose sinks timeline t3 would go on with, is about to be deleted"):
        beside(shelf, ("genesis", "before"), lambda: outlived(shelf)).restore(beginning)
    assert shelf.coordinator.timelines.live() == "t2"
    whole(shelf)
    done = shelf.recovery.restore(beginning)
    assert isinstance(done, Restored)
    assert done.genesis.timeline == "t4", "what was refused can never become live"
    whole(shelf)


def test_a_request_with_an_id_that_was_refused_is_carried_out_when_it_is_repeated() -> None:
    shelf = shelved()
    beginning = Beginning(checkpoint=shelf.coordinator.checkpoint(1))
    with pytest.raises(ConflictError, match="whose sinks"):
        beside(shelf, ("genesis", "before"), lambda: outlived(shelf)).restore(beginning, "r1")
    first = shelf.recovery.restore(beginning, "r1")
    whole(shelf)
    again = shelf.recovery.restore(beginning, "r1")
    assert (first.genesis, again.genesis.timeline, again.won) == (again.genesis, "t4", False)


def test_a_genesis_pins_the_checkpoint_whose_sinks_it_has_until_it_has_its_own() -> None:
    shelf = shelved()
    head = next(shelf.coordinator.checkpoints())
    beginning = Beginning(checkpoint=shelf.coordinator.checkpoint(1), savepoint="keep")
    done = beside(shelf, ("genesis", "after"), lambda: outlived(shelf)).restore(beginning)
    assert done.genesis.sinks_of == head.id
    assert shelf.readable(head)
    whole(shelf)
    shelf.sweep(NEWEST)
    assert not shelf.readable(head), "its sinks are those of a checkpoint of its own by now"


def test_what_was_refused_holds_nothing_and_can_be_closed() -> None:
    shelf = shelved()
    shelf.save("other", 2)
    beginning = Beginning(checkpoint=shelf.coordinator.checkpoint(2))
    with pytest.raises(ConflictError, match="whose sinks"):
        beside(shelf, ("genesis", "before"), lambda: outlived(shelf)).restore(beginning)
    assert Ending(coordinator=replace(shelf.coordinator, listener=ignore_step)).close("t3").won
    shelf.savepoints.dispose("other")
    assert "chk-2" in shelf.sweep(NEWEST).released


def test_a_restore_of_a_restore_without_checkpoints_pins_the_same_sinks() -> None:
    shelf = shelved()
    head = next(shelf.coordinator.checkpoints())
    first = shelf.recovery.restore(Beginning(checkpoint=shelf.coordinator.checkpoint(1)))
    second = shelf.recovery.restore(Beginning(checkpoint=shelf.coordinator.checkpoint(1)))
    assert (first.genesis.sinks_of, second.genesis.sinks_of) == (head.id, head.id)
    whole(shelf)
