"""Stops that drain windows, in memory: the order of steps, every step that can die, and the way back."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.support.bank import ASK, BankPipeline
from tests.support.crashes import Killed
from tests.support.window_cases import START, Rules, pipeline
from tidemark.coordinator.records.states import Refused
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.recovery.stop_and_resume import Stopped, Stopping
from tidemark.coordinator.retention.root_set import collect_roots
from tidemark.declare.retention import Retention
from tidemark.errors import BrokerError, ConflictError, GateFailedError
from tidemark.model.checkpoint.codec import to_json
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.core.clocks import END_OF_TIME, EventTimeClock, FrontierRule, PlannedClock, clocks_after
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.ports import PlanRequest, StepListener
from tidemark.testing.twin.memory import ManualClock

P0 = TopicPartition("sales", 0)
DRAINS = replace(ASK, drains=True)
STEPS = [(step, moment) for step in ("last_checkpoint", "drain", "savepoint", "stop") for moment in ("before", "after")]


def sell(shops: BankPipeline, minute: int) -> None:
    at = START + timedelta(minutes=minute)
    value = json.dumps({"shop": "a", "cents": 1, "at": at.isoformat()}).encode()
    shops.log.append(P0, value, timestamp_ms=int(at.timestamp() * 1000))


@pytest.fixture
def shops() -> BankPipeline:
    """Windows of ten minutes; the first has closed, and two sales wait."""
    made = BankPipeline(pipeline=replace(pipeline(Rules()), name="bank"), clock=ManualClock(1_900_000_000_000))
    made.log.create("sales", 2)
    for minute in (1, 12):
        sell(made, minute)
        made.complete()
    for minute in (13, 25):
        sell(made, minute)
    return made


def asked(name: str = "end", *, drained: bool = True) -> SavepointRequest:
    return SavepointRequest(name=name, owner="ann", origin="x", drained=drained)


def closing(shops: BankPipeline) -> Checkpoint:
    while not (made := shops.complete(DRAINS)).plan.drains:
        pass
    return made


def stop(shops: BankPipeline, crash: StepListener | None = None, name: str = "end") -> Stopped:
    coordinator = shops.coordinator if crash is None else replace(shops.coordinator, listener=crash)
    return Stopping(coordinator).stop_with_savepoint(asked(name), "the end", shops.complete, lambda: closing(shops))


def at(place: tuple[str, str], do: Callable[[], object]) -> StepListener:
    def crash(step: str, moment: str) -> None:
        if (step, moment) == place:
            do()

    return crash


def die() -> None:
    raise Killed


def closed(shops: BankPipeline) -> list[tuple[int, int]]:
    """The rows of the sink: the end of the window, in minutes, and its count."""
    head = shops.coordinator.head().entry
    assert isinstance(head, Checkpoint | Genesis)
    rows: list[Any] = [*shops.tables.rows(head.sinks["sold"].handle)]
    return sorted(((row["window_end"] - START) // timedelta(minutes=1), row["n"]) for row in rows)


def ends(shops: BankPipeline) -> list[int]:
    return [end for end, _ in closed(shops)]


def test_a_drain_closes_all_and_its_parent_is_pinned(shops: BankPipeline) -> None:
    done = stop(shops)
    assert done.savepoint is not None
    assert (done.savepoint.checkpoint, done.savepoint.drained, done.drain, done.followed_by) == (3, True, "chk-4", None)
    assert ends(shops) == [10, 20, 30] and not shops.state("sold")
    assert stop(shops).record == done.record
    with pytest.raises(ConflictError, match="stopped already, with savepoint end"):
        stop(shops, name="other")


@pytest.mark.parametrize("place", STEPS)
def test_a_killed_stop_is_finished_by_the_same_command(shops: BankPipeline, place: tuple[str, str]) -> None:
    with pytest.raises(Killed):
        stop(shops, at(place, die))
    drained_before = next(shops.coordinator.checkpoints()).plan.drains
    assert drained_before == (place not in STEPS[:3])
    done, newest = stop(shops), next(shops.coordinator.checkpoints())
    assert done.savepoint is not None and newest.plan.drains
    assert (done.savepoint.checkpoint, done.drain) == (newest.plan.parent, newest.plan.name)
    assert [c.plan.drains for c in shops.coordinator.checkpoints()].count(True) == 1
    assert ends(shops) == [10, 20, 30]


@pytest.mark.parametrize("place", STEPS)
def test_a_forced_resume_goes_back_from_wherever_the_stop_died(shops: BankPipeline, place: tuple[str, str]) -> None:
    with pytest.raises(Killed):
        stop(shops, at(place, die))
    stopping = Stopping(shops.coordinator)
    if stopping.drain is not None:
        with pytest.raises(ConflictError, match="drained") as caught:
            stopping.resume("why not")
        assert "chk-3, sinks included" in caught.value.next
    stopping.resume("because", force=True)
    assert stopping.resume("again", force=True) is None
    assert ends(shops) == [10, 20][: len(ends(shops))], "no window that the drain had closed"
    sell(shops, 26)
    shops.complete()
    shops.complete()
    assert ends(shops) == [10, 20]
    sell(shops, 31)
    shops.complete()
    assert closed(shops) == [(10, 1), (20, 2), (30, 2)]


def test_a_resume_that_dies_between_restore_and_lifting_is_finished(shops: BankPipeline) -> None:
    stop(shops)
    with pytest.raises(Killed):
        Stopping(replace(shops.coordinator, listener=at(("stop", "before"), die))).resume("because", force=True)
    assert shops.coordinator.timelines.live() == "t2"
    with pytest.raises(ConflictError, match="drained into savepoint end"):
        Stopping(shops.coordinator).resume("why not")
    assert Stopping(shops.coordinator).resume("because", force=True) is not None
    assert shops.coordinator.timelines.live() == "t2", "not restored once more"
    assert shops.complete().plan.parent == 3


def test_a_run_between_the_last_checkpoint_and_the_drain_is_the_parent(shops: BankPipeline) -> None:
    def run() -> None:
        sell(shops, 27)
        shops.complete()

    done = stop(shops, at(("drain", "before"), run))
    assert done.savepoint is not None and (done.savepoint.checkpoint, done.drain) == (4, "chk-5")


def test_an_open_plan_of_another_process_is_completed_first(shops: BankPipeline) -> None:
    done = stop(shops, at(("drain", "before"), lambda: shops.plan()))
    assert done.savepoint is not None and (done.savepoint.checkpoint, done.drain) == (4, "chk-5")


def test_no_run_slips_in_between_the_drain_and_the_stop(shops: BankPipeline) -> None:
    found = []
    done = stop(shops, at(("savepoint", "before"), lambda: found.append(shops.loop.run_once(ASK).ended)))
    assert isinstance(found[0], Refused) and found[0].reason is FailureReason.STOPPED
    assert "chk-4 has closed all windows" in found[0].message and "tidemark resume bank --force" in found[0].next
    assert done.drain == "chk-4"


def test_an_open_drain_is_completed_by_the_next_run_and_the_error_says_so(shops: BankPipeline) -> None:
    def fail() -> None:
        shops.fail = BrokerError("Kafka is away", next="wait.")

    with pytest.raises(BrokerError) as caught:
        stop(shops, at(("drain", "before"), fail))
    assert "the next run completes chk-4, which drains it" in caught.value.safe
    assert "tidemark checkpoint abort bank chk-4" in caught.value.safe
    shops.fail = None
    assert shops.complete().plan.drains
    assert stop(shops).drain == "chk-4"


def test_a_drain_that_the_gate_refuses_leaves_the_windows_open(shops: BankPipeline) -> None:
    def fail() -> None:
        shops.fail = GateFailedError("no", next="look.")

    with pytest.raises(GateFailedError) as caught:
        stop(shops, at(("drain", "before"), fail))
    assert caught.value.safe.startswith("the pipeline is not stopped and runs on;")
    shops.fail = None
    assert not shops.complete().plan.drains
    assert ends(shops) == [10, 20]


def test_a_name_that_is_taken_is_refused_before_anything_is_closed(shops: BankPipeline) -> None:
    shops.savepoints.create(SavepointRequest(name="end", owner="bob", origin="y"))
    with pytest.raises(ConflictError, match="'end' exists already and pins chk-2"):
        stop(shops)
    assert next(shops.coordinator.checkpoints()).id == 2


def test_retention_keeps_the_parent_of_a_drain_that_was_not_pinned_yet(shops: BankPipeline) -> None:
    with pytest.raises(Killed):
        stop(shops, at(("drain", "after"), die))
    reasons = collect_roots(shops.coordinator, Retention.keep_last(1)).reasons
    assert reasons[3] == ("timeline t1, which chk-4 has drained",) and not reasons[2]


def test_a_fork_over_the_drain_repeats_it_and_then_there_is_nothing_to_repeat(shops: BankPipeline) -> None:
    with pytest.raises(Killed):
        stop(shops, at(("drain", "after"), die))
    point = RestoreRequest(checkpoint=1).find_restore_point(shops.coordinator)
    shops.recovery.fork(point, "again")
    loop = replace(shops.loop, timeline="again")
    repeat = PlanRequest(origin="backfill", replay_to=4)
    made = [loop.run_once(repeat).checkpoints[0] for _ in range(3)]
    assert [c.plan.drains for c in made] == [False, False, True]
    assert made[-1].now.frontiers == dict.fromkeys(("sold", "days"), END_OF_TIME)
    assert not loop.run_once(repeat).checkpoints
    refused = loop.run_once(ASK).ended
    assert isinstance(refused, Refused) and "timeline list" in refused.next
    with pytest.raises(ConflictError, match="chk-4 has drained bank"):
        RestoreRequest(checkpoint=4).find_restore_point(shops.coordinator)


def test_a_savepoint_of_the_drain_itself_is_a_pin_and_no_restore_point(shops: BankPipeline) -> None:
    stop(shops)
    shops.savepoints.create(SavepointRequest(name="final", owner="ann", origin="x"))
    with pytest.raises(ConflictError, match="chk-4 has drained bank") as caught:
        RestoreRequest(savepoint="final", force=True).find_restore_point(shops.coordinator)
    assert "begin at chk-3" in caught.value.next
    assert RestoreRequest(savepoint="end", force=True).find_restore_point(shops.coordinator).checkpoint.id == 3


def test_a_restore_that_keeps_sinks_is_refused_because_they_have_the_drained_rows(shops: BankPipeline) -> None:
    stop(shops)
    point = RestoreRequest(savepoint="end", force=True).find_restore_point(shops.coordinator)
    with pytest.raises(ConflictError, match="chk-4 has closed all windows") as caught:
        shops.recovery.restore(point)
    assert "--restore-sinks" in caught.value.next


def test_plans_that_do_not_drain_do_not_mention_it(shops: BankPipeline) -> None:
    stop(shops)
    drain, last, *_ = shops.coordinator.checkpoints()
    assert to_json(drain.plan)["drains"] is True and "drains" not in to_json(last.plan)


def test_frontiers_go_to_the_end_of_time_and_watermarks_stay() -> None:
    rule = FrontierRule(closes_by="logical_time", lateness_ms=5, inputs=())
    planned = {"s": PlannedClock(before=EventTimeClock(watermark_ms=7)), "w": PlannedClock(frontier=rule)}
    found = clocks_after(planned, {}, 10, {}, drains=True)
    assert (found["s"].watermark_ms, found["w"].watermark_ms) == (7, END_OF_TIME)
