"""Savepoints in memory: create, list, change, dispose, claim; who needs one; races with deletions."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypedDict, Unpack

import pytest

from tests.support.bank import BankPipeline
from tests.support.crashes import Killed
from tests.support.memory import START_MS
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.errors import ConflictError, NameRefusedError, NotFoundError, UsageError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.store_objects import StopRecord
from tidemark.model.retention.savepoint import SavepointChange, SavepointRequest, TombstoneKind
from tidemark.ports import PutOutcome, StepListener
from tidemark.testing.twin.memory import MemoryStore

CHECKPOINT, SAVEPOINT = TombstoneKind.CHECKPOINT, TombstoneKind.SAVEPOINT


@pytest.fixture
def bank() -> BankPipeline:
    """Three checkpoints."""
    made = BankPipeline()
    for _ in range(3):
        made.send(1)
        made.complete()
    return made


class Details(TypedDict, total=False):
    """Optional fields of a savepoint request."""

    timeline: str
    note: str
    expires_at_ms: int


def asked(
    name: str = "sp", checkpoint: int | None = None, *, origin: str = "o", **more: Unpack[Details]
) -> SavepointRequest:
    return SavepointRequest(name=name, owner="ann", origin=origin, checkpoint=checkpoint, **more)


def crashing(bank: BankPipeline, crash: StepListener) -> Savepoints:
    """Savepoints of a process with crash points of its own."""
    return Savepoints(replace(bank.coordinator, listener=crash))


def meanwhile(bank: BankPipeline, at: str, do: Callable[[], object]) -> Savepoints:
    """Savepoints of a process that is overtaken before a step."""

    def overtake(step: str, moment: str) -> None:
        if (step, moment) == (at, "before"):
            do()

    return crashing(bank, overtake)


def dying(bank: BankPipeline, at: str, when: str) -> Savepoints:
    """Savepoints of a process that dies at a step."""

    def crash(step: str, moment: str) -> None:
        if (step, moment) == (at, when):
            raise Killed(step)

    return crashing(bank, crash)


def test_the_newest_checkpoint_or_any_other_one_is_pinned_by_one_small_object(bank: BankPipeline) -> None:
    before = set(bank.store.objects)
    newest = bank.savepoints.create(asked("now", note="before the upgrade"))
    oldest = bank.savepoints.create(asked("then", 1, expires_at_ms=START_MS + 5))
    assert (newest.checkpoint, oldest.checkpoint) == (3, 1)
    assert (newest.owner, newest.note, newest.timeline, newest.created_at_ms) == (
        "ann", "before the upgrade", "t1", START_MS,
    )  # fmt: skip
    assert set(bank.store.objects) - before == {"savepoints/now/000001.json", "savepoints/then/000001.json"}
    assert bank.savepoints.pins() == {3: ("now",), 1: ("then",)}
    assert bank.savepoints.checkpoint_of("then").id == 1
    assert (oldest.is_expired(START_MS + 4), oldest.is_expired(START_MS + 5)) == (False, True)


def test_a_checkpoint_of_a_timeline_that_was_left_is_pinned_too(bank: BankPipeline) -> None:
    bank.recovery.restore(RestorePoint(checkpoint=bank.coordinator.checkpoint(1)))
    assert bank.coordinator.head().timeline == "t2"
    assert bank.savepoints.create(asked("left", 3)).timeline == "t1"
    assert bank.savepoints.create(asked("newest")).checkpoint == 1, "the live one, back to where it was born"
    assert bank.savepoints.create(asked("newest-of-t1", timeline="t1")).checkpoint == 3


def test_it_is_made_while_a_checkpoint_is_in_progress_and_while_the_pipeline_is_stopped(bank: BankPipeline) -> None:
    bank.send(1)
    bank.plan()
    bank.coordinator.objects.put(keys.stop_key(1), StopRecord(stopped=True, why="x", at_ms=1, write_id="w"))
    assert bank.savepoints.create(asked()).checkpoint == 3


def test_a_taken_name_is_a_conflict_and_the_same_call_finds_its_own_work(bank: BankPipeline) -> None:
    made = bank.savepoints.create(asked())
    with pytest.raises(ConflictError, match="savepoint sp pins chk-3") as caught:
        bank.savepoints.create(asked(origin="somebody else"))
    assert caught.value.code == 4
    with pytest.raises(ConflictError):
        bank.savepoints.create(asked(checkpoint=2))
    assert bank.savepoints.create(asked()) == made


def test_two_who_take_a_name_at_once_get_one_winner(bank: BankPipeline) -> None:
    racing = meanwhile(bank, "savepoint", lambda: bank.savepoints.create(asked(origin="first")))
    with pytest.raises(ConflictError):
        racing.create(asked(origin="second"))
    assert bank.savepoints.get("sp").origin == "first"


@pytest.mark.parametrize("name", ["", "../x", "a/b", "17", "chk-17", "CHK-1", "x" * 64, "ä", ".hidden", "a..b"])
def test_names_off_the_list_are_refused_everywhere(bank: BankPipeline, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: asked(name),
        lambda: bank.savepoints.find(name),
        lambda: bank.savepoints.dispose(name),
    ]
    for call in calls:
        with pytest.raises(NameRefusedError):
            call()


def test_what_is_not_there_is_not_found(bank: BankPipeline) -> None:
    calls: list[Callable[[], object]] = [
        lambda: bank.savepoints.get("no"),
        lambda: bank.savepoints.dispose("no"),
        lambda: bank.savepoints.change("no", SavepointChange(note="x")),
        lambda: bank.savepoints.create(asked(checkpoint=9)),
        lambda: bank.savepoints.create(asked(timeline="nowhere")),
        lambda: BankPipeline().savepoints.create(asked()),
    ]
    for call in calls:
        with pytest.raises(NotFoundError):
            call()
    assert bank.savepoints.find("no") is None


def test_note_and_expiry_change_by_revision_and_nothing_else_does(bank: BankPipeline) -> None:
    bank.savepoints.create(asked(note="one"))
    bank.clock.advance(1)
    bank.savepoints.change("sp", SavepointChange(note="two"))
    dated = bank.savepoints.change("sp", SavepointChange(expires_at_ms=START_MS + 99, moves_expiry=True))
    assert (dated.revision, dated.note, dated.expires_at_ms) == (3, "two", START_MS + 99)
    assert (dated.created_at_ms, dated.changed_at_ms) == (START_MS, START_MS + 1)
    last = bank.savepoints.change("sp", SavepointChange(note="", moves_expiry=True))
    assert (last.note, last.expires_at_ms, last.checkpoint, last.owner) == ("", None, 3, "ann")
    assert bank.savepoints.list() == [last]
    with pytest.raises(UsageError, match="expired already"):
        bank.savepoints.change("sp", SavepointChange(expires_at_ms=START_MS, moves_expiry=True))
    with pytest.raises(UsageError, match="expired already"):
        bank.savepoints.create(asked("other", expires_at_ms=START_MS))


def test_a_disposed_one_pins_nothing_and_its_name_is_never_used_again(bank: BankPipeline) -> None:
    bank.savepoints.create(asked())
    done = bank.savepoints.dispose("sp")
    assert done.disposed
    assert done == bank.savepoints.dispose("sp"), "a repetition changes nothing"
    assert (bank.savepoints.list(), bank.savepoints.pins()) == ([], {})
    assert bank.savepoints.list(disposed=True) == [done]
    assert bank.savepoints.tombstones.active(SAVEPOINT, "sp") is not None
    with pytest.raises(ConflictError, match="a name is used once"):
        bank.savepoints.create(asked())
    for call in (bank.savepoints.get, bank.savepoints.checkpoint_of):
        with pytest.raises(NotFoundError, match="disposed"):
            call("sp")


def test_the_checkpoint_of_a_disposed_one_is_left_to_retention(bank: BankPipeline) -> None:
    bank.savepoints.create(asked())
    before = bank.state("accounts")
    bank.savepoints.dispose("sp")
    assert bank.coordinator.checkpoint(3).id == 3
    assert bank.state("accounts") == before


def refused(bank: BankPipeline, words: str) -> None:
    objects = dict(bank.store.objects)
    with pytest.raises(ConflictError, match=words):
        bank.savepoints.dispose("sp")
    assert bank.store.objects == objects, "a refusal writes nothing"
    assert bank.savepoints.needed_by("sp")


def test_a_timeline_that_was_born_of_it_needs_it_until_its_first_checkpoint(bank: BankPipeline) -> None:
    bank.savepoints.create(asked(checkpoint=2))
    bank.recovery.restore(RestorePoint(checkpoint=bank.coordinator.checkpoint(2)))
    refused(bank, "timeline t2, which began at it")
    bank.complete()
    assert bank.savepoints.dispose("sp").disposed


def test_a_running_plan_on_top_of_it_needs_it(bank: BankPipeline) -> None:
    bank.savepoints.create(asked())
    bank.send(1)
    plan = bank.plan()
    refused(bank, f"the checkpoint in progress {plan.name}")
    bank.complete()
    assert bank.savepoints.dispose("sp").disposed


def test_a_pipeline_that_is_stopped_with_it_needs_it(bank: BankPipeline) -> None:
    bank.savepoints.create(asked())
    stop = StopRecord(stopped=True, why="x", at_ms=1, write_id="w", savepoint="sp")
    bank.coordinator.objects.put(keys.stop_key(1), stop)
    refused(bank, "stopped with it")
    bank.coordinator.objects.put(keys.stop_key(2), StopRecord(stopped=False, why="x", at_ms=1, write_id="w"))
    assert bank.savepoints.dispose("sp").disposed


def test_another_savepoint_of_the_same_checkpoint_is_a_pin_of_its_own(bank: BankPipeline) -> None:
    bank.savepoints.create(asked("one"))
    bank.savepoints.create(asked("two"))
    bank.savepoints.dispose("one")
    assert bank.savepoints.pins() == {3: ("two",)}


def test_a_timeline_that_is_born_between_the_look_and_the_tombstone_is_seen(bank: BankPipeline) -> None:
    bank.savepoints.create(asked())
    born = RestorePoint(checkpoint=bank.coordinator.checkpoint(3))
    fork = meanwhile(bank, "tombstone", lambda: bank.recovery.restore(born))
    with pytest.raises(ConflictError, match="timeline t2"):
        fork.dispose("sp")
    assert not bank.savepoints.get("sp").disposed
    assert bank.savepoints.tombstones.active(SAVEPOINT, "sp") is None, "the tombstone is withdrawn"


@pytest.mark.parametrize(
    ("step", "moment"),
    [("tombstone", "before"), ("tombstone", "after"), ("dispose", "before"), ("dispose", "after")],
)
def test_a_disposal_that_dies_anywhere_is_repaired_by_repeating_it(bank: BankPipeline, step: str, moment: str) -> None:
    bank.savepoints.create(asked())
    with pytest.raises(Killed):
        dying(bank, step, moment).dispose("sp")
    found = bank.savepoints.find("sp")
    assert found is not None
    assert found.disposed == ((step, moment) == ("dispose", "after"))
    assert bank.savepoints.dispose("sp").disposed
    assert sorted(k for k in bank.store.objects if k.startswith(("tombstones/", "savepoints/"))) == [
        "savepoints/sp/000001.json", "savepoints/sp/000002.json", "tombstones/savepoints/sp/000001.json",
    ]  # fmt: skip


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_creation_that_dies_anywhere_is_repaired_by_repeating_it(bank: BankPipeline, moment: str) -> None:
    with pytest.raises(Killed):
        dying(bank, "savepoint", moment).create(asked())
    assert bank.savepoints.create(asked()).revision == 1


def test_a_checkpoint_that_is_about_to_be_deleted_cannot_be_pinned(bank: BankPipeline) -> None:
    bank.savepoints.tombstones.raise_for(CHECKPOINT, "chk-2", "released")
    with pytest.raises(ConflictError, match="checkpoint chk-2 is about to be deleted: released"):
        bank.savepoints.create(asked(checkpoint=2))
    assert bank.savepoints.find("sp") is None, "the name is not used up"
    standing, ours = bank.savepoints.tombstones.raise_for(CHECKPOINT, "chk-2", "again")
    assert (standing.why, ours) == ("released", False)
    bank.savepoints.tombstones.withdraw(standing, "pinned")
    bank.savepoints.tombstones.withdraw(standing, "a repetition changes nothing")
    assert bank.savepoints.create(asked(checkpoint=2)).checkpoint == 2


def test_a_claimed_one_belongs_to_its_timeline_and_a_second_claim_is_refused(bank: BankPipeline) -> None:
    bank.savepoints.create(asked())
    done = bank.savepoints.claim("sp", "t2")
    assert (done.claimed_by, done.disposed) == ("t2", True)
    assert bank.savepoints.claim("sp", "t2") == done, "a repetition changes nothing"
    with pytest.raises(ConflictError, match="claimed by timeline t2"):
        bank.savepoints.claim("sp", "t3")
    with pytest.raises(NotFoundError, match="claimed by timeline t2"):
        bank.savepoints.get("sp")


def test_of_two_changes_at_the_same_moment_one_is_told_of_the_other(bank: BankPipeline) -> None:
    made = bank.savepoints.create(asked())
    other = made.revise(SavepointChange(note="theirs"), now_ms=1, write_id="w")

    class Overtaken(MemoryStore):
        """Somebody else writes between our look and our put."""

        def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
            bank.coordinator.objects.put(keys.savepoint_key("sp", 2), other)
            return bank.store.put_if_absent(key, body)

    slow = Savepoints(replace(bank.coordinator, store=Overtaken(bank.store.objects)))
    with pytest.raises(ConflictError, match="changed at the same moment"):
        slow.change("sp", SavepointChange(note="mine"))
    assert bank.savepoints.get("sp").note == "theirs"
