"""Stop-with-savepoint and resume in memory: the order of steps, and every step that can fail or die."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.bank import ASK, BankPipeline
from tests.support.crashes import Killed
from tidemark.coordinator.records.states import Refused
from tidemark.coordinator.recovery.stop_and_resume import Stopped, Stopping
from tidemark.errors import BrokerError, ConflictError, GateFailedError, StoreError, TidemarkError
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import StopRecord
from tidemark.model.retention.savepoint import SavepointRequest, TombstoneKind
from tidemark.ports import PutOutcome, StepListener
from tidemark.testing.twin.memory import Fault, FaultyStore, MemoryStore

STEPS = [(step, moment) for step in ("last_checkpoint", "savepoint", "stop") for moment in ("before", "after")]
RUNS_ON = "the pipeline is not stopped and runs on"


@pytest.fixture
def bank() -> BankPipeline:
    """Two checkpoints, and three records that wait."""
    made = BankPipeline()
    for _ in range(2):
        made.send(1)
        made.complete()
    made.send(3)
    return made


def asked(name: str = "sp", *, drained: bool = False) -> SavepointRequest:
    return SavepointRequest(name=name, owner="ann", origin="x", drained=drained)


def stop(bank: BankPipeline, request: SavepointRequest | None = None, crash: StepListener | None = None) -> Stopped:
    coordinator = bank.coordinator if crash is None else replace(bank.coordinator, listener=crash)
    return Stopping(coordinator).stop_with_savepoint(request or asked(), "maintenance", bank.complete)


def at(place: tuple[str, str], do: Callable[[], object]) -> StepListener:
    """Crash points that do something at a step."""

    def crash(step: str, moment: str) -> None:
        if (step, moment) == place:
            do()

    return crash


def die() -> None:
    raise Killed


def stop_records(bank: BankPipeline) -> list[str]:
    found = (bank.coordinator.objects.read(StopRecord, key) for key in bank.store.list("stops/"))
    return [record.why for record in found if record is not None]


def runs_on(bank: BankPipeline) -> bool:
    """Whether a plan is made; it is executed, so that the pipeline has moved."""
    return bool(bank.loop.run_once(ASK).checkpoints)


def test_the_last_checkpoint_is_pinned_and_then_no_plan_is_made(bank: BankPipeline) -> None:
    done = stop(bank)
    assert done.savepoint is not None
    assert (done.savepoint.name, done.savepoint.checkpoint, done.savepoint.drained) == ("sp", 3, False)
    assert (done.record.savepoint, done.record.why, done.in_progress, done.followed_by) == (
        "sp", "maintenance", None, None,
    )  # fmt: skip
    assert bank.state("accounts") == {("a",): (5, 5)}, "what waited is in the last checkpoint"
    bank.send(1)
    refused = bank.loop.run_once(ASK).ended
    assert isinstance(refused, Refused)
    assert refused.reason is FailureReason.STOPPED
    assert "maintenance" in refused.message
    assert bank.savepoints.needed_by("sp") == ("the pipeline, which is stopped with it",)


def test_resumed_it_goes_on_from_its_newest_checkpoint_and_loses_nothing(bank: BankPipeline) -> None:
    stop(bank)
    bank.send(2)
    assert Stopping(bank.coordinator).resume("enough") is not None
    assert bank.complete().plan.parent == 3
    assert bank.state("accounts") == {("a",): (7, 7)}
    assert Stopping(bank.coordinator).resume("again") is None, "it was not stopped"


@pytest.mark.parametrize("place", STEPS)
def test_a_stop_that_dies_anywhere_leaves_the_pipeline_running_and_is_repaired_by_repeating_it(
    bank: BankPipeline, place: tuple[str, str]
) -> None:
    with pytest.raises(Killed):
        stop(bank, crash=at(place, die))
    is_stopped = bool(stop_records(bank))
    assert is_stopped == (place == ("stop", "after")), "the record is the moment, and the pin was durable before it"
    assert not is_stopped or bank.savepoints.get("sp").checkpoint == 3
    done = stop(bank)
    assert done.savepoint is not None
    assert done.followed_by is None
    assert bank.state("accounts") == {("a",): (5, 5)}
    assert not runs_on(bank)
    assert len(bank.store.list("stops/")) == len(bank.store.list("savepoints/")) == 1


@pytest.mark.parametrize("place", [p for p in STEPS if p != ("stop", "after")])
def test_after_a_stop_that_died_before_its_record_any_run_goes_on(bank: BankPipeline, place: tuple[str, str]) -> None:
    with pytest.raises(Killed):
        stop(bank, crash=at(place, die))
    assert runs_on(bank)


def test_a_pin_of_a_stop_that_died_is_not_the_last_checkpoint_once_the_pipeline_has_gone_on(
    bank: BankPipeline,
) -> None:
    with pytest.raises(Killed):
        stop(bank, crash=at(("savepoint", "after"), die))
    bank.complete()
    with pytest.raises(ConflictError, match="savepoint sp pins chk-3") as caught:
        stop(bank)
    assert RUNS_ON in caught.value.safe
    assert runs_on(bank)
    assert stop(bank, asked("sp2")).followed_by is None


@pytest.mark.parametrize(
    "error",
    [
        BrokerError("Kafka did not answer", safe="nothing was written.", next="wait."),
        GateFailedError("expectations failed", safe="nothing was published.", next="look."),
        ConflictError("another process holds t1", safe="nothing was written.", next="wait."),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_last_checkpoint_that_fails_leaves_the_pipeline_running_and_says_so(
    bank: BankPipeline, error: TidemarkError
) -> None:
    def fail() -> Checkpoint:
        raise error

    with pytest.raises(type(error)) as caught:
        Stopping(bank.coordinator).stop_with_savepoint(asked(), "x", fail)
    assert caught.value.safe.startswith(f"{RUNS_ON}; nothing was ")
    assert (bank.savepoints.find("sp"), bank.store.list("stops/")) == (None, [])
    assert runs_on(bank)


@pytest.mark.parametrize("refused", ["savepoints/", "stops/"])
def test_a_store_that_refuses_leaves_the_pipeline_running_and_says_so(bank: BankPipeline, refused: str) -> None:
    faulty = FaultyStore(
        bank.store, lambda call, key: Fault.REFUSED if call == "put" and key.startswith(refused) else None
    )
    with pytest.raises(StoreError) as caught:
        Stopping(replace(bank.coordinator, store=faulty)).stop_with_savepoint(asked(), "x", bank.complete)
    assert RUNS_ON in caught.value.safe
    assert bank.store.list("stops/") == []
    assert runs_on(bank)


def test_a_store_that_went_away_is_not_said_to_have_left_the_pipeline_running(bank: BankPipeline) -> None:
    gone = list[bool]()
    faulty = FaultyStore(bank.store, lambda call, key: Fault.REFUSED if gone and key.startswith("stops/") else None)
    coordinator = replace(bank.coordinator, store=faulty, listener=at(("stop", "before"), lambda: gone.append(True)))
    with pytest.raises(StoreError) as caught:
        Stopping(coordinator).stop_with_savepoint(asked(), "x", bank.complete)
    assert "not known" in caught.value.safe


def test_a_lost_reply_of_the_stop_record_is_settled_by_reading_back(bank: BankPipeline) -> None:
    faulty = FaultyStore(
        bank.store, lambda call, key: Fault.LOST_REPLY if call == "put" and key.startswith("stops/") else None
    )
    done = Stopping(replace(bank.coordinator, store=faulty)).stop_with_savepoint(asked(), "x", bank.complete)
    assert done.record.stopped
    assert len(bank.store.list("stops/")) == 1


def test_a_checkpoint_that_is_about_to_be_deleted_stops_nothing(bank: BankPipeline) -> None:
    def doom() -> None:
        bank.savepoints.tombstones.raise_for(TombstoneKind.CHECKPOINT, "chk-3", "x")

    with pytest.raises(ConflictError) as caught:
        stop(bank, crash=at(("last_checkpoint", "after"), doom))
    assert RUNS_ON in caught.value.safe
    assert bank.store.list("stops/") == []


def test_a_taken_name_is_found_before_a_checkpoint_is_made(bank: BankPipeline) -> None:
    bank.savepoints.create(SavepointRequest(name="sp", owner="bob", origin="y"))
    with pytest.raises(ConflictError, match="pins chk-2"):
        stop(bank)
    assert next(bank.coordinator.checkpoints()).id == 2
    bank.savepoints.dispose("sp")
    with pytest.raises(ConflictError, match="a name is used once"):
        stop(bank)
    assert runs_on(bank)


def test_a_plan_that_was_made_just_before_the_stop_may_end_and_is_told(bank: BankPipeline) -> None:
    def overtake() -> None:
        bank.send(1)
        bank.plan()

    done = stop(bank, crash=at(("stop", "before"), overtake))
    assert (done.in_progress, done.followed_by) == ("chk-4", None)
    assert runs_on(bank), "the open plan is finished, as in any run"
    assert not runs_on(bank)
    told = stop(bank)
    assert (told.in_progress, told.followed_by) == (None, "chk-4"), "the savepoint is not the last checkpoint"


def test_stopping_twice_changes_nothing_and_another_name_is_refused(bank: BankPipeline) -> None:
    first = stop(bank)
    assert stop(bank).record == first.record
    with pytest.raises(ConflictError, match="stopped already, with savepoint sp") as caught:
        stop(bank, asked("other"))
    assert "tidemark savepoint create" in caught.value.next
    assert bank.savepoints.find("other") is None
    assert Stopping(bank.coordinator).stop("once more").record == first.record


def test_a_stop_without_a_savepoint_makes_no_checkpoint(bank: BankPipeline) -> None:
    done = Stopping(bank.coordinator).stop("now")
    assert (done.savepoint, done.record.savepoint, done.followed_by) == (None, None, None)
    assert next(bank.coordinator.checkpoints()).id == 2
    assert not runs_on(bank)
    with pytest.raises(ConflictError, match="without a savepoint"):
        stop(bank)
    assert bank.savepoints.create(SavepointRequest(name="later", owner="ann", origin="z")).checkpoint == 2


def test_what_was_drained_goes_on_only_when_it_is_forced(bank: BankPipeline) -> None:
    done = stop(bank, asked(drained=True))
    assert done.savepoint is not None
    assert (done.savepoint.drained, done.record.drained) == (True, True)
    with pytest.raises(ConflictError, match="drained into savepoint sp") as caught:
        Stopping(bank.coordinator).resume("why not")
    assert "--force" in caught.value.next
    assert not runs_on(bank)
    assert Stopping(bank.coordinator).resume("because", force=True) is not None
    assert runs_on(bank)


def test_a_drain_does_not_take_over_the_pin_of_a_stop_that_died(bank: BankPipeline) -> None:
    with pytest.raises(Killed):
        stop(bank, crash=at(("savepoint", "after"), die))
    with pytest.raises(ConflictError, match="pins chk-3"):
        stop(bank, asked(drained=True))
    assert bank.store.list("stops/") == []


def test_of_two_who_stop_at_the_same_moment_one_is_told_of_the_other(bank: BankPipeline) -> None:
    class Overtaken(MemoryStore):
        """Somebody else stops between our look and our put."""

        def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
            if key.startswith("stops/"):
                Stopping(bank.coordinator).stop("theirs")
            return bank.store.put_if_absent(key, body)

    slow = replace(bank.coordinator, store=Overtaken(bank.store.objects))
    with pytest.raises(ConflictError, match="at the same moment") as caught:
        Stopping(slow).stop_with_savepoint(asked(), "ours", bank.complete)
    assert caught.value.safe.startswith("the pipeline is stopped; ")
    assert stop_records(bank) == ["theirs"]
