"""What a restore leaves that died between its two puts, or lost: it is closed by hand, and keeps nothing (adr/0024)."""

from dataclasses import replace

import pytest

from tests.support.bank import BankPipeline
from tests.support.crashes import Killed
from tests.unit.coordinator.test_ending import kept
from tests.unit.coordinator.test_recovery import dying, three
from tidemark.coordinator.plans.restore_point import Beginning
from tidemark.coordinator.records.states import Restored, Superseded
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.recovery.timeline_end import Ending
from tidemark.errors import ConflictError, NotFoundError
from tidemark.model.checkpoint.store_objects import Closing
from tidemark.model.retention.savepoint import SavepointRequest

CLAIM = RestoreRequest(savepoint="june", claim=True)


def saved(house: BankPipeline) -> Beginning:
    """A savepoint of the first of three checkpoints, to be claimed."""
    three(house)
    house.savepoints.create(SavepointRequest(name="june", owner="me", origin="june", checkpoint=1))
    return CLAIM.beginning(house.coordinator)


def close(house: BankPipeline, name: str = "t2") -> object:
    return Ending(coordinator=house.coordinator).close(name)


def interrupted(house: BankPipeline, at: tuple[str, str], act) -> Recovery:
    """A recovery beside which something else happens, once, at a crash point."""
    done: list[object] = []

    def crash(step: str, moment: str) -> None:
        if (step, moment) == at and not done:
            done.append(None)
            act()

    return Recovery(coordinator=replace(house.coordinator, listener=crash))


@pytest.mark.parametrize("at", [("genesis", "after"), ("fate", "before"), ("fate", "after"), ("closing", "before")])
def test_a_restore_that_died_can_be_closed_once_it_cannot_win(at: tuple[str, str]) -> None:
    house = BankPipeline()
    first, *_ = three(house)
    with pytest.raises(Killed):
        dying(house, *at).restore(Beginning(checkpoint=first))
    if at in {("fate", "after"), ("closing", "before")}:
        with pytest.raises(ConflictError, match="being restored"):
            close(house)
        house.send(1)
        house.complete()
    assert kept(house)[0] == 1
    assert close(house).won
    assert kept(house) == [next(house.coordinator.checkpoints()).id]
    assert house.coordinator.timelines.live() == "t1"


def test_a_restore_that_was_superseded_can_be_closed() -> None:
    house = BankPipeline()
    made = three(house)
    faster = interrupted(
        house, ("closing", "before"), lambda: house.recovery.restore(Beginning(checkpoint=made[1]), "b")
    )
    assert isinstance(faster.restore(Beginning(checkpoint=made[0]), "a"), Superseded)
    assert close(house).won
    assert house.coordinator.timelines.live() == "t3"
    assert isinstance(house.recovery.restore(Beginning(checkpoint=made[0]), "a"), Superseded), "as it was told before"


def test_the_same_words_restore_again_after_what_they_left_was_closed() -> None:
    house = BankPipeline()
    first = Beginning(checkpoint=three(house)[0])
    for name in ("t2", "t3"):
        with pytest.raises(Killed):
            dying(house, "genesis", "after").restore(first)
        close(house, name)
    done = house.recovery.restore(first)
    assert isinstance(done, Restored)
    assert (done.genesis.timeline, house.coordinator.timelines.live()) == ("t4", "t4")


def test_a_request_with_an_id_is_not_carried_out_after_its_timeline_was_closed() -> None:
    house = BankPipeline()
    first = Beginning(checkpoint=three(house)[0])
    with pytest.raises(Killed):
        dying(house, "genesis", "after").restore(first, "r1")
    close(house)
    with pytest.raises(ConflictError, match="timeline t2 was closed"):
        house.recovery.restore(first, "r1")
    assert house.coordinator.timelines.live() == "t1"


@pytest.mark.parametrize("at", [("genesis", "after"), ("fate", "before"), ("fate", "after")])
def test_of_a_restore_and_an_end_one_is_refused(at: tuple[str, str]) -> None:
    house = BankPipeline()
    first, told = Beginning(checkpoint=three(house)[0]), list[object]()

    def end() -> None:
        try:
            told.append(close(house))
        except ConflictError as error:
            told.append(error)

    slow = interrupted(house, at, end)
    if at == ("fate", "after"):
        assert isinstance(slow.restore(first), Restored)
        assert "being restored" in str(told[0])
    else:
        with pytest.raises(ConflictError, match="timeline t2 was closed"):
            slow.restore(first)
        assert told[0].won
    live = house.coordinator.timelines.live()
    assert not isinstance(house.coordinator.head(live).entry, Closing)


def test_a_savepoint_that_was_claimed_is_free_again() -> None:
    house = BankPipeline()
    beginning = saved(house)
    with pytest.raises(Killed):
        dying(house, "fate", "before").restore(beginning)
    with pytest.raises(NotFoundError, match="claimed by timeline t2"):
        house.savepoints.get("june")
    assert Ending(coordinator=house.coordinator).plan("t2").gives_back == "june"
    assert close(house).gives_back == "june"
    assert kept(house) == [1, 3], "it pins again"
    assert house.savepoints.get("june").claimed_by is None
    done = house.recovery.restore(CLAIM.beginning(house.coordinator))
    assert isinstance(done, Restored)
    assert house.savepoints.find("june").claimed_by == done.genesis.timeline


@pytest.mark.parametrize("at", [("give_back", "before"), ("give_back", "after"), ("closing", "before")])
def test_an_end_that_died_gives_the_savepoint_back_when_it_is_repeated(at: tuple[str, str]) -> None:
    house = BankPipeline()
    with pytest.raises(Killed):
        dying(house, "fate", "before").restore(saved(house))

    def crash(step: str, moment: str) -> None:
        if (step, moment) == at:
            raise Killed

    with pytest.raises(Killed):
        Ending(coordinator=replace(house.coordinator, listener=crash)).close("t2")
    assert kept(house) == [1, 3], "the timeline pins it, or the savepoint does"
    close(house)
    assert not house.savepoints.get("june").disposed
    assert kept(house) == [1, 3]


@pytest.mark.parametrize("dies", [False, True])
def test_a_claim_that_an_end_overtakes_is_undone_by_the_restore_or_by_the_same_end_once_more(dies: bool) -> None:
    house = BankPipeline()
    beginning = saved(house)

    def crash(step: str, moment: str) -> None:
        if (step, moment) == ("genesis", "after"):
            close(house)
        if (step, moment) == ("fate", "before") and dies:
            raise Killed

    with pytest.raises(Killed if dies else ConflictError):
        Recovery(coordinator=replace(house.coordinator, listener=crash)).restore(beginning)
    if dies:
        assert house.savepoints.find("june").claimed_by == "t2"
        close(house)
    assert not house.savepoints.get("june").disposed
    assert kept(house) == [1, 3]
