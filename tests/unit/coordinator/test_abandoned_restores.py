"""What a restore leaves that died between its two puts, or lost: it is closed by hand, and keeps nothing (adr/0024)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.bank import BankPipeline
from tests.support.crashes import Killed
from tests.unit.coordinator.test_ending import kept
from tests.unit.coordinator.test_recovery import dying, three
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.states import Ended, Restored, Superseded
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.recovery.timeline_end import Ending
from tidemark.errors import ConflictError, NotFoundError
from tidemark.model.checkpoint.store_objects import Closing
from tidemark.model.retention.savepoint import SavepointRequest

CLAIM = RestoreRequest(savepoint="june", claim=True)


def saved(bank: BankPipeline) -> RestorePoint:
    """A savepoint of the first of three checkpoints, to be claimed."""
    three(bank)
    bank.savepoints.create(SavepointRequest(name="june", owner="me", origin="june", checkpoint=1))
    return CLAIM.find_restore_point(bank.coordinator)


def close(bank: BankPipeline, name: str = "t2") -> Ended:
    return Ending(coordinator=bank.coordinator).close(name)


def interrupted(bank: BankPipeline, at: tuple[str, str], act: Callable[[], object]) -> Recovery:
    """A recovery beside which something else happens, once, at a crash point."""
    done: list[object] = []

    def crash(step: str, moment: str) -> None:
        if (step, moment) == at and not done:
            done.append(None)
            act()

    return Recovery(coordinator=replace(bank.coordinator, listener=crash))


@pytest.mark.parametrize("at", [("genesis", "after"), ("fate", "before"), ("fate", "after"), ("closing", "before")])
def test_a_restore_that_died_can_be_closed_once_it_cannot_win(at: tuple[str, str]) -> None:
    bank = BankPipeline()
    first, *_ = three(bank)
    with pytest.raises(Killed):
        dying(bank, *at).restore(RestorePoint(checkpoint=first))
    if at in {("fate", "after"), ("closing", "before")}:
        with pytest.raises(ConflictError, match="being restored"):
            close(bank)
        bank.send(1)
        bank.complete()
    assert kept(bank)[0] == 1
    assert close(bank).won
    assert kept(bank) == [next(bank.coordinator.checkpoints()).id]
    assert bank.coordinator.timelines.live() == "t1"


def test_a_restore_that_was_superseded_can_be_closed() -> None:
    bank = BankPipeline()
    made = three(bank)
    faster = interrupted(
        bank, ("closing", "before"), lambda: bank.recovery.restore(RestorePoint(checkpoint=made[1]), "b")
    )
    assert isinstance(faster.restore(RestorePoint(checkpoint=made[0]), "a"), Superseded)
    assert close(bank).won
    assert bank.coordinator.timelines.live() == "t3"
    assert isinstance(bank.recovery.restore(RestorePoint(checkpoint=made[0]), "a"), Superseded), "as it was told before"


def test_the_same_words_restore_again_after_what_they_left_was_closed() -> None:
    bank = BankPipeline()
    first = RestorePoint(checkpoint=three(bank)[0])
    for name in ("t2", "t3"):
        with pytest.raises(Killed):
            dying(bank, "genesis", "after").restore(first)
        close(bank, name)
    done = bank.recovery.restore(first)
    assert isinstance(done, Restored)
    assert (done.genesis.timeline, bank.coordinator.timelines.live()) == ("t4", "t4")


def test_a_request_with_an_id_is_not_carried_out_after_its_timeline_was_closed() -> None:
    bank = BankPipeline()
    first = RestorePoint(checkpoint=three(bank)[0])
    with pytest.raises(Killed):
        dying(bank, "genesis", "after").restore(first, "r1")
    close(bank)
    with pytest.raises(ConflictError, match="timeline t2 was closed"):
        bank.recovery.restore(first, "r1")
    assert bank.coordinator.timelines.live() == "t1"


@pytest.mark.parametrize("at", [("genesis", "after"), ("fate", "before"), ("fate", "after")])
def test_of_a_restore_and_an_end_one_is_refused(at: tuple[str, str]) -> None:
    bank = BankPipeline()
    first, told = RestorePoint(checkpoint=three(bank)[0]), list[object]()

    def end() -> None:
        try:
            told.append(close(bank))
        except ConflictError as error:
            told.append(error)

    slow = interrupted(bank, at, end)
    if at == ("fate", "after"):
        assert isinstance(slow.restore(first), Restored)
        assert "being restored" in str(told[0])
    else:
        with pytest.raises(ConflictError, match="timeline t2 was closed"):
            slow.restore(first)
        assert isinstance(told[0], Ended) and told[0].won
    live = bank.coordinator.timelines.live()
    assert not isinstance(bank.coordinator.head(live).entry, Closing)


def test_a_savepoint_that_was_claimed_is_free_again() -> None:
    bank = BankPipeline()
    restore_point = saved(bank)
    with pytest.raises(Killed):
        dying(bank, "fate", "before").restore(restore_point)
    with pytest.raises(NotFoundError, match="claimed by timeline t2"):
        bank.savepoints.get("june")
    assert Ending(coordinator=bank.coordinator).plan("t2").gives_back == "june"
    assert close(bank).gives_back == "june"
    assert kept(bank) == [1, 3], "it pins again"
    assert bank.savepoints.get("june").claimed_by is None
    done = bank.recovery.restore(CLAIM.find_restore_point(bank.coordinator))
    assert isinstance(done, Restored)
    june = bank.savepoints.find("june")
    assert june is not None and june.claimed_by == done.genesis.timeline


@pytest.mark.parametrize("at", [("give_back", "before"), ("give_back", "after"), ("closing", "before")])
def test_an_end_that_died_gives_the_savepoint_back_when_it_is_repeated(at: tuple[str, str]) -> None:
    bank = BankPipeline()
    with pytest.raises(Killed):
        dying(bank, "fate", "before").restore(saved(bank))

    def crash(step: str, moment: str) -> None:
        if (step, moment) == at:
            raise Killed

    with pytest.raises(Killed):
        Ending(coordinator=replace(bank.coordinator, listener=crash)).close("t2")
    assert kept(bank) == [1, 3], "the timeline pins it, or the savepoint does"
    close(bank)
    assert not bank.savepoints.get("june").disposed
    assert kept(bank) == [1, 3]


@pytest.mark.parametrize("dies", [False, True])
def test_a_claim_that_an_end_overtakes_is_undone_by_the_restore_or_by_the_same_end_once_more(dies: bool) -> None:
    bank = BankPipeline()
    restore_point = saved(bank)

    def crash(step: str, moment: str) -> None:
        if (step, moment) == ("genesis", "after"):
            close(bank)
        if (step, moment) == ("fate", "before") and dies:
            raise Killed

    with pytest.raises(Killed if dies else ConflictError):
        Recovery(coordinator=replace(bank.coordinator, listener=crash)).restore(restore_point)
    if dies:
        june = bank.savepoints.find("june")
        assert june is not None and june.claimed_by == "t2"
        close(bank)
    assert not bank.savepoints.get("june").disposed
    assert kept(bank) == [1, 3]
