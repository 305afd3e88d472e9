"""The two clocks that expire state: both are frozen with the checkpoint, and the wall clock is neither (B4)."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.bank import ASK, P0, BankPipeline
from tests.unit.coordinator.test_backfill import backfill, repeat
from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.coordinator.plans.replay_ranges import steps
from tidemark.model.checkpoint.manifest import BatchFacts, Checkpoint
from tidemark.model.core.ttl import Clock, Now
from tidemark.ports import PlanRequest
from tidemark.testing.twin.memory import ManualClock

DAY = datetime(2020, 1, 1, tzinfo=UTC)
DAY_MS = int(DAY.timestamp() * 1000)
HOUR = timedelta(hours=1)
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Visit:
    """One record."""

    user: str
    at: datetime


def bank(clock: Clock, wall_ms: int) -> BankPipeline:
    """Counts visits for three hours on one of the clocks, while the wall shows what it likes."""

    class User(state.Keyed):
        visits: int | None = state.count(ttl=state.Ttl(ttl=3 * HOUR, clock=clock))

    pipeline = Pipeline(
        name="visits",
        source=KafkaSource("payments", Visit, event_time="at"),
        operators=[Fold("users", key_by="user", state=User)],
    )
    return BankPipeline(pipeline, clock=ManualClock(wall_ms))


def visits(made: BankPipeline, hour: int, *users: str) -> None:
    at = DAY + hour * HOUR
    for user in users:
        made.log.append(P0, f'{{"user":"{user}","at":"{at.isoformat()}"}}'.encode())


def until(hour: int) -> PlanRequest:
    """A DAG run whose interval ends at an hour."""
    return replace(ASK, interval_start=DAY, interval_end=DAY + hour * HOUR)


def lived(clock: Clock, wall_ms: int) -> tuple[BankPipeline, list[Checkpoint]]:
    """Ann at hour 0, Bob at hour 1, Cy at hour 3; a checkpoint for each, and the wall runs ahead in between."""
    made, found = bank(clock, wall_ms), list[Checkpoint]()
    for hour, user in ((0, "ann"), (1, "bob"), (3, "cy")):
        visits(made, hour, user)
        found.append(made.complete(until(hour)))
        made.clock.advance(100 * HOUR_MS)
    return made, found


@pytest.mark.parametrize("clock", ["event_time", "logical_time"])
def test_the_same_records_expire_alike_whatever_the_wall_clock_shows(clock: Clock) -> None:
    worlds = [lived(clock, wall_ms) for wall_ms in (1, DAY_MS, 2 * DAY_MS)]
    for made, found in worlds:
        assert made.state("users") == {("bob",): (1,), ("cy",): (1,)}
        assert [c.now for c in found] == [worlds[0][1][n].now for n in range(3)]
    rows = [made.tables.rows(found[-1].handles["users"]) for made, found in worlds]
    assert rows[0] == rows[1] == rows[2], "byte by byte the same run, access times included"


def test_both_clocks_stand_in_the_plan_and_in_the_manifest_as_it_is_stored() -> None:
    made, _ = lived("event_time", 1)
    stored = made.coordinator.checkpoint(2)
    assert (stored.plan.watermark_ms, stored.plan.logical_time_ms) == (DAY_MS, DAY_MS + HOUR_MS)
    assert stored.now == Now(event_time_ms=DAY_MS + HOUR_MS, logical_time_ms=DAY_MS + HOUR_MS)


def test_on_event_time_a_late_record_counts_as_an_access_at_the_watermark() -> None:
    made = bank("event_time", 1)
    visits(made, 5, "ann")
    made.complete(until(9))
    visits(made, 0, "bob")
    made.complete(until(10))
    assert made.state("users") == {("ann",): (1,), ("bob",): (1,)}
    (late,) = [r for r in made.tables.rows(made.coordinator.checkpoint(2).handles["users"]) if r["user"] == "bob"]
    assert late["_last_at"] == DAY_MS + 5 * HOUR_MS


def test_on_logical_time_the_end_of_the_interval_counts_and_event_time_does_not() -> None:
    made = bank("logical_time", 1)
    visits(made, 0, "ann")
    made.complete(until(20))
    assert made.state("users") == {("ann",): (1,)}, "accessed at hour 20"
    made.complete(until(22))
    assert made.state("users") == {("ann",): (1,)}
    made.complete(until(23))
    assert made.state("users") == {}


def test_a_record_ahead_of_logical_time_expires_nobody() -> None:
    made = bank("event_time", 1)
    visits(made, 1, "ann")
    made.complete(until(2))
    visits(made, 2 + 20, "bob")
    ahead = made.complete(until(3))
    assert made.state("users") == {("ann",): (1,), ("bob",): (1,)}
    assert ahead.now.event_time_ms == DAY_MS + 3 * HOUR_MS
    made.complete(until(4))
    assert made.state("users") == {("ann",): (1,), ("bob",): (1,)}, "bob counts as of hour 3, not of hour 22"
    visits(made, 5, "cy")
    made.complete(until(5))
    assert made.state("users") == {("bob",): (1,), ("cy",): (1,)}
    visits(made, 6, "cy")
    made.complete(until(6))
    assert made.state("users") == {("cy",): (2,)}


def test_a_repetition_keeps_the_rule_of_the_plan_that_it_repeats() -> None:
    made = bank("event_time", 1)
    visits(made, 1, "ann")
    first = made.complete(until(2))
    visits(made, 22, "bob")
    second = made.complete(until(3))
    old = replace(second.plan, caps_event_time=False)
    assert BatchFacts.after(old, records=1, size=1, seen={P0: DAY_MS + 22 * HOUR_MS}).watermark_ms == (
        DAY_MS + 22 * HOUR_MS
    )
    assert (old.access_ms(DAY_MS + 22 * HOUR_MS), second.plan.access_ms(DAY_MS + 22 * HOUR_MS)) == (
        DAY_MS + 22 * HOUR_MS,
        DAY_MS + 3 * HOUR_MS,
    )
    assert second.plan.access_ms(0) == DAY_MS + HOUR_MS
    assert [len(s.plans) for s in steps(made.pipeline, [second.plan, replace(second.plan, id=9)], 100)] == [2]
    assert [len(s.plans) for s in steps(made.pipeline, [old, replace(second.plan, id=9)], 100)] == [1, 1]
    (again,) = repeat(made, backfill(made, first))
    assert again.plan.caps_event_time
