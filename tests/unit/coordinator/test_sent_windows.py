"""Closed windows that leave the warehouse: each is sent once, over restores, forks, promotes and renames."""

from dataclasses import replace

import pytest

from tests.support.bank import ASK, BankPipeline
from tests.unit.coordinator.test_frontiers import DAY, HOUR_MS, pipeline, visit
from tests.unit.coordinator.test_restoring import plan, restored
from tests.unit.coordinator.test_sent import deliver
from tidemark import KafkaSink, Watermark
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.states import Promoted
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.testing.twin.memory import ManualClock


def sending(watermark: Watermark | None = None) -> BankPipeline:
    """Hours of visits that are sent to a topic when they close."""
    (fold,) = pipeline(watermark=watermark).operators
    declared = replace(pipeline(watermark=watermark), operators=[replace(fold, sink=KafkaSink("hours", "out"))])
    made = BankPipeline(declared, clock=ManualClock(DAY + 100 * HOUR_MS))
    made.log.create("out", 1)
    return made


def four(made: BankPipeline) -> list[Checkpoint]:
    """The hours to 2:00, 3:00 and 4:00 close."""
    found = []
    for hour in (1.5, 2.5, 3.5, 4.5):
        visit(made, hour)
        found.append(made.complete())
    return found


def delivered(made: BankPipeline, count: int | None = None) -> list[int]:
    """Sends what is due; returns the hours at which the windows end."""
    return [at // HOUR_MS % 24 for at in deliver(made, count)]


def test_a_restore_sends_no_window_again_and_those_that_wait() -> None:
    made = sending()
    four(made)
    assert delivered(made, 2) == [2, 3]
    assert [p.name for p in plan(made, checkpoint=1).repeats] == ["chk-2", "chk-3", "chk-4"]
    restored(made, checkpoint=1)
    visit(made, 5.5)
    for _ in range(4):
        made.complete()
    assert delivered(made) == [4, 5]
    assert delivered(made) == []


def test_sinks_that_go_back_send_again_what_closes_again() -> None:
    made = sending()
    four(made)
    assert delivered(made) == [2, 3, 4]
    restored(made, checkpoint=2, restore_sinks=True)
    made.complete()
    assert delivered(made) == [3, 4], "the hour to 2:00 is past at the checkpoint"


def test_a_renamed_fold_sends_nothing_twice() -> None:
    made = sending()
    four(made)
    assert delivered(made) == [2, 3, 4]
    (fold,) = made.pipeline.operators
    made.pipeline = replace(made.pipeline, operators=[replace(fold, uid="by")])
    restored(made, checkpoint=1, renamed={"hours": "by"})
    visit(made, 5.5)
    for _ in range(4):
        made.complete()
    assert delivered(made) == [5]


@pytest.mark.parametrize("send", [False, True])
def test_a_fork_with_a_slower_clock_sends_only_what_was_not_sent(send: bool) -> None:
    made = sending(Watermark())
    recorded = four(made)
    assert delivered(made) == [2, 3, 4]
    made.recovery.fork(RestorePoint(checkpoint=recorded[0]), "slower")
    made.pipeline = sending(Watermark(delay="2h")).pipeline
    replace(made.loop, timeline="slower").run_once(ASK)
    assert isinstance(made.promotion.promote("slower", send=send), Promoted)
    visit(made, 7.5)
    made.complete()
    assert delivered(made) == [5], "the hours to 3:00 and 4:00 close again, and were sent"


def test_windows_that_closed_on_a_fork_wait_for_a_promote_that_sends_them() -> None:
    for send in (False, True):
        made = sending()
        first = four(made)[0]
        assert delivered(made, 1) == [2]
        made.recovery.fork(RestorePoint(checkpoint=first), "mine")
        replace(made.loop, timeline="mine").run_once(ASK)
        assert isinstance(made.promotion.promote("mine", send=send), Promoted)
        assert delivered(made) == ([3, 4] if send else [])
        visit(made, 5.5)
        made.complete()
        assert delivered(made) == [5], send
