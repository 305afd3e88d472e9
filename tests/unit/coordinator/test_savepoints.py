"""Savepoints in memory: create, list, change, dispose, claim; who needs one; races with deletions."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.bank import BankPipeline
from tests.support.crashes import Killed
from tests.support.memory import START_MS
from tidemark.coordinator.plans.restore_point import Beginning
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.errors import ConflictError, NameRefusedError, NotFoundError, UsageError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.store_objects import StopRecord
from tidemark.model.retention.savepoint import SavepointChange, SavepointRequest, TombstoneKind
from tidemark.ports import PutOutcome, StepListener
from tidemark.testing.twin.memory import MemoryStore

CHECKPOINT, SAVEPOINT = TombstoneKind.CHECKPOINT, TombstoneKind.SAVEPOINT


@pytest.fixture
def house() -> BankPipeline:
    """Three checkpoints."""
    made = BankPipeline()
    for _ in range(3):
        made.send(1)
        made.complete()
    return made


def asked(name: str = "sp", checkpoint: int | None = None, **more: object) -> SavepointRequest:
    return SavepointRequest(name=name, owner="ann", origin=str(more.pop("origin", "o")), checkpoint=checkpoint, **more)


def crashing(house: BankPipeline, crash: StepListener) -> Savepoints:
    """Savepoints of a process with crash points of its own."""
    return Savepoints(replace(house.coordinator, listener=crash))


def meanwhile(house: BankPipeline, step: str, do: Callable[[], object]) -> Savepoints:
    """Savepoints of a process that is overtaken before a step."""
    return crashing(house, lambda at, when: do() and None if (at, when) == (step, "before") else None)


def dying(house: BankPipeline, step: str, moment: str) -> Savepoints:
    """Savepoints of a process that dies at a step."""

    def crash(at: str, when: str) -> None:
        if (at, when) == (step, moment):
            raise Killed(step)

    return crashing(house, crash)


def test_the_newest_checkpoint_or_any_other_one_is_pinned_by_one_small_object(house: BankPipeline) -> None:
    before = set(house.store.objects)
    newest = house.savepoints.create(asked("now", note="before the upgrade"))
    oldest = house.savepoints.create(asked("then", 1, expires_at_ms=START_MS + 5))
    assert (newest.checkpoint, oldest.checkpoint) == (3, 1)
    assert (newest.owner, newest.note, newest.timeline, newest.created_at_ms) == (
        "ann", "before the upgrade", "t1", START_MS,
    )  # fmt: skip
    assert set(house.store.objects) - before == {"savepoints/now/000001.json", "savepoints/then/000001.json"}
    assert house.savepoints.pins() == {3: ("now",), 1: ("then",)}
    assert house.savepoints.checkpoint_of("then").id == 1
    assert (oldest.is_expired(START_MS + 4), oldest.is_expired(START_MS + 5)) == (False, True)


def test_a_checkpoint_of_a_timeline_that_was_left_is_pinned_too(house: BankPipeline) -> None:
    house.recovery.restore(Beginning(checkpoint=house.coordinator.checkpoint(1)))
    assert house.coordinator.head().timeline == "t2"
    assert house.savepoints.create(asked("left", 3)).timeline == "t1"
    assert house.savepoints.create(asked("newest")).checkpoint == 1, "the live one, back to where it was born"
    assert house.savepoints.create(asked("newest-of-t1", timeline="t1")).checkpoint == 3


def test_it_is_made_while_a_checkpoint_is_in_progress_and_while_the_pipeline_is_stopped(house: BankPipeline) -> None:
    house.send(1)
    house.plan()
    house.coordinator.objects.put(keys.stop_key(1), StopRecord(stopped=True, why="x", at_ms=1, write_id="w"))
    assert house.savepoints.create(asked()).checkpoint == 3


def test_a_taken_name_is_a_conflict_and_the_same_call_finds_its_own_work(house: BankPipeline) -> None:
    made = house.savepoints.create(asked())
    with pytest.raises(ConflictError, match="savepoint sp pins chk-3") as caught:
        house.savepoints.create(asked(origin="somebody else"))
    assert caught.value.code == 4
    with pytest.raises(ConflictError):
        house.savepoints.create(asked(checkpoint=2))
    assert house.savepoints.create(asked()) == made


def test_two_who_take_a_name_at_once_get_one_winner(house: BankPipeline) -> None:
    racing = meanwhile(house, "savepoint", lambda: house.savepoints.create(asked(origin="first")))
    with pytest.raises(ConflictError):
        racing.create(asked(origin="second"))
    assert house.savepoints.get("sp").origin == "first"


@pytest.mark.parametrize("name", ["", "../x", "a/b", "17", "chk-17", "CHK-1", "x" * 64, "ä", ".hidden", "a..b"])
def test_names_off_the_list_are_refused_everywhere(house: BankPipeline, name: str) -> None:
    for call in (lambda: asked(name), lambda: house.savepoints.find(name), lambda: house.savepoints.dispose(name)):
        with pytest.raises(NameRefusedError):
            call()


def test_what_is_not_there_is_not_found(house: BankPipeline) -> None:
    for call in (
        lambda: house.savepoints.get("no"),
        lambda: house.savepoints.dispose("no"),
        lambda: house.savepoints.change("no", SavepointChange(note="x")),
        lambda: house.savepoints.create(asked(checkpoint=9)),
        lambda: house.savepoints.create(asked(timeline="nowhere")),
        lambda: BankPipeline().savepoints.create(asked()),
    ):
        with pytest.raises(NotFoundError):
            call()
    assert house.savepoints.find("no") is None


def test_note_and_expiry_change_by_revision_and_nothing_else_does(house: BankPipeline) -> None:
    house.savepoints.create(asked(note="one"))
    house.clock.advance(1)
    house.savepoints.change("sp", SavepointChange(note="two"))
    dated = house.savepoints.change("sp", SavepointChange(expires_at_ms=START_MS + 99, moves_expiry=True))
    assert (dated.revision, dated.note, dated.expires_at_ms) == (3, "two", START_MS + 99)
    assert (dated.created_at_ms, dated.changed_at_ms) == (START_MS, START_MS + 1)
    last = house.savepoints.change("sp", SavepointChange(note="", moves_expiry=True))
    assert (last.note, last.expires_at_ms, last.checkpoint, last.owner) == ("", None, 3, "ann")
    assert house.savepoints.list() == [last]
    with pytest.raises(UsageError, match="expired already"):
        house.savepoints.change("sp", SavepointChange(expires_at_ms=START_MS, moves_expiry=True))
    with pytest.raises(UsageError, match="expired already"):
        house.savepoints.create(asked("other", expires_at_ms=START_MS))


def test_a_disposed_one_pins_nothing_and_its_name_is_never_used_again(house: BankPipeline) -> None:
    house.savepoints.create(asked())
    done = house.savepoints.dispose("sp")
    assert done.disposed
    assert done == house.savepoints.dispose("sp"), "a repetition changes nothing"
    assert (house.savepoints.list(), house.savepoints.pins()) == ([], {})
    assert house.savepoints.list(disposed=True) == [done]
    assert house.savepoints.tombstones.active(SAVEPOINT, "sp") is not None
    with pytest.raises(ConflictError, match="a name is used once"):
        house.savepoints.create(asked())
    for call in (house.savepoints.get, house.savepoints.checkpoint_of):
        with pytest.raises(NotFoundError, match="disposed"):
            call("sp")


def test_the_checkpoint_of_a_disposed_one_is_left_to_retention(house: BankPipeline) -> None:
    house.savepoints.create(asked())
    before = house.state("accounts")
    house.savepoints.dispose("sp")
    assert house.coordinator.checkpoint(3).id == 3
    assert house.state("accounts") == before


def refused(house: BankPipeline, words: str) -> None:
    objects = dict(house.store.objects)
    with pytest.raises(ConflictError, match=words):
        house.savepoints.dispose("sp")
    assert house.store.objects == objects, "a refusal writes nothing"
    assert house.savepoints.needed_by("sp")


def test_a_timeline_that_was_born_of_it_needs_it_until_its_first_checkpoint(house: BankPipeline) -> None:
    house.savepoints.create(asked(checkpoint=2))
    house.recovery.restore(Beginning(checkpoint=house.coordinator.checkpoint(2)))
    refused(house, "timeline t2, which was born of it")
    house.complete()
    assert house.savepoints.dispose("sp").disposed


def test_a_running_plan_on_top_of_it_needs_it(house: BankPipeline) -> None:
    house.savepoints.create(asked())
    house.send(1)
    plan = house.plan()
    refused(house, f"the checkpoint in progress {plan.name}")
    house.complete()
    assert house.savepoints.dispose("sp").disposed


def test_a_pipeline_that_is_stopped_with_it_needs_it(house: BankPipeline) -> None:
    house.savepoints.create(asked())
    stop = StopRecord(stopped=True, why="x", at_ms=1, write_id="w", savepoint="sp")
    house.coordinator.objects.put(keys.stop_key(1), stop)
    refused(house, "stopped with it")
    house.coordinator.objects.put(keys.stop_key(2), StopRecord(stopped=False, why="x", at_ms=1, write_id="w"))
    assert house.savepoints.dispose("sp").disposed


def test_another_savepoint_of_the_same_checkpoint_is_a_pin_of_its_own(house: BankPipeline) -> None:
    house.savepoints.create(asked("one"))
    house.savepoints.create(asked("two"))
    house.savepoints.dispose("one")
    assert house.savepoints.pins() == {3: ("two",)}


def test_a_timeline_that_is_born_between_the_look_and_the_tombstone_is_seen(house: BankPipeline) -> None:
    house.savepoints.create(asked())
    born = Beginning(checkpoint=house.coordinator.checkpoint(3))
    fork = meanwhile(house, "tombstone", lambda: house.recovery.restore(born))
    with pytest.raises(ConflictError, match="timeline t2"):
        fork.dispose("sp")
    assert not house.savepoints.get("sp").disposed
    assert house.savepoints.tombstones.active(SAVEPOINT, "sp") is None, "the tombstone is withdrawn"


@pytest.mark.parametrize(
    ("step", "moment"),
    [("tombstone", "before"), ("tombstone", "after"), ("dispose", "before"), ("dispose", "after")],
)
def test_a_disposal_that_dies_anywhere_is_repaired_by_repeating_it(house: BankPipeline, step: str, moment: str) -> None:
    house.savepoints.create(asked())
    with pytest.raises(Killed):
        dying(house, step, moment).dispose("sp")
    found = house.savepoints.find("sp")
    assert found is not None
    assert found.disposed == ((step, moment) == ("dispose", "after"))
    assert house.savepoints.dispose("sp").disposed
    assert sorted(k for k in house.store.objects if k.startswith(("tombstones/", "savepoints/"))) == [
        "savepoints/sp/000001.json", "savepoints/sp/000002.json", "tombstones/savepoints/sp/000001.json",
    ]  # fmt: skip


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_creation_that_dies_anywhere_is_repaired_by_repeating_it(house: BankPipeline, moment: str) -> None:
    with pytest.raises(Killed):
        dying(house, "savepoint", moment).create(asked())
    assert house.savepoints.create(asked()).revision == 1


def test_a_checkpoint_that_is_about_to_be_deleted_cannot_be_pinned(house: BankPipeline) -> None:
    house.savepoints.tombstones.raise_for(CHECKPOINT, "chk-2", "released")
    with pytest.raises(ConflictError, match="checkpoint chk-2 is about to be deleted: released"):
        house.savepoints.create(asked(checkpoint=2))
    assert house.savepoints.find("sp") is None, "the name is not used up"
    standing, ours = house.savepoints.tombstones.raise_for(CHECKPOINT, "chk-2", "again")
    assert (standing.why, ours) == ("released", False)
    house.savepoints.tombstones.withdraw(standing, "pinned")
    house.savepoints.tombstones.withdraw(standing, "a repetition changes nothing")
    assert house.savepoints.create(asked(checkpoint=2)).checkpoint == 2


def test_a_claimed_one_belongs_to_its_timeline_and_a_second_claim_is_refused(house: BankPipeline) -> None:
    house.savepoints.create(asked())
    done = house.savepoints.claim("sp", "t2")
    assert (done.claimed_by, done.disposed) == ("t2", True)
    assert house.savepoints.claim("sp", "t2") == done, "a repetition changes nothing"
    with pytest.raises(ConflictError, match="claimed by timeline t2"):
        house.savepoints.claim("sp", "t3")
    with pytest.raises(NotFoundError, match="claimed by timeline t2"):
        house.savepoints.get("sp")


def test_of_two_changes_at_the_same_moment_one_is_told_of_the_other(house: BankPipeline) -> None:
    made = house.savepoints.create(asked())
    other = made.revised(SavepointChange(note="theirs"), now_ms=1, write_id="w")

    class Overtaken(MemoryStore):
        """Somebody else writes between our look and our put."""

        def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
            house.coordinator.objects.put(keys.savepoint_key("sp", 2), other)
            return house.store.put_if_absent(key, body)

    slow = Savepoints(replace(house.coordinator, store=Overtaken(house.store.objects)))
    with pytest.raises(ConflictError, match="changed at the same moment"):
        slow.change("sp", SavepointChange(note="mine"))
    assert house.savepoints.get("sp").note == "theirs"
