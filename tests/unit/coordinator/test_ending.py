"""Ends of timelines: whom they refuse, what they let go, and what dies on the way (adr/0018, fault 37)."""

from dataclasses import replace

import pytest

from tests.support.bank import ASK, BankPipeline
from tests.support.crashes import Killed
from tests.unit.coordinator.test_backfill import backfill, five, repeat
from tests.unit.coordinator.test_promotion import fork
from tests.unit.coordinator.test_recovery import three
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.states import Completed, OpenPlan, Promoted, Subsumed
from tidemark.coordinator.records.timeline_tree import branches
from tidemark.coordinator.recovery import integrity as verification
from tidemark.coordinator.recovery.promotion import Promotion
from tidemark.coordinator.recovery.timeline_end import Ending
from tidemark.coordinator.retention.root_set import collect_roots
from tidemark.declare.retention import Retention
from tidemark.errors import ConflictError, NotFoundError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.store_objects import Closing
from tidemark.model.retention.savepoint import SavepointRequest


def forked(bank: BankPipeline, name: str = "fix") -> tuple[list[Checkpoint], Checkpoint]:
    """Three checkpoints, and a fork of the first with one of its own."""
    made = three(bank)
    (own,) = fork(bank, made[0], name).run_once(ASK).checkpoints
    return made, own


def kept(bank: BankPipeline) -> list[int]:
    """Ids of what stays under `keep_last(1)`."""
    found = collect_roots(bank.coordinator, Retention.keep_last(1))
    return sorted(number for number, why in found.reasons.items() if why)


def test_an_ended_fork_keeps_nothing_and_the_live_timeline_goes_on() -> None:
    bank = BankPipeline()
    made, own = forked(bank)
    assert kept(bank) == [made[2].id, own.id]
    plan = Ending(coordinator=bank.coordinator).plan("fix")
    assert (plan.won, plan.checkpoints, plan.savepoints, plan.forks) == (False, (own,), (), ())
    done = Ending(coordinator=bank.coordinator).close("fix")
    assert (done.won, done.closing.sequence, done.closing.successor, done.closing.why) == (True, 3, "", "close")
    assert kept(bank) == [made[2].id]
    assert {b.timeline: b.fate for b in branches(bank.coordinator.timelines)} == {"t1": "live", "fix": "closed"}
    again = Ending(coordinator=bank.coordinator).close("fix")
    assert (again.won, again.closing) == (False, done.closing)
    bank.send(1)
    assert str(bank.complete().plan.slot) == "t1/4.1"


def test_who_goes_on_with_an_ended_fork_is_told_so() -> None:
    bank = BankPipeline()
    _, own = forked(bank)
    Ending(coordinator=bank.coordinator).close("fix")
    with pytest.raises(ConflictError, match="timeline fix was closed"):
        bank.promotion.promote("fix", discard=True)
    with pytest.raises(ConflictError, match="timeline fix was closed\\n"):
        bank.coordinator.trigger(bank.pipeline, ASK, "fix")
    bank.recovery.fork(RestorePoint(checkpoint=own), "again")
    assert kept(bank) == [3, own.id], "a fork of what an ended one has left pins it"


def test_what_a_savepoint_pins_and_what_another_fork_began_at_stays() -> None:
    bank = BankPipeline()
    made, own = forked(bank)
    asked = SavepointRequest(name="june", owner="me", origin="june", checkpoint=own.id)
    bank.savepoints.create(asked)
    bank.recovery.fork(RestorePoint(checkpoint=own), "of-the-fork")
    done = Ending(coordinator=bank.coordinator).close("fix")
    assert (done.savepoints, done.forks) == (("june",), ("of-the-fork",))
    assert kept(bank) == [made[2].id, own.id]
    Ending(coordinator=bank.coordinator).close("of-the-fork")
    assert kept(bank) == [made[2].id, own.id], "june pins it"
    bank.savepoints.dispose("june")
    assert kept(bank) == [made[2].id]


def test_a_fork_without_a_checkpoint_lets_go_of_what_it_began_at() -> None:
    bank = BankPipeline()
    made = three(bank)
    bank.recovery.fork(RestorePoint(checkpoint=made[0]), "idle")
    assert kept(bank) == [1, 3]
    assert Ending(coordinator=bank.coordinator).close("idle").checkpoints == ()
    assert kept(bank) == [3]


def test_the_live_timeline_a_closed_one_and_nobody_are_refused() -> None:
    bank = BankPipeline()
    made = three(bank)
    ending = Ending(coordinator=bank.coordinator)
    with pytest.raises(ConflictError, match="timeline t1 is live"):
        ending.close("t1")
    with pytest.raises(NotFoundError, match="no timeline 'nobody'"):
        ending.close("nobody")
    bank.recovery.restore(RestorePoint(checkpoint=made[0]))
    with pytest.raises(ConflictError, match="timeline t1 was closed for t2"):
        ending.close("t1")


def test_a_restore_that_died_behind_its_claim_is_finished_and_not_ended() -> None:
    bank = BankPipeline()
    made = three(bank)

    def crash(step: str, moment: str) -> None:
        if (step, moment) == ("closing", "before"):
            raise Killed

    with pytest.raises(Killed):
        replace(bank.recovery, coordinator=replace(bank.coordinator, listener=crash)).restore(
            RestorePoint(checkpoint=made[0])
        )
    with pytest.raises(ConflictError, match="timeline t2 is being restored: it may take the next slot of t1"):
        Ending(coordinator=bank.coordinator).close("t2")


