"""A clock that is far ahead sets no logical time, unless a record, the parent or a person vouches for it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pytest

from tests.unit.coordinator.house import ASK, P0, House, at
from tests.unit.coordinator.test_backfill import backfill, five, repeat
from tidemark.coordinator.plans.planner import LEAP
from tidemark.coordinator.plans.restore_point import Beginning
from tidemark.errors import ConflictError
from tidemark.ports import PlanRequest

DAY = 86_400_000
YEARS = 24 * 365 * DAY
FAR = (LEAP.days + 1) * DAY


def lived() -> House:
    """A house with a checkpoint, made at a time as it is today."""
    house = House()
    house.clock.ms = 50 * YEARS
    house.send(1, timestamp_ms=house.clock.ms)
    house.complete()
    return house


def by_interval(house: House) -> PlanRequest:
    return replace(ASK, interval_end=at(house.clock.ms))


@pytest.mark.parametrize("asked", [lambda house: ASK, by_interval], ids=["the clock", "an interval"])
def test_a_time_far_beyond_all_that_is_known_is_refused_and_nothing_is_written(
    asked: Callable[[House], PlanRequest],
) -> None:
    house = lived()
    house.clock.advance(FAR)
    before = dict(house.store.objects)
    with pytest.raises(ConflictError, match="days after the newest checkpoint was made") as told:
        house.complete(asked(house))
    assert "tidemark run bank --accept-time" in told.value.next
    assert house.store.objects == before
    house.clock.advance(-FAR)
    assert house.complete(asked(house)).plan.logical_time_ms == house.clock.ms, "it was put right"


def test_who_says_that_the_time_is_right_gets_it_and_the_next_one_asks_nobody() -> None:
    house = lived()
    house.clock.advance(FAR)
    assert house.complete(replace(ASK, accept_time=True)).plan.logical_time_ms == house.clock.ms
    house.clock.advance(LEAP.days * DAY)
    assert house.complete().plan.logical_time_ms == house.clock.ms


def test_a_record_vouches_for_the_time() -> None:
    house = lived()
    house.clock.advance(FAR)
    house.send(1, timestamp_ms=house.clock.ms - LEAP.days * DAY)
    assert house.complete().plan.logical_time_ms == house.clock.ms


def test_intervals_long_past_follow_each_other_however_far_apart_they_are() -> None:
    house = lived()
    for year in (1, 3, 9):
        interval = house.complete(replace(ASK, interval_end=at(year * YEARS))).plan.interval
        assert interval is not None
        assert interval.end_ms == year * YEARS


def test_a_restored_timeline_is_as_old_as_its_restore() -> None:
    house = lived()
    first = next(house.coordinator.checkpoints())
    house.clock.advance(FAR)
    house.recovery.restore(Beginning(checkpoint=first))
    assert house.complete().plan.logical_time_ms == house.clock.ms


def test_a_backfill_has_the_recorded_times_whatever_the_clock_shows() -> None:
    house = House()
    made = five(house)
    house.clock.advance(10 * YEARS)
    one = backfill(house, made[0], fork="anew")
    assert [c.plan.logical_time_ms for c in repeat(house, one)] == [c.plan.logical_time_ms for c in made[1:]]


def test_bounds_are_those_of_the_topic_whose_id_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    house = lived()
    house.send(6)
    topic_ids, asked = house.log.topic_ids, list[str]()

    def recreated_between(topics: Iterable[str]) -> Mapping[str, str]:
        asked.append("ids")
        if len(asked) == 2:  # behind the bounds
            house.log.create("payments", 2)
            house.send(2)
        return topic_ids(topics)

    monkeypatch.setattr(house.log, "topic_ids", recreated_between)
    plan = house.plan(replace(ASK, accept_loss=True))
    assert (plan.topic_ids, house.ranges(plan)[P0]) == ({"payments": "payments#2"}, (0, 2))
