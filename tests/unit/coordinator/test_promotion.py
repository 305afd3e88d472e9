"""Promotes: a fork takes the live timeline's next slot, if it has applied what that has."""

from dataclasses import replace

import pytest

from tests.support.bank import ASK, BankPipeline
from tests.unit.coordinator.test_recovery import three
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.states import Promoted, PromotionBlocked, Superseded
from tidemark.coordinator.recovery.promotion import Promotion
from tidemark.errors import NotFoundError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Closing


def fork(bank: BankPipeline, at: Checkpoint, name: str = "fix") -> CheckpointLoop:
    """A fork, ready to advance."""
    bank.recovery.fork(RestorePoint(checkpoint=at), name)
    return CheckpointLoop(coordinator=bank.coordinator, pipeline=bank.pipeline, execute=bank.execute, timeline=name)


def test_a_fork_that_caught_up_becomes_live() -> None:
    bank = BankPipeline()
    made = three(bank)
    ahead = fork(bank, made[0])
    assert bank.promotion.promote("fix") == PromotionBlocked(timeline="fix", lacking=(made[2], made[1]))
    caught_up = ahead.run_once(ASK).checkpoints[0]
    done = bank.promotion.promote("fix")
    assert isinstance(done, Promoted)
    assert (done.won, done.replaced, done.left) == (True, (made[2], made[1]), ())
    assert (done.closing.timeline, done.closing.sequence, done.closing.why) == ("t1", 4, "promote")
    assert next(bank.coordinator.checkpoints()) == caught_up
    assert bank.promotion.promote("fix") == Promoted(closing=done.closing), "a repeated call finds it"
    bank.send(1)
    assert str(bank.complete().plan.slot) == "fix/3.1"
    assert list(bank.coordinator.checkpoints("t1")) == made[::-1]


@pytest.mark.parametrize("records", [0, 1])
def test_a_checkpoint_that_wins_the_slot_makes_the_fork_catch_up_unless_it_was_idle(records: int) -> None:
    bank = BankPipeline()
    made = three(bank)
    fork(bank, made[0]).run_once(ASK)
    won: list[Checkpoint] = []

    def crash(step: str, moment: str) -> None:
        if (step, moment) == ("closing", "before") and not won:
            bank.send(records)
            won.append(bank.complete())

    done = Promotion(coordinator=replace(bank.coordinator, listener=crash)).promote("fix")
    if records:
        assert done == PromotionBlocked(timeline="fix", lacking=(won[0],), overtaken=True)
    else:
        assert isinstance(done, Promoted)
        assert (done.closing.sequence, done.replaced) == (5, (won[0], made[2], made[1]))


def test_discard_leaves_behind_what_was_lacking_and_no_more() -> None:
    bank = BankPipeline()
    made = three(bank)
    fork(bank, made[0], "a")
    fork(bank, made[0], "b")
    won: list[Checkpoint] = []

    def crash(step: str, moment: str) -> None:
        if (step, moment) == ("closing", "before") and not won:
            bank.send(1)
            won.append(bank.complete())

    done = Promotion(coordinator=replace(bank.coordinator, listener=crash)).promote("a", discard=True)
    assert done == PromotionBlocked(timeline="a", lacking=(won[0], made[2], made[1]), overtaken=True)
    promoted = bank.promotion.promote("a", discard=True)
    assert isinstance(promoted, Promoted)
    assert promoted.left == (won[0], made[2], made[1])
    assert bank.complete().plan.parent == 1
    bank.promotion.promote("b", discard=True)
    closing = bank.coordinator.head("a").entry
    assert isinstance(closing, Closing)
    assert bank.promotion.promote("a") == Superseded(closing=closing)


def test_only_a_timeline_that_began_can_be_promoted() -> None:
    bank = BankPipeline()
    three(bank)
    with pytest.raises(NotFoundError, match="no timeline 'nobody'"):
        bank.promotion.promote("nobody")