def test_an_open_plan_is_refused_and_nothing_is_written() -> None:
    bank = BankPipeline()
    forked(bank)
    bank.send(1)
    found = bank.coordinator.trigger(bank.pipeline, ASK, "fix")
    assert isinstance(found, OpenPlan)
    before = dict(bank.store.objects)
    with pytest.raises(ConflictError, match=f"{found.plan.name} is in progress on timeline fix") as told:
        Ending(coordinator=bank.coordinator).close("fix")
    assert "tidemark checkpoint abort" in told.value.next
    assert bank.store.objects == before


@pytest.mark.parametrize("won", [True, False])
def test_a_checkpoint_in_flight_wins_the_place_or_is_void(won: bool) -> None:
    bank = BankPipeline()
    _, own = forked(bank)
    bank.send(1)
    wanted = ("closing", "before") if won else ("closing", "after")
    planned: list[CheckpointPlan] = []
    ended: list[object] = []

    def crash(step: str, moment: str) -> None:
        if (step, moment) == ("fate", "after"):  # planned between the announcement and the closing, and sealed
            found = bank.coordinator.trigger(bank.pipeline, ASK, "fix")
            assert isinstance(found, OpenPlan)
            attempt = bank.coordinator.begin(found.plan)
            assert isinstance(attempt, OwnedAttempt)
            bank.execute(attempt)
            planned.append(found.plan)
        if (step, moment) == wanted and not ended:
            ended.append(bank.coordinator.complete(planned[0]))

    done = Ending(coordinator=replace(bank.coordinator, listener=crash)).close("fix")
    assert done.won
    assert isinstance(ended[0], Completed if won else Subsumed)
    assert len(done.checkpoints) == (2 if won else 1)
    assert own in done.checkpoints
    assert kept(bank) == [3]


@pytest.mark.parametrize("at", [("fate", "before"), ("fate", "after"), ("closing", "before"), ("closing", "after")])
def test_an_end_that_died_is_finished_by_a_repetition(at: tuple[str, str]) -> None:
    bank = BankPipeline()
    forked(bank)

    def crash(step: str, moment: str) -> None:
        if (step, moment) == at:
            raise Killed

    with pytest.raises(Killed):
        Ending(coordinator=replace(bank.coordinator, listener=crash)).close("fix")
    if at == ("fate", "before"):
        assert isinstance(bank.promotion.promote("fix", discard=True), Promoted)
        return
    with pytest.raises(ConflictError, match="timeline fix was closed"):
        bank.promotion.promote("fix", discard=True)
    assert isinstance(Ending(coordinator=bank.coordinator).close("fix").closing, Closing)
    assert kept(bank) == [3]


def test_what_an_end_writes_is_looked_at_by_verify() -> None:
    bank = BankPipeline()
    forked(bank)
    Ending(coordinator=bank.coordinator).close("fix")
    folders = {key.split("/")[0] for key in bank.store.objects}
    assert "fates" in folders
    assert folders <= {*verification._FOLDERS, "queries"}


def test_of_a_promote_and_an_end_one_is_refused() -> None:
    bank = BankPipeline()
    forked(bank)
    refused: list[ConflictError] = []

    def crash(step: str, moment: str) -> None:
        if (step, moment) == ("closing", "before") and not refused:
            with pytest.raises(ConflictError, match="timeline fix is being promoted") as told:
                Ending(coordinator=bank.coordinator).close("fix")
            refused.append(told.value)

    done = Promotion(coordinator=replace(bank.coordinator, listener=crash)).promote("fix", discard=True)
    assert isinstance(done, Promoted)
    assert refused
    assert bank.coordinator.timelines.live() == "fix"
    with pytest.raises(ConflictError, match="timeline fix is live"):
        Ending(coordinator=bank.coordinator).close("fix")


def test_a_promote_that_died_blocks_an_end_until_its_place_is_taken() -> None:
    bank = BankPipeline()
    forked(bank)

    def crash(step: str, moment: str) -> None:
        if (step, moment) == ("closing", "before"):
            raise Killed

    with pytest.raises(Killed):
        Promotion(coordinator=replace(bank.coordinator, listener=crash)).promote("fix", discard=True)
    with pytest.raises(ConflictError, match="it may take the next slot of t1 at any moment"):
        Ending(coordinator=bank.coordinator).close("fix")
    bank.send(1)
    bank.complete()
    assert Ending(coordinator=bank.coordinator).close("fix").won


def test_a_backfill_whose_fork_was_closed_wants_another_name_and_keeps_nothing() -> None:
    bank = BankPipeline()
    made = five(bank)
    one = backfill(bank, made[0], max_records=5, fork="again")
    one.begin()
    next(one.repeat(lambda attempt: bank.executed(one.pipeline, attempt)))
    assert kept(bank) == [made[0].id, made[3].id, made[4].id, 6], "where it began, what it is compared with, its own"
    Ending(coordinator=bank.coordinator).close("again")
    assert kept(bank) == [made[4].id]
    for verb in (one.outlook, one.begin, one.pair):
        with pytest.raises(ConflictError, match="does not belong to this backfill: it was closed"):
            verb()
    with pytest.raises(ConflictError, match="timeline again was closed"):
        list(one.repeat(lambda attempt: bank.executed(one.pipeline, attempt)))
    other = backfill(bank, made[0], fork="anew")
    assert [c.plan.replays for c in repeat(bank, other)] == [(2,), (3,), (4,), (5,)]
