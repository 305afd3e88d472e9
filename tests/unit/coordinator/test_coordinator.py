"""The verbs together: what a run finds, finishes and makes; timelines; damage that is named."""

from dataclasses import replace

import pytest

from tests.support.bank import ASK, P0, BankPipeline, at
from tests.support.memory import dag_run
from tests.unit.coordinator.test_attempts import DECLINED, begun, sealed
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.states import Completed, Covered, NothingOpen, OpenPlan, SealedPlan
from tidemark.errors import ConflictError, CorruptObjectError, NotFoundError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.store_objects import Closing, IdRecord
from tidemark.testing.twin.memory import Fault, FaultyStore


def test_an_open_plan_is_adopted_word_for_word() -> None:
    bank = BankPipeline()
    bank.send(1)
    plan = bank.plan()
    bank.send(5)
    found = bank.coordinator.trigger(bank.pipeline, replace(ASK, max_records=1))
    assert found == OpenPlan(plan=plan, attempt=0, adopted=True)


def test_a_sealed_plan_that_was_left_behind_is_published() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    done = sealed(bank, plan)
    assert bank.coordinator.open_plan() == SealedPlan(plan=plan, sealed=done)
    found = bank.coordinator.trigger(bank.pipeline, ASK)
    assert isinstance(found, Completed)
    assert found.checkpoint.plan == plan


def test_a_planner_that_loses_the_slot_takes_the_plan_of_the_winner() -> None:
    bank, other = BankPipeline(), BankPipeline()
    other.store, other.log = bank.store, bank.log
    bank.send(2)
    crashed: list[CheckpointPlan] = []

    def faster(step: str, moment: str) -> None:
        if (step, moment) == ("plan", "before") and not crashed:
            crashed.append(other.plan())

    slow = replace(bank.coordinator, listener=faster)
    found = slow.trigger(bank.pipeline, ASK)
    assert found == OpenPlan(plan=crashed[0], adopted=True)
    assert found.plan.id == 2  # id 1 was taken by the loser: a gap
    assert bank.complete().id == 2


def test_runs_go_on_until_the_interval_is_covered() -> None:
    bank = BankPipeline()
    bank.send(5, timestamp_ms=10)
    request = replace(ASK, max_records=2, interval_start=at(0), interval_end=at(50), until_interval_end=True)
    done = dag_run(bank.loop, request)
    assert [c.plan.covers for c in done.checkpoints] == [False, False, True]
    assert done.state == Completed(checkpoint=done.checkpoints[-1], won=True)
    again = dag_run(bank.loop, request)
    assert (again.checkpoints, str(again.ended)) == ((), "covered by chk-3")


def test_a_run_finishes_the_open_plan_first_even_when_its_interval_is_covered() -> None:
    bank = BankPipeline()
    covered = bank.complete(replace(ASK, interval_end=at(50)))
    plan = bank.plan()
    done = dag_run(bank.loop, replace(ASK, interval_end=at(50)))
    assert [c.plan for c in done.checkpoints] == [plan]
    assert done.ended == Covered(checkpoint=covered)


def test_the_first_checkpoint_that_covered_an_interval_is_named() -> None:
    bank = BankPipeline()
    for end in (10, 20, 30):
        bank.complete(replace(ASK, interval_end=at(end)))
    covering = [bank.coordinator.covered_by(at(end)) for end in (5, 10, 15, 30)]
    assert [found and found.id for found in covering] == [1, 1, 2, 3]
    assert bank.coordinator.covered_by(at(31)) is None


def test_an_older_interval_does_not_uncover_a_newer_one() -> None:
    bank = BankPipeline()
    bank.complete(replace(ASK, interval_end=at(50)))
    assert bank.complete().covered_until_ms == 50
    assert BankPipeline().complete().covered_until_ms is None


def test_an_idle_range_still_completes_a_checkpoint() -> None:
    bank = BankPipeline()
    bank.send(2)
    first = bank.complete()
    second = bank.complete()
    assert second.handles == first.handles
    ack = second.ack("accounts")
    assert ack is not None
    assert ack.commits == ()


