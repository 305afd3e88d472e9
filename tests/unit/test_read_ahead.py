"""A store that reads ahead answers as the store did when the block began, and never from before its own put."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from threading import Barrier, Event
from typing import Any

import pytest

from tests.support.bank import ASK, BankPipeline
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.states import Aborted, OpenPlan, Refused, SealedPlan, Subsumed
from tidemark.errors import FencedError, StoreError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint, Revised
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.store_objects import Closing, Failure, StopRecord
from tidemark.ports import PutOutcome
from tidemark.storage.read_ahead import AT_NEED, AT_START, ReadAheadStore
from tidemark.testing.twin.memory import MemoryStore

A, B, FOLDER = "ids/1.json", "ids/2.json", "ids/"


class Counted(MemoryStore):
    """Counts its reads, and refuses those of some keys."""

    def __init__(self, refused: Sequence[str] = ()) -> None:
        super().__init__({A: b"a"})
        self.reads: list[str] = []
        self.refused = list(refused)

    def get(self, key: str) -> bytes | None:
        self.reads.append(key)
        if key in self.refused:
            raise StoreError(f"{key} is refused", next="nothing.")
        return super().get(key)

    def list(self, prefix: str) -> Sequence[str]:
        self.reads.append(prefix)
        return super().list(prefix)


def test_what_was_read_ahead_is_answered_as_of_the_beginning_of_the_block() -> None:
    inner = Counted()
    store = ReadAheadStore(inner)
    with store.ahead([A, B, A], [FOLDER]):
        assert sorted(inner.reads) == sorted([FOLDER, A, B])
        inner.objects[B] = b"b"
        assert (store.get(A), store.get(B), list(store.list(FOLDER))) == (b"a", None, [A])
        assert len(inner.reads) == 3
    assert (store.get(B), list(store.list(FOLDER))) == (b"b", [A, B])


def test_a_put_of_its_own_ends_it_before_it_is_sent() -> None:
    inner = Counted()
    store = ReadAheadStore(inner)
    with store.ahead([A, B], [FOLDER]):
        store.put_if_absent(B, b"b")
        assert (store.get(B), list(store.list(FOLDER))) == (b"b", [A, B])
        inner.objects["ids/3.json"] = b"c"
        assert len(store.list(FOLDER)) == 3


def test_what_fails_ahead_is_read_when_it_is_needed() -> None:
    inner = Counted(refused=[A])
    store = ReadAheadStore(inner)
    with store.ahead([A, B]):
        inner.refused.clear()
        assert store.get(A) == b"a"
        assert inner.reads.count(A) == 2


def test_a_block_in_a_block_reads_all_that_it_names() -> None:
    inner = Counted()
    store = ReadAheadStore(inner)
    with store.ahead([A, B]):
        inner.objects |= {A: b"changed"}
        with store.ahead([A]):
            assert (store.get(A), store.get(B)) == (b"changed", None)
        inner.objects |= {A: b"changed again", B: b"b"}
        assert (store.get(A), store.get(B)) == (b"changed again", None)


def test_a_block_may_end_it() -> None:
    inner = Counted()
    store = ReadAheadStore(inner)
    with store.ahead([B], [FOLDER]) as forget:
        inner.objects[B] = b"b"
        forget()
        assert (store.get(B), list(store.list(FOLDER))) == (b"b", [A, B])


def test_nothing_is_kept_if_a_read_is_interrupted() -> None:
    class Interrupted(Counted):
        def get(self, key: str) -> bytes | None:
            if key == B:
                raise KeyboardInterrupt
            return super().get(key)

    inner = Interrupted()
    store = ReadAheadStore(inner)
    with pytest.raises(KeyboardInterrupt), store.ahead([A, B]):
        raise AssertionError
    inner.objects[A] = b"changed"
    assert store.get(A) == b"changed"


def test_nothing_is_kept_if_something_is_put_during_the_reads() -> None:
    class Putting(Counted):
        def get(self, key: str) -> bytes | None:
            found = super().get(key)
            if key == B and found is None:
                store.put_if_absent(B, b"b")
            return found

    store = ReadAheadStore(Putting(), at_once=1)
    with store.ahead([B]):
        assert store.get(B) == b"b"


def test_reads_are_made_at_the_same_time() -> None:
    barrier = Barrier(3, timeout=10)

    class Meeting(MemoryStore):
        def get(self, key: str) -> bytes | None:
            barrier.wait()
            return super().get(key)

    with ReadAheadStore(Meeting()).ahead([A, B, "ids/3.json"]):
        assert not barrier.broken


def test_objects_read_as_before_over_a_store_that_is_near() -> None:
    inner = Counted()
    with Objects(inner).ahead([A, B], [FOLDER]):
        assert not inner.reads


class StoppedMeanwhile(MemoryStore):
    """While a run looks at the state of a plan, the pipeline is stopped, and then the plan is given up."""

    bank: BankPipeline
    first: CheckpointPlan
    done = False

    def get(self, key: str) -> bytes | None:
        if key == keys.outcome_key(self.first.slot, 0) and not self.done:
            self.done = True
            stop = StopRecord(stopped=True, why="maintenance", at_ms=1, write_id="w")
            objects = self.bank.coordinator.objects
            objects.put(keys.stop_key(1), stop)
            failure = Failure(reason=FailureReason.DECLINED, message="declined", next="nothing.")
            self.bank.coordinator.abort(self.first, failure)
        return super().get(key)


def stopped_meanwhile() -> OpenPlan | object:
    """What a run over a store that is far away answers then."""
    bank = BankPipeline()
    bank.send(1)
    store = StoppedMeanwhile(bank.store.objects)
    store.bank, store.first = bank, bank.plan()
    run = replace(bank.coordinator, store=ReadAheadStore(store))
    return run.trigger(bank.pipeline, ASK)


def test_a_slot_that_has_a_plan_when_the_pipeline_is_stopped_gets_no_other_one() -> None:
    found = stopped_meanwhile()
    assert isinstance(found, Refused)
    assert found.reason is FailureReason.STOPPED


def test_it_would_get_one_if_what_was_read_ahead_outlived_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadAheadStore, "_forget", lambda self: None)
    assert isinstance(stopped_meanwhile(), OpenPlan)


def test_a_put_that_a_block_excepts_is_under_way_with_its_reads_and_the_next_one_ends_it() -> None:
    inner = Counted()
    store = ReadAheadStore(inner, at_once=AT_START)
    with store.ahead([B], ["ids/"]), store.ahead([A], over_puts=1):
        inner.objects[A] = b"changed"
        store.put_if_absent(B, b"b")
        assert store.get(A) == b"a", "as of the beginning of the block"
        assert store.get(B) == b"b", "the block around it excepts nothing"
        store.put_if_absent("ids/3.json", b"c")
        assert store.get(A) == b"changed"


def test_reads_wait_for_nothing_while_the_put_is_sent() -> None:
    is_put = Event()

    class Slow(MemoryStore):
        def get(self, key: str) -> bytes | None:
            assert is_put.wait(10)
            return super().get(key)

        def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
            is_put.set()
            return super().put_if_absent(key, body)

    store = ReadAheadStore(Slow({A: b"a"}))
    with store.ahead([A], over_puts=1):
        store.put_if_absent(B, b"b")
        assert store.get(A) == b"a"


def test_a_started_read_is_fresh_and_keeps_its_error() -> None:
    inner = Counted(refused=[B])
    store = ReadAheadStore(inner)
    with store.ahead([A]):
        inner.objects[A] = b"changed"
        assert store.start(A).result() == b"changed"
    with pytest.raises(StoreError):
        store.start(B).result()
    late = ReadAheadStore(inner, at_once=AT_NEED).start(A)
    inner.objects[A] = b"later"
    assert not late.done() and late.result() == b"later" and late.done()


class CompletedMeanwhile(MemoryStore):
    """While a run reads the slots around the head that it knows, another one completes a checkpoint."""

    bank: BankPipeline
    done = True

    def list(self, prefix: str) -> Sequence[str]:
        if prefix == "timelines/t1/" and not self.done:
            self.done = True
            self.bank.send(1)
            self.bank.complete()
        return super().list(prefix)


class SlotsFirst(ReadAheadStore):
    """Makes the reads of a block in the other order: keys before listings."""

    def _started(self, reads: Sequence[tuple[Any, str]]) -> Sequence[Any]:
        found = super()._started(reads[::-1])
        return found[::-1]


def head_with_a_newer_listing() -> tuple[int, object]:
    """The head that a process sees if its listing is newer than the slots that it has read with it."""
    bank = BankPipeline()
    bank.send(1)
    bank.complete()
    store = CompletedMeanwhile(bank.store.objects)
    store.bank = bank
    far = SlotsFirst(store, at_once=AT_START)
    run = replace(bank.coordinator, store=far)
    assert run.head().sequence == far.heads["t1"] == 1
    store.done = False
    found = run.head()
    assert store.done
    return found.sequence, found.entry


def test_a_listing_that_is_newer_than_the_slots_read_with_it_does_not_show_them_as_free() -> None:
    sequence, entry = head_with_a_newer_listing()
    assert sequence == 2 and isinstance(entry, Checkpoint)


def test_it_would_show_an_empty_timeline_if_those_slots_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = Objects.ahead

    def only_the_first(self: Objects, names: Sequence[str], folders: Sequence[str] = (), **options: Any) -> Any:
        return ahead(self, names, folders, **options) if folders else nullcontext()

    monkeypatch.setattr(Objects, "ahead", only_the_first)
    assert head_with_a_newer_listing() == (0, None)


@pytest.mark.parametrize("at_once", [AT_START, AT_NEED, 8])
def test_an_attempt_of_a_plan_whose_parent_was_revised_is_taken_and_given_up(at_once: int) -> None:
    bank = BankPipeline()
    bank.send(1)
    parent = bank.complete()
    bank.send(1)
    plan = bank.plan()
    revised = Revised(revision=1, predecessor="0" * 64, erasure=1, commits=(), at_ms=1, write_id="w")
    bank.coordinator.objects.put(keys.revision_key("t1", 1, 1), replace(parent, revised=revised))
    run = replace(bank.coordinator, store=ReadAheadStore(bank.store, at_once=at_once))
    found = run.begin(plan, is_first=True)
    assert isinstance(found, Aborted)
    assert found.record.failure.reason is FailureReason.STATE_ERASED


@pytest.mark.parametrize("at_once", [AT_START, AT_NEED, 8])
def test_a_first_attempt_that_another_process_has_taken_is_not_taken_twice(at_once: int) -> None:
    bank = BankPipeline()
    bank.send(1)
    plan = bank.plan()
    other = bank.coordinator.begin(plan, is_first=True)
    ours = replace(bank.coordinator, store=ReadAheadStore(bank.store, at_once=at_once)).begin(plan, is_first=True)
    assert isinstance(other, OwnedAttempt) and isinstance(ours, OwnedAttempt)
    assert (other.number, ours.number) == (1, 2)
    with pytest.raises(FencedError):
        other.check()


def test_a_sealed_plan_whose_slot_a_restore_takes_is_void_although_its_state_is_not_read_again() -> None:
    bank = BankPipeline()
    bank.send(1)
    first = bank.complete()
    bank.send(1)
    run = replace(bank.coordinator, store=ReadAheadStore(bank.store))
    plan = bank.plan()
    owned = run.begin(plan, is_first=True)
    assert isinstance(owned, OwnedAttempt) and owned.before == first
    own = SealedPlan(plan=plan, sealed=bank.execute(owned), before=owned.before)
    bank.recovery.restore(RestorePoint(checkpoint=first))
    found = run.complete(plan, own)
    assert isinstance(found, Subsumed)
    assert isinstance(bank.coordinator.timelines.entry("t1", 2), Closing)


def test_a_head_from_before_the_lock_finds_what_has_taken_its_slot_since() -> None:
    bank = BankPipeline()
    bank.send(1)
    first = bank.complete()
    run = replace(bank.coordinator, store=ReadAheadStore(bank.store))
    seen = run.head()
    bank.send(1)
    second = bank.complete()
    bank.send(1)
    found = run.trigger(bank.pipeline, ASK, seen=seen)
    assert isinstance(found, OpenPlan) and found.plan.parent == second.id
    loop = CheckpointLoop(coordinator=run, pipeline=bank.pipeline, execute=bank.execute)
    bank.coordinator.abort(found.plan, Failure(reason=FailureReason.DECLINED, message="", next="nothing."))
    bank.recovery.restore(RestorePoint(checkpoint=first))
    (made,) = loop.run_once(ASK, seen=replace(seen, sequence=2, entry=second)).checkpoints
    assert made.plan.slot.timeline == bank.coordinator.timelines.live() != "t1"
