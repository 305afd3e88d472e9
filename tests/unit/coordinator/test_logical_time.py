"""A clock that is far ahead sets no logical time, unless a record, the parent or a person vouches for it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pytest

from tests.support.bank import ASK, P0, BankPipeline, at
from tests.unit.coordinator.test_backfill import backfill, five, repeat
from tidemark.coordinator.plans.planner import LEAP
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.errors import ConflictError
from tidemark.ports import PlanRequest

DAY = 86_400_000
YEARS = 24 * 365 * DAY
FAR = (LEAP.days + 1) * DAY


def lived() -> BankPipeline:
    """A bank with a checkpoint, made at a time as it is today."""
    bank = BankPipeline()
    bank.clock.ms = 50 * YEARS
    bank.send(1, timestamp_ms=bank.clock.ms)
    bank.complete()
    return bank


def by_interval(bank: BankPipeline) -> PlanRequest:
    return replace(ASK, interval_end=at(bank.clock.ms))


@pytest.mark.parametrize("asked", [lambda bank: ASK, by_interval], ids=["the clock", "an interval"])
def test_a_time_far_beyond_all_that_is_known_is_refused_and_nothing_is_written(
    asked: Callable[[BankPipeline], PlanRequest],
) -> None:
    bank = lived()
    bank.clock.advance(FAR)
    before = dict(bank.store.objects)
    with pytest.raises(ConflictError, match="days after the newest checkpoint was made") as told:
        bank.complete(asked(bank))
    assert "tidemark run bank --accept-time" in told.value.next
    assert bank.store.objects == before
    bank.clock.advance(-FAR)
    assert bank.complete(asked(bank)).plan.logical_time_ms == bank.clock.ms, "it was put right"


def test_who_says_that_the_time_is_right_gets_it_and_the_next_one_asks_nobody() -> None:
    bank = lived()
    bank.clock.advance(FAR)
    assert bank.complete(replace(ASK, accept_time=True)).plan.logical_time_ms == bank.clock.ms
    bank.clock.advance(LEAP.days * DAY)
    assert bank.complete().plan.logical_time_ms == bank.clock.ms


def test_a_record_vouches_for_the_time() -> None:
    bank = lived()
    bank.clock.advance(FAR)
    bank.send(1, timestamp_ms=bank.clock.ms - LEAP.days * DAY)
    assert bank.complete().plan.logical_time_ms == bank.clock.ms


def test_intervals_long_past_follow_each_other_however_far_apart_they_are() -> None:
    bank = lived()
    for year in (1, 3, 9):
        interval = bank.complete(replace(ASK, interval_end=at(year * YEARS))).plan.interval
        assert interval is not None
        assert interval.end_ms == year * YEARS


def test_a_restored_timeline_is_as_old_as_its_restore() -> None:
    bank = lived()
    first = next(bank.coordinator.checkpoints())
    bank.clock.advance(FAR)
    bank.recovery.restore(RestorePoint(checkpoint=first))
    assert bank.complete().plan.logical_time_ms == bank.clock.ms


def test_a_backfill_has_the_recorded_times_whatever_the_clock_shows() -> None:
    bank = BankPipeline()
    made = five(bank)
    bank.clock.advance(10 * YEARS)
    one = backfill(bank, made[0], fork="anew")
    assert [c.plan.logical_time_ms for c in repeat(bank, one)] == [c.plan.logical_time_ms for c in made[1:]]


def test_bounds_are_those_of_the_topic_whose_id_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = lived()
    bank.send(6)
    topic_ids, asked = bank.log.topic_ids, list[str]()

    def recreated_between(topics: Iterable[str]) -> Mapping[str, str]:
        asked.append("ids")
        if len(asked) == 2:  # behind the bounds
            bank.log.create("payments", 2)
            bank.send(2)
        return topic_ids(topics)

    monkeypatch.setattr(bank.log, "topic_ids", recreated_between)
    plan = bank.plan(replace(ASK, accept_loss=True))
    assert (plan.topic_ids, bank.ranges(plan)[P0]) == ({"payments": "payments/2"}, (0, 2))
