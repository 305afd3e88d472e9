"""Attempts: one owner each, sealed or revoked, and an abort that is final (ADR 0003)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.bank import ASK, BankPipeline
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


def begun(bank: BankPipeline, plan: CheckpointPlan) -> OwnedAttempt:
    found = bank.coordinator.begin(plan)
    assert isinstance(found, OwnedAttempt), found
    return found


def sealed(bank: BankPipeline, plan: CheckpointPlan) -> Sealed:
    return bank.execute(begun(bank, plan))


def close(bank: BankPipeline, plan: CheckpointPlan) -> Closing:
    slot = plan.slot
    made = Closing(timeline=slot.timeline, sequence=slot.sequence, successor="t2", why="restore", write_id="w")
    bank.coordinator.objects.put(keys.slot_key(slot.timeline, slot.sequence), made)
    return made


def test_attempt_one_is_owned_by_whoever_revoked_attempt_zero() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    assert [begun(bank, plan).number, begun(bank, plan).number] == [1, 2]
    outcome = bank.coordinator.objects.outcome(plan.slot, 0)
    assert outcome is not None and outcome.kind is OutcomeKind.REVOKED
    assert bank.coordinator.state(plan) == OpenPlan(plan=plan, attempt=2)


def test_a_revoked_attempt_is_fenced_at_its_next_check_and_at_its_seal() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    stale, fresh = begun(bank, plan), begun(bank, plan)
    fresh.check()
    with pytest.raises(FencedError, match="attempt 1 of chk-1 was revoked"):
        stale.check()
    done = bank.execute(fresh)
    with pytest.raises(FencedError):
        stale.seal(done)
    fresh.check()


def test_a_sealed_plan_has_no_next_attempt() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    done = sealed(bank, plan)
    assert bank.coordinator.begin(plan) == SealedPlan(plan=plan, sealed=done)


def test_a_child_process_resumes_the_attempt_it_was_given_and_no_other() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    with pytest.raises(FencedError):
        bank.coordinator.resume(plan, 0)
    begun(bank, plan)
    assert bank.coordinator.resume(plan, 1).number == 1
    with pytest.raises(FencedError):
        bank.coordinator.resume(plan, 2)
    begun(bank, plan)
    with pytest.raises(FencedError):
        bank.coordinator.resume(plan, 1)


def test_an_attempt_expires_and_says_what_to_do() -> None:
    bank = BankPipeline()
    owned = bank.coordinator.begin(bank.plan(), timedelta(minutes=10))
    assert isinstance(owned, OwnedAttempt)
    bank.clock.advance(600_000)
    owned.check()
    bank.clock.advance(1)
    with pytest.raises(CheckpointExpiredError, match="chk-1 expired: attempt 1"):
        owned.check()


@pytest.mark.parametrize("attempts", [0, 1, 2])
def test_an_abort_is_final_and_idempotent(attempts: int) -> None:
    bank = BankPipeline()
    plan = bank.plan()
    owned = [begun(bank, plan) for _ in range(attempts)]
    done = bank.coordinator.abort(plan, DECLINED)
    assert isinstance(done, Aborted)
    assert (done.record.id, done.record.attempts, done.record.failure) == (1, attempts, DECLINED)
    assert bank.coordinator.abort(plan, replace(DECLINED, message="again")) == done
    assert bank.coordinator.begin(plan) == done
    assert bank.coordinator.objects.abort(plan.slot) == done.record
    for attempt in owned:
        with pytest.raises(FencedError):
            attempt.check()


def test_an_abort_that_comes_after_the_seal_is_too_late() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    done = sealed(bank, plan)
    assert bank.coordinator.abort(plan, DECLINED) == SealedPlan(plan=plan, sealed=done)
    assert isinstance(bank.coordinator.complete(plan), Completed)
    assert isinstance(bank.coordinator.abort(plan, DECLINED), Completed)


def test_anybody_writes_the_abort_record_that_was_left_out_with_the_same_bytes() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    bank.coordinator.abort(plan, DECLINED)
    key = keys.abort_key(plan.slot)
    written = bank.store.objects.pop(key)
    bank.clock.advance(99)
    assert isinstance(bank.coordinator.state(plan), Aborted)
    assert bank.store.objects[key] == written


def test_the_next_plan_starts_at_the_same_offsets_under_a_new_id() -> None:
    bank = BankPipeline()
    bank.send(3)
    plan = bank.plan()
    bank.coordinator.abort(plan, DECLINED)
    again = bank.plan()
    assert (again.id, again.slot.k, again.ranges) == (2, 2, plan.ranges)


def test_publication_is_idempotent_whoever_does_it() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    done = sealed(bank, plan)
    first = bank.coordinator.publish(plan, done)
    assert isinstance(first, Completed) and first.won
    again = bank.coordinator.publish(plan, done)
    assert isinstance(again, Completed)
    assert (again.won, again.checkpoint) == (False, first.checkpoint)
    assert bank.coordinator.complete(plan) == again


def test_what_was_never_sealed_is_never_published() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    done = sealed(bank, plan)
    with pytest.raises(FencedError, match="attempt 7 of chk-1 is not sealed"):
        bank.coordinator.publish(plan, replace(done, attempt=7))
    del bank.store.objects[keys.outcome_key(plan.slot, 1)]
    with pytest.raises(FencedError):
        bank.coordinator.publish(plan, done)


def test_a_sealed_plan_that_loses_its_slot_to_a_closing_is_void() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    done = sealed(bank, plan)
    closing = close(bank, plan)
    assert bank.coordinator.publish(plan, done) == Subsumed(plan=plan, closing=closing)
    assert bank.coordinator.complete(plan) == Subsumed(plan=plan, closing=closing)
    assert bank.coordinator.begin(plan) == Subsumed(plan=plan, closing=closing)


def test_a_plan_of_a_slot_that_another_one_took_is_a_conflict_unless_it_was_aborted() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    bank.coordinator.abort(plan, DECLINED)
    bank.complete()
    assert isinstance(bank.coordinator.state(plan), Aborted)
    with pytest.raises(ConflictError, match="belongs to another checkpoint"):
        bank.coordinator.state(replace(plan, slot=replace(plan.slot, k=9)))


def test_a_missing_parent_manifest_is_named() -> None:
    bank = BankPipeline()
    bank.complete()
    plan = bank.plan()
    done = sealed(bank, plan)
    del bank.store.objects[keys.slot_key("t1", 1)]
    with pytest.raises(CorruptObjectError, match="timelines/t1/000000000001.json"):
        bank.coordinator.publish(plan, done)


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST])
def test_an_unknown_put_is_settled_by_reading_back(fault: Fault) -> None:
    bank = BankPipeline()
    struck: set[str] = set()

    def choose(operation: str, key: str) -> Fault | None:
        first = operation == "put" and key not in struck
        struck.add(key)
        return fault if first else None

    faulty = replace(bank.coordinator, store=FaultyStore(bank.store, choose))
    loop = replace(bank.loop, coordinator=faulty)
    assert loop.run_once(ASK).checkpoints[0].id == 1
    assert loop.run_once(ASK).checkpoints[0].sealed.attempt == 1


def test_a_put_of_somebody_else_is_lost_even_when_the_reply_was_lost_too() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    objects = bank.coordinator.objects
    close(bank, plan)
    other = Closing(timeline="t1", sequence=1, successor="t3", why="restore", write_id="v")
    faults = iter([Fault.LOST_REQUEST])
    objects.store = FaultyStore(bank.store, lambda operation, key: next(faults, None) if operation == "put" else None)
    assert objects.put(keys.slot_key("t1", 1), other) is PutOutcome.LOST


def test_a_put_that_arrives_late_is_still_ours() -> None:
    """The first put is reported as unknown and not there yet; it materialises before the second one."""
    bank = BankPipeline()
    made = Closing(timeline="t1", sequence=1, successor="t3", why="restore", write_id="v")

    class Late(FaultyStore):
        def get(self, key: str) -> bytes | None:
            found = self.inner.get(key)
            bank.store.objects.update(pending)
            return found

    pending: dict[str, bytes] = {}
    objects = bank.coordinator.objects
    objects.put(keys.slot_key("t1", 1), made)
    pending.update(bank.store.objects)
    bank.store.objects.clear()
    faults = iter([Fault.LOST_REQUEST])
    objects.store = Late(bank.store, lambda operation, key: next(faults, None))
    assert objects.put(keys.slot_key("t1", 1), made) is PutOutcome.WON


def test_a_store_that_never_answers_is_an_error_in_the_end() -> None:
    bank = BankPipeline()
    silent = FaultyStore(bank.store, lambda operation, key: Fault.LOST_REQUEST if operation == "put" else None)
    with pytest.raises(StoreError, match="did not confirm ids/000000000001.json in 5 tries"):
        replace(bank.coordinator, store=silent).trigger(bank.pipeline, ASK)
