"""A store that reads ahead answers as the store did when the block began, and never from before its own put."""

from collections.abc import Sequence
from dataclasses import replace
from threading import Barrier

import pytest

from tests.support.bank import ASK, BankPipeline
from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.states import OpenPlan, Refused
from tidemark.errors import StoreError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.store_objects import Failure, StopRecord
from tidemark.storage.read_ahead import ReadAheadStore
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
