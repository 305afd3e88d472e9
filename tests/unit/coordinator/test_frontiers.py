"""Frontiers of folds with windows: what moves them, what never reopens, and what restores and forks keep."""

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.bank import ASK, P0, P1, BankPipeline, at
from tests.unit.coordinator.test_restoring import restored
from tidemark import DeltaSink, Fold, KafkaSink, KafkaSource, Pipeline, Tumbling, Watermark, state
from tidemark.coordinator.plans.clock_rules import kept_clocks, plan_frontiers
from tidemark.coordinator.plans.inputs import Parent
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.errors import DeclarationError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.core.clocks import EventTimeClock, clocks_after
from tidemark.model.core.offsets import TopicPartition
from tidemark.ports import PlanRequest
from tidemark.testing.twin.memory import ManualClock

HOUR_MS = 3_600_000
DAY = 1_577_836_800_000
"""2020-01-01 in UTC."""


@dataclass(frozen=True)
class Visit:
    """One record."""

    account: str
    at: datetime


class Visits(state.Keyed):
    """Per account and hour."""

    n: int = state.count()


class Expiring(state.Keyed):
    """With a ttl."""

    n: int | None = state.count(ttl=timedelta(days=1))


def pipeline(watermark: Watermark | None = None, **more: Any) -> Pipeline:
    fold = Fold("hours", key_by="account", state=Visits, window=Tumbling("1h"), sink=DeltaSink("hours"), **more)
    source = KafkaSource("payments", Visit, event_time="at", watermark=watermark)
    return Pipeline(name="bank", source=source, operators=[fold], max_dead_letters=1.0)


def bank(**more: Any) -> BankPipeline:
    return BankPipeline(pipeline(**more), clock=ManualClock(DAY + 100 * HOUR_MS))


def visit(made: BankPipeline, hour: float, tp: TopicPartition = P0) -> None:
    when = at(int(DAY + hour * HOUR_MS))
    made.log.append(tp, json.dumps({"account": "a", "at": when.isoformat()}).encode(), timestamp_ms=DAY)


def until(hour: int, **more: Any) -> PlanRequest:
    """A DAG run whose interval ends at an hour."""
    return replace(ASK, interval_start=at(DAY + (hour - 1) * HOUR_MS), interval_end=at(DAY + hour * HOUR_MS), **more)


def frontier(found: Checkpoint, uid: str = "hours") -> float | None:
    """In hours of the day."""
    ms = found.sealed.facts.clocks[uid].watermark_ms
    return None if ms is None else (ms - DAY) / HOUR_MS


def closed(found: Checkpoint) -> int:
    ack = found.ack("hours")
    assert ack is not None
    return ack.emitted


def test_a_source_without_a_watermark_goes_by_its_greatest_event_time() -> None:
    made = bank()
    visit(made, 0.5)
    visit(made, 3.25, P1)
    found = made.complete()
    assert (frontier(found), closed(found)) == (3.25, 1)
    assert not found.plan.clocks["hours"].before.watermark_ms
    declared = bank(watermark=Watermark())
    visit(declared, 0.5)
    visit(declared, 3.25, P1)
    found = declared.complete()
    assert (frontier(found), closed(found)) == (0.5, 0), "the slower partition may still have records"


def test_more_lateness_reopens_nothing_and_less_counts_at_once() -> None:
    made = bank()
    visit(made, 3.5)
    assert frontier(made.complete()) == 3.5
    made.pipeline = pipeline(lateness="2h")
    visit(made, 4.5)
    assert frontier(made.complete()) == 3.5
    made.pipeline = pipeline(lateness="1h")
    visit(made, 5.5)
    assert frontier(made.complete()) == 4.5
    visit(made, 3.2)
    late = made.complete().ack("hours")
    assert late is not None and (late.late, late.dead_lettered, late.applied) == (1, 1, 0)


def test_logical_time_closes_what_the_covered_interval_ends_also_without_records() -> None:
    made = bank(closes_by="logical_time")
    visit(made, 0.5)
    first = made.complete(until(1))
    assert (frontier(first), closed(first)) == (1, 1)
    visit(made, 1.5)
    visit(made, 5.5)
    second = made.complete(until(2))
    assert (frontier(second), closed(second)) == (2, 1), "a record of a later hour closes nothing"
    idle = made.complete(until(6))
    assert (frontier(idle), closed(idle)) == (6, 1)


def test_only_the_checkpoint_that_covers_the_interval_moves_logical_time() -> None:
    made = bank(closes_by="logical_time")
    for n in range(4):
        visit(made, 0.1 * n)
    first = made.complete(until(1, max_records=2))
    assert (first.plan.covers, frontier(first), closed(first)) == (False, None, 0)
    second = made.complete(until(1))
    assert (second.plan.covers, frontier(second), closed(second)) == (True, 1, 1)
    (row,) = made.tables.rows(second.sinks["hours"].handle)
    assert row["n"] == 4, "nothing of the second checkpoint was late"


