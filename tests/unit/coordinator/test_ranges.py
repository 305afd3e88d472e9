"""Ranges of the next plan: starts (J5, J6), caps, new partitions, and every way records can be lost."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.bank import ASK, P0, P1, PIPELINE, BankPipeline, at, sourced
from tests.support.row_changes import Copy, Item, Table
from tidemark import Fold, KafkaSource, Pipeline, TopicPattern, formats
from tidemark.declare.sources import Start
from tidemark.errors import DataLostError, DeclarationError, IncompatibleStateError, NotFoundError, UsageError
from tidemark.model.core.offsets import OffsetRange, TopicPartition
from tidemark.ports import PlanRequest

LOSS = replace(ASK, accept_loss=True)


def test_the_first_plan_starts_at_earliest_and_lists_empty_partitions() -> None:
    bank = BankPipeline()
    bank.send(3)
    plan = bank.plan()
    assert bank.ranges(plan) == {P0: (0, 3), P1: (0, 0)}
    assert plan.topic_ids == {"payments": "payments/1"}
    assert (plan.parent, plan.id, str(plan.slot)) == (None, 1, "t1/1.1")


def test_a_plan_starts_where_its_parent_ended_whatever_the_source_says() -> None:
    bank = BankPipeline(sourced(start="latest"))
    bank.send(3)
    bank.complete()
    bank.send(2)
    bank.send(1, P1)
    plan = bank.plan()
    assert bank.ranges(plan) == {P0: (3, 5), P1: (0, 1)}
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
def test_the_first_start_is_resolved_to_numbers(start: Start, wanted: tuple[int, int]) -> None:
    bank = BankPipeline(sourced(start=start, group="watchers"))
    for n in range(5):
        bank.send(1, timestamp_ms=10 * n)
    bank.log.trim(P0, 1)
    bank.log.report_group_offsets("watchers", {P0: 4})
    ranges = bank.plan().ranges
    assert (ranges[P0].start, ranges[P1].start) == wanted


@pytest.mark.parametrize("elsewhere", [0, 3, 6])
def test_offsets_at_the_broker_are_not_asked_once_there_is_a_checkpoint(elsewhere: int) -> None:
    bank = BankPipeline(sourced(start="committed", group="watchers"))
    bank.send(5)
    bank.log.report_group_offsets("watchers", {P0: 2})
    assert bank.complete().plan.ranges[P0] == OffsetRange(2, 5)
    bank.send(1)
    bank.log.report_group_offsets("watchers", {P0: elsewhere})
    assert bank.plan().ranges[P0] == OffsetRange(5, 6)


def test_a_timestamp_without_a_zone_is_utc() -> None:
    bank = BankPipeline(sourced(start=at(30).replace(tzinfo=None)))
    for n in range(5):
        bank.send(1, timestamp_ms=10 * n)
    assert bank.plan().ranges[P0].start == 3


def test_committed_without_a_group_and_offsets_of_strangers_are_refused() -> None:
    with pytest.raises(DeclarationError, match="without a group"):
        BankPipeline(sourced(start="committed")).plan()
    with pytest.raises(DeclarationError, match="other-7"):
        BankPipeline(sourced(start={TopicPartition("other", 7): 1})).plan()


def test_an_explicit_start_outside_the_log_is_a_loss() -> None:
    bank = BankPipeline(sourced(start={P0: 9}))
    bank.send(3)
    with pytest.raises(DataLostError, match=r"\[3, 9\)"):
        bank.plan()


@pytest.mark.parametrize(
    "topics",
    [("payments", "refunds"), TopicPattern("pay.*|ref.*"), frozenset({P0, TopicPartition("refunds", 0)})],
)
def test_several_topics_share_one_barrier(topics: tuple[str, ...] | TopicPattern | frozenset[TopicPartition]) -> None:
    bank = BankPipeline(sourced(topics=topics))
    bank.log.create("refunds")
    bank.send(2)
    bank.send(1, TopicPartition("refunds", 0))
    plan = bank.plan()
    assert plan.ranges[P0] == OffsetRange(0, 2)
    assert plan.ranges[TopicPartition("refunds", 0)] == OffsetRange(0, 1)
    assert set(plan.topic_ids) == {"payments", "refunds"}


def test_max_records_bounds_all_partitions_together_and_the_interval_is_not_covered() -> None:
    bank = BankPipeline()
    for when in (10, 30, 50, 70, 90):
        bank.send(1, timestamp_ms=when)
    bank.send(1, P1, timestamp_ms=20)
    plan = bank.plan(replace(ASK, max_records=2, interval_end=at(100)))
    assert bank.ranges(plan) == {P0: (0, 1), P1: (0, 1)}, "the two oldest"
    assert plan.pending == {P0: 4}, "what the log holds beyond the range"
    assert not plan.covers


def test_max_records_that_cut_nothing_cover_the_interval() -> None:
    bank = BankPipeline()
    bank.send(2)
    assert bank.plan(replace(ASK, max_records=2, interval_end=at(50))).covers


def test_max_records_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="max_records=0"):
        BankPipeline().plan(replace(ASK, max_records=0))


def test_until_the_interval_end_a_range_stops_before_the_first_record_that_reaches_it() -> None:
    bank = BankPipeline()
    for when in (10, 60, 20, 70):  # 20 is late: it falls into the next range
        bank.send(1, timestamp_ms=when)
    until = replace(ASK, until_interval_end=True, interval_start=at(0), interval_end=at(50))
    plan = bank.plan(until)
    assert bank.ranges(plan) == {P0: (0, 1), P1: (0, 0)}
    assert plan.covers
    assert plan.logical_time_ms == 50
    assert plan.interval is not None
    assert (plan.interval.start_ms, plan.interval.end_ms) == (0, 50)


def test_an_interval_cap_below_the_start_is_an_empty_range() -> None:
    bank = BankPipeline()
    for when in (10, 60, 20):
        bank.send(1, timestamp_ms=when)
    bank.complete()
    plan = bank.plan(replace(ASK, until_interval_end=True, interval_end=at(50)))
    assert bank.ranges(plan) == {P0: (3, 3), P1: (0, 0)}


def test_an_open_transaction_delays_the_end() -> None:
    bank = BankPipeline()
    bank.send(5)
    bank.log.hold_stable_end(P0, 2)
    assert bank.plan().ranges[P0] == OffsetRange(0, 2)


def test_a_tighter_isolation_level_is_no_loss() -> None:
    bank = BankPipeline(sourced(isolation="read_uncommitted"))
    bank.send(5)
    bank.log.hold_stable_end(P0, 2)
    bank.complete()
    bank.pipeline = PIPELINE
    assert bank.plan().ranges[P0] == OffsetRange(5, 5)


def test_new_partitions_start_at_earliest() -> None:
    bank = BankPipeline()
    bank.complete()
    bank.log.add_partitions("payments")
    added = TopicPartition("payments", 2)
    bank.send(4, added)
    bank.log.trim(added, 1)
    assert bank.plan().ranges[added] == OffsetRange(1, 4)


def test_a_topic_that_the_source_drops_keeps_its_place() -> None:
    bank = BankPipeline(sourced(topics=("payments", "refunds")))
    bank.log.create("refunds")
    refunds = TopicPartition("refunds", 0)
    bank.send(2, refunds)
    bank.complete()
    bank.send(1, refunds)
    bank.pipeline = PIPELINE
    assert bank.complete().plan.ranges[refunds] == OffsetRange(2, 2)
    bank.pipeline = sourced(topics=("payments", "refunds"))
    assert bank.plan().ranges[refunds] == OffsetRange(2, 3)


def test_an_unknown_topic_of_a_first_plan_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        BankPipeline(sourced(topics="nowhere")).plan()


def _after_a_checkpoint_of_three() -> BankPipeline:
    bank = BankPipeline()
    bank.send(3)
    bank.complete()
    return bank


def test_trimmed_offsets_stop_the_plan_with_the_exact_gap() -> None:
    bank = _after_a_checkpoint_of_three()
    bank.send(4)
    bank.log.trim(P0, 5)
    before = dict(bank.store.objects)
    with pytest.raises(DataLostError) as caught:
        bank.plan()
    assert str(caught.value) == (
        "data lost: topic payments, partition 0, offsets [3, 5) were deleted before they were read\n"
        "Safe: every completed checkpoint and older restore point is intact; nothing was written.\n"
        "Next: lengthen the topic's retention; to continue with a recorded gap, repeat with --accept-loss."
    )
    assert bank.store.objects == before


def test_an_accepted_loss_is_recorded_and_the_plan_goes_on_behind_it() -> None:
    bank = _after_a_checkpoint_of_three()
    bank.send(4)
    bank.log.trim(P0, 5)
    plan = bank.plan(LOSS)
    assert plan.ranges[P0] == OffsetRange(5, 7)
    assert [(g.partition, g.lost) for g in plan.losses] == [(P0, OffsetRange(3, 5))]


def test_a_shorter_log_is_a_loss_and_nothing_is_read_twice() -> None:
    bank = _after_a_checkpoint_of_three()
    bank.log.truncate(P0, 1)
    with pytest.raises(DataLostError, match=r"offsets \[1, 3\) were read, but the log is shorter now"):
        bank.plan()
    bank.send(1)
    plan = bank.plan(LOSS)
    assert plan.ranges[P0] == OffsetRange(2, 2)
    assert [g.lost for g in plan.losses] == [OffsetRange(2, 3)]


def test_a_recreated_topic_is_refused_naming_both_ids_even_when_it_is_longer() -> None:
    bank = _after_a_checkpoint_of_three()
    bank.log.create("payments", 2)
    bank.send(9)
    with pytest.raises(DataLostError, match="payments/1 are gone: the topic was recreated as payments/2"):
        bank.plan()
    plan = bank.plan(LOSS)
    assert plan.ranges[P0] == OffsetRange(0, 9)
    assert plan.topic_ids == {"payments": "payments/2"}
    assert {g.partition for g in plan.losses} == {P0, P1}


def _changes(uid: str) -> Pipeline:
    return Pipeline(
        name=PIPELINE.name,
        source=KafkaSource("payments", Item, format=formats.Debezium()),
        operators=[Fold(uid, key_by=("id", "region"), state=Copy, deletes=True)],
    )


def test_changes_of_a_recreated_topic_need_a_new_uid() -> None:
    bank, table = BankPipeline(_changes("copy")), Table()
    table.upsert({"id": 1, "region": "a", "name": "old", "cents": 4})
    table.upsert({"id": 1, "region": "a", "name": "new", "cents": 5})
    for key, value in table.sent:
        bank.log.append(P0, value, key=key)
    bank.complete()
    bank.log.create("payments", 2)
    bank.log.append(P0, table.sent[1][1], key=table.sent[1][0])
    with pytest.raises(DataLostError):
        bank.plan()
    with pytest.raises(IncompatibleStateError, match=r"versions of rows go by offset: copy \(topic payments\)"):
        bank.plan(LOSS)
    bank.pipeline = _changes("again")
    bank.complete(replace(LOSS, allow_non_restored_state=True))
    assert bank.state("again") == {(1, "a"): ("new", 5, None, "u", "new")}
    bank.complete()
    assert bank.state("again")[1, "a"][0] == "new"


def test_a_topic_recreated_with_fewer_partitions_loses_them() -> None:
    bank = _after_a_checkpoint_of_three()
    bank.log.create("payments", 1)
    plan = bank.plan(LOSS)
    assert list(plan.ranges) == [P0]
    assert {g.partition for g in plan.losses} == {P0, P1}


@pytest.mark.parametrize("request_", [ASK, LOSS])
def test_a_deleted_topic_is_never_an_empty_success(request_: PlanRequest) -> None:
    bank = _after_a_checkpoint_of_three()
    bank.log.delete("payments")
    with pytest.raises(DataLostError, match="topic payments was deleted"):
        bank.plan(request_)


def test_logical_time_is_the_interval_end_or_the_clock_and_never_goes_back() -> None:
    bank = BankPipeline()
    assert bank.complete(replace(ASK, interval_end=at(5_000_000))).plan.logical_time_ms == 5_000_000
    assert bank.complete().plan.logical_time_ms == 5_000_000
    bank.clock.advance(int(timedelta(days=1).total_seconds() * 1000))
    assert bank.plan().logical_time_ms == bank.clock.ms


DAY_MS = 86_400_000
FUTURE = 30 * 365 * DAY_MS


def test_a_record_from_the_future_ends_no_range() -> None:
    bank = BankPipeline()
    for when in (10, FUTURE, 20, FUTURE, 60, 30):
        bank.send(1, timestamp_ms=when)
    plan = bank.complete(replace(ASK, until_interval_end=True, interval_end=at(50))).plan
    assert bank.ranges(plan) == {P0: (0, 4), P1: (0, 0)}, "60 belongs to the next interval"
    assert plan.covers
    plan = bank.complete(replace(ASK, until_interval_end=True, interval_end=at(100))).plan
    assert bank.ranges(plan)[P0] == (4, 6)
    bank.send(1, timestamp_ms=150)
    plan = bank.complete(replace(ASK, until_interval_end=True, interval_end=at(150))).plan
    assert bank.ranges(plan)[P0] == (6, 6), "the record that hides it was read long ago"
    assert plan.pending == {P0: 1}


def test_of_an_interval_long_past_what_came_since_is_not_from_the_future() -> None:
    bank = BankPipeline()
    bank.clock.ms = 400 * DAY_MS
    bank.send(1, timestamp_ms=300 * DAY_MS)
    asked = replace(ASK, until_interval_end=True, interval_end=at(DAY_MS))
    assert bank.ranges(bank.complete(asked).plan)[P0] == (0, 0)


def test_behind_a_record_from_the_future_no_more_is_looked_at_than_the_plan_takes() -> None:
    bank = BankPipeline()
    for when in (FUTURE, 10, 20, 60):
        bank.send(1, timestamp_ms=when)
    asked = replace(ASK, until_interval_end=True, interval_end=at(50), max_records=2)
    found = [bank.complete(asked).plan, bank.complete(asked).plan]
    assert [(bank.ranges(plan)[P0], plan.covers) for plan in found] == [((0, 2), False), ((2, 3), True)]
