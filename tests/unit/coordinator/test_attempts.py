"""Attempts: one owner each, sealed or revoked, and an abort that is final (ADR 0003)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.unit.coordinator.house import ASK, House
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.records.states import Aborted, Completed, OpenPlan, SealedPlan, Subsumed
from tidemark.errors import CheckpointExpiredError, ConflictError, CorruptObjectError, FencedError, StoreError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.store_objects import Closing, Failure, OutcomeKind
from tidemark.ports import PutOutcome
from tidemark.testing.twin.memory import Fault, FaultyStore

DECLINED = Failure(reason=FailureReason.DECLINED, message="declined", next="nothing.")


def begun(house: House, plan: CheckpointPlan) -> OwnedAttempt:
    found = house.coordinator.begin(plan)
    assert isinstance(found, OwnedAttempt), found
    return found


def sealed(house: House, plan: CheckpointPlan) -> Sealed:
    return house.execute(begun(house, plan))


def close(house: House, plan: CheckpointPlan) -> Closing:
    slot = plan.slot
    made = Closing(timeline=slot.timeline, sequence=slot.sequence, successor="t2", why="restore", write_id="w")
    house.coordinator.objects.put(keys.slot_key(slot.timeline, slot.sequence), made)
    return made


def test_attempt_one_is_owned_by_whoever_revoked_attempt_zero() -> None:
    house = House()
    plan = house.plan()
    assert [begun(house, plan).number, begun(house, plan).number] == [1, 2]
    outcome = house.coordinator.objects.outcome(plan.slot, 0)
    assert outcome is not None and outcome.kind is OutcomeKind.REVOKED
    assert house.coordinator.state(plan) == OpenPlan(plan=plan, attempt=2)


def test_a_revoked_attempt_is_fenced_at_its_next_check_and_at_its_seal() -> None:
    house = House()
    plan = house.plan()
    stale, fresh = begun(house, plan), begun(house, plan)
    fresh.check()
    with pytest.raises(FencedError, match="attempt 1 of chk-1 was revoked"):
        stale.check()
    done = house.execute(fresh)
    with pytest.raises(FencedError):
        stale.seal(done)
    fresh.check()


def test_a_sealed_plan_has_no_next_attempt() -> None:
    house = House()
    plan = house.plan()
    done = sealed(house, plan)
    assert house.coordinator.begin(plan) == SealedPlan(plan=plan, sealed=done)


def test_a_child_process_resumes_the_attempt_it_was_given_and_no_other() -> None:
    house = House()
    plan = house.plan()
    with pytest.raises(FencedError):
        house.coordinator.resume(plan, 0)
    begun(house, plan)
    assert house.coordinator.resume(plan, 1).number == 1
    with pytest.raises(FencedError):
        house.coordinator.resume(plan, 2)
    begun(house, plan)
    with pytest.raises(FencedError):
        house.coordinator.resume(plan, 1)


def test_an_attempt_expires_and_says_what_to_do() -> None:
    house = House()
    owned = house.coordinator.begin(house.plan(), timedelta(minutes=10))
    assert isinstance(owned, OwnedAttempt)
    house.clock.advance(600_000)
    owned.check()
    house.clock.advance(1)
    with pytest.raises(CheckpointExpiredError, match="chk-1 expired: attempt 1"):
        owned.check()


@pytest.mark.parametrize("attempts", [0, 1, 2])
def test_an_abort_is_final_and_idempotent(attempts: int) -> None:
    house = House()
    plan = house.plan()
    owned = [begun(house, plan) for _ in range(attempts)]
    done = house.coordinator.abort(plan, DECLINED)
    assert isinstance(done, Aborted)
    assert (done.record.id, done.record.attempts, done.record.failure) == (1, attempts, DECLINED)
    assert house.coordinator.abort(plan, replace(DECLINED, message="again")) == done
    assert house.coordinator.begin(plan) == done
    assert house.coordinator.objects.abort(plan.slot) == done.record
    for attempt in owned:
        with pytest.raises(FencedError):
            attempt.check()


def test_an_abort_that_comes_after_the_seal_is_too_late() -> None:
    house = House()
    plan = house.plan()
    done = sealed(house, plan)
    assert house.coordinator.abort(plan, DECLINED) == SealedPlan(plan=plan, sealed=done)
    assert isinstance(house.coordinator.complete(plan), Completed)
    assert isinstance(house.coordinator.abort(plan, DECLINED), Completed)


def test_anybody_writes_the_abort_record_that_was_left_out_with_the_same_bytes() -> None:
    house = House()
    plan = house.plan()
    house.coordinator.abort(plan, DECLINED)
    key = keys.abort_key(plan.slot)
    written = house.store.objects.pop(key)
    house.clock.advance(99)
    assert isinstance(house.coordinator.state(plan), Aborted)
    assert house.store.objects[key] == written


def test_the_next_plan_starts_at_the_same_offsets_under_a_new_id() -> None:
    house = House()
    house.send(3)
    plan = house.plan()
    house.coordinator.abort(plan, DECLINED)
    again = house.plan()
    assert (again.id, again.slot.k, again.ranges) == (2, 2, plan.ranges)


def test_publication_is_idempotent_whoever_does_it() -> None:
    house = House()
    plan = house.plan()
    done = sealed(house, plan)
    first = house.coordinator.publish(plan, done)
    assert isinstance(first, Completed) and first.won
    again = house.coordinator.publish(plan, done)
    assert isinstance(again, Completed)
    assert (again.won, again.checkpoint) == (False, first.checkpoint)
    assert house.coordinator.complete(plan) == again


def test_what_was_never_sealed_is_never_published() -> None:
    house = House()
    plan = house.plan()
    done = sealed(house, plan)
    with pytest.raises(FencedError, match="attempt 7 of chk-1 is not sealed"):
        house.coordinator.publish(plan, replace(done, attempt=7))
    del house.store.objects[keys.outcome_key(plan.slot, 1)]
    with pytest.raises(FencedError):
        house.coordinator.publish(plan, done)


def test_a_sealed_plan_that_loses_its_slot_to_a_closing_is_void() -> None:
    house = House()
    plan = house.plan()
    done = sealed(house, plan)
    closing = close(house, plan)
    assert house.coordinator.publish(plan, done) == Subsumed(plan=plan, closing=closing)
    assert house.coordinator.complete(plan) == Subsumed(plan=plan, closing=closing)
    assert house.coordinator.begin(plan) == Subsumed(plan=plan, closing=closing)


def test_a_plan_of_a_slot_that_another_one_took_is_a_conflict_unless_it_was_aborted() -> None:
    house = House()
    plan = house.plan()
    house.coordinator.abort(plan, DECLINED)
    house.complete()
    assert isinstance(house.coordinator.state(plan), Aborted)
    with pytest.raises(ConflictError, match="belongs to another checkpoint"):
        house.coordinator.state(replace(plan, slot=replace(plan.slot, k=9)))


def test_a_missing_parent_manifest_is_named() -> None:
    house = House()
    house.complete()
    plan = house.plan()
    done = sealed(house, plan)
    del house.store.objects[keys.slot_key("t1", 1)]
    with pytest.raises(CorruptObjectError, match="timelines/t1/000000000001.json"):
        house.coordinator.publish(plan, done)


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST])
def test_an_unknown_put_is_settled_by_reading_back(fault: Fault) -> None:
    house = House()
    struck: set[str] = set()

    def choose(operation: str, key: str) -> Fault | None:
        first = operation == "put" and key not in struck
        struck.add(key)
        return fault if first else None

    faulty = replace(house.coordinator, store=FaultyStore(house.store, choose))
    loop = replace(house.loop, coordinator=faulty)
    assert loop.run_once(ASK).checkpoints[0].id == 1
    assert loop.run_once(ASK).checkpoints[0].sealed.attempt == 1


def test_a_put_of_somebody_else_is_lost_even_when_the_reply_was_lost_too() -> None:
    house = House()
    plan = house.plan()
    objects = house.coordinator.objects
    close(house, plan)
    other = Closing(timeline="t1", sequence=1, successor="t3", why="restore", write_id="v")
    faults = iter([Fault.LOST_REQUEST])
    objects.store = FaultyStore(house.store, lambda operation, key: next(faults, None) if operation == "put" else None)
    assert objects.put(keys.slot_key("t1", 1), other) is PutOutcome.LOST


def test_a_put_that_arrives_late_is_still_ours() -> None:
    """The first put is reported as unknown and not there yet; it materialises before the second one."""
    house = House()
    made = Closing(timeline="t1", sequence=1, successor="t3", why="restore", write_id="v")

    class Late(FaultyStore):
        def get(self, key: str) -> bytes | None:
            found = self.inner.get(key)
            house.store.objects.update(pending)
            return found

    pending: dict[str, bytes] = {}
    objects = house.coordinator.objects
    objects.put(keys.slot_key("t1", 1), made)
    pending.update(house.store.objects)
    house.store.objects.clear()
    faults = iter([Fault.LOST_REQUEST])
    objects.store = Late(house.store, lambda operation, key: next(faults, None))
    assert objects.put(keys.slot_key("t1", 1), made) is PutOutcome.WON


def test_a_store_that_never_answers_is_an_error_in_the_end() -> None:
    house = House()
    silent = FaultyStore(house.store, lambda operation, key: Fault.LOST_REQUEST if operation == "put" else None)
    with pytest.raises(StoreError, match="did not confirm ids/000000000001.json in 5 tries"):
        replace(house.coordinator, store=silent).trigger(house.pipeline, ASK)