def test_a_run_without_an_interval_moves_logical_time_only_where_none_was_covered() -> None:
    made = bank(closes_by="logical_time")
    visit(made, 0.5)
    assert frontier(made.complete()) == 100, "the time of the plan"
    other = bank(closes_by="logical_time")
    visit(other, 0.5)
    other.complete(until(1))
    visit(other, 1.5)
    found = other.complete()
    assert (frontier(found), closed(found)) == (1, 0), "the intervals of the past must not all be late"


def test_a_window_behind_windows_follows_their_frontier() -> None:
    hours = pipeline(lateness="30m").operators[0]
    days = Fold("days", key_by="account", state=Visits, input="hours", window=Tumbling("4h"), sink=DeltaSink("days"))
    both = replace(pipeline(), operators=[days, hours])
    made = BankPipeline(both, clock=ManualClock(DAY + 100 * HOUR_MS))
    for hour in (0.5, 3.9, 4.6):
        visit(made, hour)
    found = made.complete()
    assert (frontier(found), frontier(found, "days")) == (4.1, 4.1)
    (row,) = made.tables.rows(found.sinks["days"].handle)
    assert row["n"] == 2, "the hour up to 4:00 closed in the same checkpoint and is not late"
    assert found.plan.inputs == {"hours": "records", "days": "hours"}, "the lineage graph needs it"
    assert found.plan.clocks["days"].frontier is not None and found.plan.clocks["days"].frontier.inputs == ("hours",)


def test_a_restore_and_a_fork_go_back_to_the_frontier_of_their_checkpoint() -> None:
    made = bank()
    visit(made, 1.5)
    first = made.complete()
    visit(made, 9.5)
    made.complete()
    made.recovery.fork(RestorePoint(checkpoint=first), "mine")
    genesis = made.coordinator.timelines.entry("mine", 1)
    assert isinstance(genesis, Genesis) and genesis.clocks == first.sealed.facts.clocks
    restored(made, checkpoint=first.id, restore_sinks=True)
    again = made.complete()
    assert again.plan.clocks["hours"].before == first.sealed.facts.clocks["hours"]
    assert (frontier(again), closed(again)) == (9.5, 1)


def test_a_restore_that_renames_a_fold_takes_its_frontier_along() -> None:
    made = bank()
    visit(made, 1.5)
    made.complete()
    visit(made, 3.5)
    second = made.complete()
    assert closed(second) == 1, "its row is stored by the first checkpoint, and hidden"
    (fold,) = made.pipeline.operators
    made.pipeline = replace(made.pipeline, operators=[replace(fold, uid="by_hour")])
    restored(made, checkpoint=second.id, restore_sinks=True, renamed={"hours": "by_hour"})
    found = made.complete()
    assert frontier(found, "by_hour") == frontier(second)
    ack = found.ack("by_hour")
    assert ack is not None and ack.emitted == 0, "the hour up to 2:00 is closed already"


def test_a_renamed_fold_keeps_its_frontier() -> None:
    made = bank()
    visit(made, 3.5)
    first = made.complete()
    (fold,) = made.pipeline.operators
    made.pipeline = replace(made.pipeline, operators=[replace(fold, uid="by_hour", was="hours")])
    found = made.complete()
    assert frontier(found, "by_hour") == frontier(first)
    assert "hours" not in found.sealed.facts.clocks


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"window": None, "lateness": "1m"}, "lateness= without a window"),
        ({"window": None, "sink": DeltaSink("x")}, "sink= without a window"),
        ({"window": None, "closes_by": "logical_time"}, "closes_by= without a window"),
        ({"window": "1h"}, "window='1h'"),
        ({"window": Tumbling("1h"), "closes_by": "count"}, "closes_by='count'"),
        ({"window": Tumbling("1h"), "deletes": True}, "deletes=True with a window"),
        ({"window": Tumbling("1h"), "state": Expiring}, r"a ttl \(n\) with a window"),
        ({"window": Tumbling("1h"), "lateness": "soon"}, "hours: lateness='soon' is not a duration"),
        (
            {"window": Tumbling("1h"), "sink": KafkaSink("x", "x"), "emit": "update"},
            'emit="update" to a KafkaSink',
        ),
        ({"window": Tumbling("1h"), "key_by": "window_end"}, "window_end"),
    ],
)
def test_what_does_not_go_with_windows_is_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(DeclarationError, match=what):
        replace(pipeline(), operators=[Fold("hours", **{"key_by": "account", "state": Visits, **options})])
    with pytest.raises(DeclarationError, match="size='0s' is not a duration"):
        Tumbling("0s")


def test_a_checkpoint_without_an_engine_keeps_the_frontier_and_the_next_goes_on_from_it() -> None:
    before = {"hours": EventTimeClock(watermark_ms=DAY + 2 * HOUR_MS, is_idle=False)}
    planned = kept_clocks(before)
    assert clocks_after(planned, {}, DAY + 99 * HOUR_MS, {}) == before
    made = plan_frontiers(pipeline(), Parent(clocks=before), None)["hours"]
    assert made.before == before["hours"]
    slower = EventTimeClock(watermark_ms=DAY, is_idle=False)
    assert made.moved_by({"records": slower}).watermark_ms == DAY + 2 * HOUR_MS, "it never falls"