def test_checkpoints_are_found_by_id_and_listed_newest_first() -> None:
    bank = BankPipeline()
    made = [bank.complete() for _ in range(3)]
    c = bank.coordinator
    assert list(c.checkpoints()) == made[::-1]
    assert c.timelines.all() == made
    assert c.checkpoint(2) == made[1]
    assert c.plan_of(2) == made[1].plan
    with pytest.raises(NotFoundError, match="chk-9"):
        c.checkpoint(9)
    with pytest.raises(NotFoundError, match="chk-9"):
        c.plan_of(9)


def test_an_aborted_plan_is_a_plan_and_no_checkpoint() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    bank.coordinator.abort(plan, DECLINED)
    bank.complete()
    assert bank.coordinator.plan_of(1) == plan
    with pytest.raises(NotFoundError):
        bank.coordinator.checkpoint(1)


def test_the_live_timeline_is_found_by_following_closings() -> None:
    bank = BankPipeline()
    bank.send(2)
    made = [bank.complete(), bank.complete()]
    bank.recovery.restore(RestorePoint(checkpoint=made[0]))
    assert bank.coordinator.head().timeline == "t2"
    assert list(bank.coordinator.checkpoints("t1")) == made[::-1]
    assert list(bank.coordinator.checkpoints()) == [made[0]]
    bank.send(1)
    restored = bank.complete()
    assert (restored.id, str(restored.plan.slot), restored.plan.parent) == (3, "t2/2.1", 1)
    assert restored.plan.tables == {"accounts": "bank/state/accounts/t2-3"}
    assert restored.plan.ranges[P0].start == 2
    assert list(bank.coordinator.checkpoints()) == [restored, made[0]]
    assert list(bank.coordinator.timelines.ancestry(made[1])) == [made[1], made[0]], "as before the restore"
    with pytest.raises(ConflictError, match="timeline t1 was closed in favour of t2"):
        bank.coordinator.trigger(bank.pipeline, ASK, "t1")


def test_closings_that_go_round_in_a_circle_are_named() -> None:
    bank = BankPipeline()
    for name, successor in (("t1", "t2"), ("t2", "t1")):
        closing = Closing(timeline=name, sequence=1, successor=successor, why="x", write_id="w")
        bank.coordinator.objects.put(keys.slot_key(name, 1), closing)
    with pytest.raises(CorruptObjectError, match="t1 → t2 → t1"):
        bank.coordinator.head()


def test_a_timeline_without_a_genesis_does_not_exist() -> None:
    with pytest.raises(NotFoundError, match="no timeline 't7'"):
        BankPipeline().coordinator.head("t7")


def test_a_stale_listing_costs_reads_and_nothing_else() -> None:
    bank = BankPipeline()
    stale = FaultyStore(bank.store, lambda operation, key: Fault.STALE if operation == "list" else None)
    loop = replace(bank.loop, coordinator=replace(bank.coordinator, store=stale))
    for n in range(1, 4):
        bank.send(1)
        assert loop.run_once(ASK).checkpoints[0].id == n
    assert loop.coordinator.head().sequence == 3


def test_ids_ascend_over_gaps() -> None:
    bank = BankPipeline()
    bank.complete()
    for n in (2, 3):
        bank.coordinator.objects.put(keys.id_key(n), IdRecord(id=n, slot=bank.free().slot, write_id=str(n)))
    assert bank.complete().id == 4
    assert isinstance(bank.coordinator.open_plan(), NothingOpen)


def test_a_flipped_byte_is_named_with_its_key() -> None:
    bank = BankPipeline()
    bank.complete()
    key = keys.slot_key("t1", 1)
    raw = bytearray(bank.store.objects[key])
    raw[len(raw) // 2] ^= 1
    bank.store.objects[key] = bytes(raw)
    with pytest.raises(CorruptObjectError, match=f"object damaged: {key}"):
        bank.coordinator.head()


def test_an_object_under_the_wrong_key_is_damage() -> None:
    bank = BankPipeline()
    bank.complete()
    bank.store.objects[keys.slot_key("t1", 2)] = bank.store.objects[keys.slot_key("t1", 1)]
    with pytest.raises(CorruptObjectError, match="belongs under timelines/t1/000000000001.json"):
        bank.coordinator.head()


def test_an_abort_from_outside_makes_the_run_plan_anew() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    begun(bank, plan)
    bank.coordinator.abort(plan, DECLINED)
    assert bank.free().aborted[0].id == 1
    assert bank.complete().id == 2
