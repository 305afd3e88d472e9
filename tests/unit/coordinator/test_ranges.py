"""Ranges of the next plan: starts (J5, J6), caps, new partitions, and every way records can be lost."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.bank import ASK, P0, P1, PIPELINE, BankPipeline, at, sourced
from tidemark import TopicPattern
from tidemark.errors import DataLostError, DeclarationError, NotFoundError, UsageError
from tidemark.model.core.offsets import OffsetRange, TopicPartition
from tidemark.ports import PlanRequest

LOSS = replace(ASK, accept_loss=True)


def test_the_first_plan_starts_at_earliest_and_lists_empty_partitions() -> None:
    house = BankPipeline()
    house.send(3)
    plan = house.plan()
    assert house.ranges(plan) == {P0: (0, 3), P1: (0, 0)}
    assert plan.topic_ids == {"payments": "payments#1"}
    assert (plan.parent, plan.id, str(plan.slot)) == (None, 1, "t1/1.1")


def test_a_plan_starts_where_its_parent_ended_whatever_the_source_says() -> None:
    house = BankPipeline(sourced(start="latest"))
    house.send(3)
    house.complete()
    house.send(2)
    house.send(1, P1)
    plan = house.plan()
    assert house.ranges(plan) == {P0: (3, 5), P1: (0, 1)}
    assert plan.parent == 1


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        ("earliest", (1, 0)),
        ("latest", (5, 0)),
        (at(30), (3, 0)),
        (at(99), (5, 0)),
        ({P0: 2}, (2, 0)),
        ("committed", (4, 0)),
    ],
)
def test_the_first_start_is_resolved_to_numbers(start: object, wanted: tuple[int, int]) -> None:
    house = BankPipeline(sourced(start=start, group="watchers"))
    for n in range(5):
        house.send(1, timestamp_ms=10 * n)
    house.log.trim(P0, 1)
    house.log.report_group_offsets("watchers", {P0: 4})
    ranges = house.plan().ranges
    assert (ranges[P0].start, ranges[P1].start) == wanted


@pytest.mark.parametrize("elsewhere", [0, 3, 6])
def test_offsets_at_the_broker_are_not_asked_once_there_is_a_checkpoint(elsewhere: int) -> None:
    house = BankPipeline(sourced(start="committed", group="watchers"))
    house.send(5)
    house.log.report_group_offsets("watchers", {P0: 2})
    assert house.complete().plan.ranges[P0] == OffsetRange(2, 5)
    house.send(1)
    house.log.report_group_offsets("watchers", {P0: elsewhere})
    assert house.plan().ranges[P0] == OffsetRange(5, 6)


def test_a_timestamp_without_a_zone_is_utc() -> None:
    house = BankPipeline(sourced(start=at(30).replace(tzinfo=None)))
    for n in range(5):
        house.send(1, timestamp_ms=10 * n)
    assert house.plan().ranges[P0].start == 3


def test_committed_without_a_group_and_offsets_of_strangers_are_refused() -> None:
    with pytest.raises(DeclarationError, match="without a group"):
        BankPipeline(sourced(start="committed")).plan()
    with pytest.raises(DeclarationError, match="other-7"):
        BankPipeline(sourced(start={TopicPartition("other", 7): 1})).plan()


def test_an_explicit_start_outside_the_log_is_a_loss() -> None:
    house = BankPipeline(sourced(start={P0: 9}))
    house.send(3)
    with pytest.raises(DataLostError, match=r"\[3, 9\)"):
        house.plan()


@pytest.mark.parametrize(
    "topics",
    [("payments", "refunds"), TopicPattern("pay.*|ref.*"), frozenset({P0, TopicPartition("refunds", 0)})],
)
def test_several_topics_share_one_barrier(topics: object) -> None:
    house = BankPipeline(sourced(topics=topics))
    house.log.create("refunds")
    house.send(2)
    house.send(1, TopicPartition("refunds", 0))
    plan = house.plan()
    assert plan.ranges[P0] == OffsetRange(0, 2)
    assert plan.ranges[TopicPartition("refunds", 0)] == OffsetRange(0, 1)
    assert set(plan.topic_ids) == {"payments", "refunds"}


def test_max_records_caps_each_partition_and_the_interval_is_not_covered() -> None:
    house = BankPipeline()
    house.send(5)
    house.send(1, P1)
    plan = house.plan(replace(ASK, max_records=2, interval_end=at(50)))
    assert house.ranges(plan) == {P0: (0, 2), P1: (0, 1)}
    assert plan.pending == {P0: 3}, "what the log holds beyond the range"
    assert not plan.covers


def test_max_records_that_cut_nothing_cover_the_interval() -> None:
    house = BankPipeline()
    house.send(2)
    assert house.plan(replace(ASK, max_records=2, interval_end=at(50))).covers


def test_max_records_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="max_records=0"):
        BankPipeline().plan(replace(ASK, max_records=0))


def test_until_the_interval_end_a_range_stops_before_the_first_record_that_reaches_it() -> None:
    house = BankPipeline()
    for when in (10, 60, 20, 70):  # 20 is late: it falls into the next range
        house.send(1, timestamp_ms=when)
    until = replace(ASK, until_interval_end=True, interval_start=at(0), interval_end=at(50))
    plan = house.plan(until)
    assert house.ranges(plan) == {P0: (0, 1), P1: (0, 0)}
    assert plan.covers
    assert plan.logical_time_ms == 50
    assert (plan.interval.start_ms, plan.interval.end_ms) == (0, 50)


def test_an_interval_cap_below_the_start_is_an_empty_range() -> None:
    house = BankPipeline()
    for when in (10, 60, 20):
        house.send(1, timestamp_ms=when)
    house.complete()
    plan = house.plan(replace(ASK, until_interval_end=True, interval_end=at(50)))
    assert house.ranges(plan) == {P0: (3, 3), P1: (0, 0)}


def test_an_open_transaction_delays_the_end() -> None:
    house = BankPipeline()
    house.send(5)
    house.log.hold_stable_end(P0, 2)
    assert house.plan().ranges[P0] == OffsetRange(0, 2)


def test_a_tighter_isolation_level_is_no_loss() -> None:
    house = BankPipeline(sourced(isolation="read_uncommitted"))
    house.send(5)
    house.log.hold_stable_end(P0, 2)
    house.complete()
    house.pipeline = PIPELINE
    assert house.plan().ranges[P0] == OffsetRange(5, 5)


def test_new_partitions_start_at_earliest() -> None:
    house = BankPipeline()
    house.complete()
    house.log.add_partitions("payments")
    added = TopicPartition("payments", 2)
    house.send(4, added)
    house.log.trim(added, 1)
    assert house.plan().ranges[added] == OffsetRange(1, 4)


def test_a_topic_that_the_source_drops_keeps_its_place() -> None:
    house = BankPipeline(sourced(topics=("payments", "refunds")))
    house.log.create("refunds")
    refunds = TopicPartition("refunds", 0)
    house.send(2, refunds)
    house.complete()
    house.send(1, refunds)
    house.pipeline = PIPELINE
    assert house.complete().plan.ranges[refunds] == OffsetRange(2, 2)
    house.pipeline = sourced(topics=("payments", "refunds"))
    assert house.plan().ranges[refunds] == OffsetRange(2, 3)


def test_an_unknown_topic_of_a_first_plan_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        BankPipeline(sourced(topics="nowhere")).plan()


def _after_a_checkpoint_of_three() -> BankPipeline:
    house = BankPipeline()
    house.send(3)
    house.complete()
    return house


def test_trimmed_offsets_stop_the_plan_with_the_exact_gap() -> None:
    house = _after_a_checkpoint_of_three()
    house.send(4)
    house.log.trim(P0, 5)
    before = dict(house.store.objects)
    with pytest.raises(DataLostError) as caught:
        house.plan()
    assert str(caught.value) == (
        "data lost: topic payments, partition 0, offsets [3, 5) were deleted before they were read\n"
        "Safe: every completed checkpoint and older restore point is intact; nothing was written.\n"
        "Next: lengthen the topic's retention; to go on with a recorded gap, repeat with --accept-loss."
    )
    assert house.store.objects == before


def test_an_accepted_loss_is_recorded_and_the_plan_goes_on_behind_it() -> None:
    house = _after_a_checkpoint_of_three()
    house.send(4)
    house.log.trim(P0, 5)
    plan = house.plan(LOSS)
    assert plan.ranges[P0] == OffsetRange(5, 7)
    assert [(g.partition, g.lost) for g in plan.losses] == [(P0, OffsetRange(3, 5))]


def test_a_shorter_log_is_a_loss_and_nothing_is_read_twice() -> None:
    house = _after_a_checkpoint_of_three()
    house.log.truncate(P0, 1)
    with pytest.raises(DataLostError, match=r"offsets \[1, 3\) were read, but the log is shorter now"):
        house.plan()
    house.send(1)
    plan = house.plan(LOSS)
    assert plan.ranges[P0] == OffsetRange(2, 2)
    assert [g.lost for g in plan.losses] == [OffsetRange(2, 3)]


def test_a_recreated_topic_is_refused_naming_both_ids_even_when_it_is_longer() -> None:
    house = _after_a_checkpoint_of_three()
    house.log.create("payments", 2)
    house.send(9)
    with pytest.raises(DataLostError, match="payments#1 are gone: the topic was recreated as payments#2"):
        house.plan()
    plan = house.plan(LOSS)
    assert plan.ranges[P0] == OffsetRange(0, 9)
    assert plan.topic_ids == {"payments": "payments#2"}
    assert {g.partition for g in plan.losses} == {P0, P1}


def test_a_topic_recreated_with_fewer_partitions_loses_them() -> None:
    house = _after_a_checkpoint_of_three()
    house.log.create("payments", 1)
    plan = house.plan(LOSS)
    assert list(plan.ranges) == [P0]
    assert {g.partition for g in plan.losses} == {P0, P1}


@pytest.mark.parametrize("request_", [ASK, LOSS])
def test_a_deleted_topic_is_never_an_empty_success(request_: PlanRequest) -> None:
    house = _after_a_checkpoint_of_three()
    house.log.delete("payments")
    with pytest.raises(DataLostError, match="topic payments was deleted"):
        house.plan(request_)


def test_logical_time_is_the_interval_end_or_the_clock_and_never_goes_back() -> None:
    house = BankPipeline()
    assert house.complete(replace(ASK, interval_end=at(5_000_000))).plan.logical_time_ms == 5_000_000
    assert house.complete().plan.logical_time_ms == 5_000_000
    house.clock.advance(int(timedelta(days=1).total_seconds() * 1000))
    assert house.plan().logical_time_ms == house.clock.ms


DAY_MS = 86_400_000
FUTURE = 30 * 365 * DAY_MS


def test_a_record_from_the_future_ends_no_range() -> None:
    house = BankPipeline()
    for when in (10, FUTURE, 20, FUTURE, 60, 30):
        house.send(1, timestamp_ms=when)
    plan = house.complete(replace(ASK, until_interval_end=True, interval_end=at(50))).plan
    assert house.ranges(plan) == {P0: (0, 4), P1: (0, 0)}, "60 belongs to the next interval"
    assert plan.covers
    plan = house.complete(replace(ASK, until_interval_end=True, interval_end=at(100))).plan
    assert house.ranges(plan)[P0] == (4, 6)
    house.send(1, timestamp_ms=150)
    plan = house.complete(replace(ASK, until_interval_end=True, interval_end=at(150))).plan
    assert house.ranges(plan)[P0] == (6, 6), "the record that hides it was read long ago"
    assert plan.pending == {P0: 1}


def test_of_an_interval_long_past_what_came_since_is_not_from_the_future() -> None:
    house = BankPipeline()
    house.clock.ms = 400 * DAY_MS
    house.send(1, timestamp_ms=300 * DAY_MS)
    asked = replace(ASK, until_interval_end=True, interval_end=at(DAY_MS))
    assert house.ranges(house.complete(asked).plan)[P0] == (0, 0)


def test_behind_a_record_from_the_future_no_more_is_looked_at_than_the_plan_takes() -> None:
    house = BankPipeline()
    for when in (FUTURE, 10, 20, 60):
        house.send(1, timestamp_ms=when)
    asked = replace(ASK, until_interval_end=True, interval_end=at(50), max_records=2)
    found = [house.complete(asked).plan, house.complete(asked).plan]
    assert [(house.ranges(plan)[P0], plan.covers) for plan in found] == [((0, 2), False), ((2, 3), True)]
