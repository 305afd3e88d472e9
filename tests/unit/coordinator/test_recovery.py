"""Restores and forks: what is begun, what is left, what a crash or a rival between the two puts leads to."""

from dataclasses import replace

import pytest

from tests.support.bank import ASK, P0, PIPELINE, Account, BankPipeline
from tests.support.crashes import Killed
from tests.unit.coordinator.test_attempts import sealed
from tidemark import Fold
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.states import Restored, Subsumed, Superseded
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.errors import ConflictError, CorruptObjectError, IncompatibleStateError, NameRefusedError, UsageError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.retention.savepoint import TombstoneKind
from tidemark.testing.twin.memory import MemoryCompute


def dying(bank: BankPipeline, at: str, when: str) -> Recovery:
    """A recovery that dies at a crash point."""

    def crash(step: str, moment: str) -> None:
        if (step, moment) == (at, when):
            raise Killed

    return Recovery(coordinator=replace(bank.coordinator, listener=crash))


def three(bank: BankPipeline) -> list[Checkpoint]:
    """Three checkpoints of one record each."""
    made = []
    for _ in range(3):
        bank.send(1)
        made.append(bank.complete())
    return made


def held(bank: BankPipeline, checkpoint: Checkpoint) -> dict[object, object]:
    """The state of a checkpoint as a reader sees it."""
    compute = MemoryCompute(pipeline=bank.pipeline, log=bank.log, tables=bank.tables)
    return {key[0]: row["payments"] for key, row in compute.resolve(checkpoint, "accounts").items()}


def test_a_fork_that_died_before_it_looked_for_tombstones_looks_when_it_is_repeated() -> None:
    bank = BankPipeline()
    first = RestorePoint(checkpoint=three(bank)[0])
    with pytest.raises(Killed):
        dying(bank, "genesis", "after").fork(first, "beside")
    tombstones = bank.savepoints.tombstones
    standing, _ = tombstones.raise_for(TombstoneKind.CHECKPOINT, "chk-1", "released")
    for name in ("beside", "beside", "another", "another"):
        with pytest.raises(ConflictError, match="chk-1 is about to be deleted"):
            bank.recovery.fork(first, name)
    tombstones.withdraw(standing, "it is pinned")
    assert [bank.recovery.fork(first, name).won for name in ("beside", "another", "third")] == [False, False, True]


def test_a_restore_makes_a_new_timeline_live_and_names_what_it_leaves() -> None:
    bank = BankPipeline()
    made = three(bank)
    done = bank.recovery.restore(RestorePoint(checkpoint=made[0]))
    assert isinstance(done, Restored)
    assert (done.won, done.genesis.timeline, done.closing.timeline, done.closing.sequence) == (True, "t2", "t1", 4)
    assert done.left == (made[2], made[1])
    again = bank.complete()
    assert (str(again.plan.slot), again.plan.parent, again.plan.ranges[P0].start) == ("t2/2.1", 1, 1)
    assert (held(bank, again), held(bank, made[2])) == ({"a": 3}, {"a": 3}), "the old timeline is readable"
    assert again.handles["accounts"].segments[0] == made[0].handles["accounts"].segments[0], "nothing is copied"


@pytest.mark.parametrize("request_id", ["", "r1"])
@pytest.mark.parametrize(("step", "moment"), [("genesis", "after"), ("closing", "before"), ("closing", "after")])
def test_a_restore_that_died_is_finished_by_the_same_request(step: str, moment: str, request_id: str) -> None:
    bank = BankPipeline()
    made = three(bank)
    asked = RestorePoint(checkpoint=made[1])
    with pytest.raises(Killed):
        dying(bank, step, moment).restore(asked, request_id or "")
    if (step, moment) == ("closing", "after") and not request_id:
        assert bank.coordinator.timelines.live() == "t2", "the request is over: the same words ask for another restore"
        return
    done = bank.recovery.restore(asked, request_id)
    assert isinstance(done, Restored)
    assert done.genesis.timeline == "t2"
    assert done.won is (moment != "after" or step == "genesis")
    assert bank.coordinator.timelines.names() == ["t1", "t2"]


def test_a_request_with_an_id_is_carried_out_once_whatever_came_after() -> None:
    bank = BankPipeline()
    made = three(bank)
    first = bank.recovery.restore(RestorePoint(checkpoint=made[0]), "r1")
    bank.recovery.restore(RestorePoint(checkpoint=made[1]), "r2")
    again = bank.recovery.restore(RestorePoint(checkpoint=made[0]), "r1")
    assert isinstance(first, Restored)
    assert again == replace(first, won=False)
    assert bank.coordinator.timelines.live() == "t3"
    with pytest.raises(ConflictError, match="request r1 has restored chk-1 to timeline t2"):
        bank.recovery.restore(RestorePoint(checkpoint=made[2]), "r1")


def test_a_checkpoint_that_wins_the_slot_stays_on_the_old_timeline() -> None:
    bank = BankPipeline()
    made = three(bank)
    won: list[Checkpoint] = []

    def crash(step: str, moment: str) -> None:
        if (step, moment) == ("closing", "before") and not won:
            bank.send(1)
            won.append(bank.complete())

    done = Recovery(coordinator=replace(bank.coordinator, listener=crash)).restore(RestorePoint(checkpoint=made[0]))
    assert isinstance(done, Restored)
    assert (done.overtaken, done.left) == ((won[0],), (won[0], made[2], made[1]))
    assert (done.closing.sequence, bank.coordinator.timelines.live()) == (5, "t2")


def test_of_two_restores_at_once_the_later_learns_that_it_was_superseded() -> None:
    bank = BankPipeline()
    made = three(bank)

    def crash(step: str, moment: str) -> None:
        if (step, moment) == ("closing", "before"):
            bank.recovery.restore(RestorePoint(checkpoint=made[1]), "faster")

    slow = Recovery(coordinator=replace(bank.coordinator, listener=crash))
    done = slow.restore(RestorePoint(checkpoint=made[0]), "slower")
    assert isinstance(done, Superseded)
    assert (done.closing.successor, bank.coordinator.timelines.live()) == ("t3", "t3")
    assert bank.recovery.restore(RestorePoint(checkpoint=made[0]), "slower") == done, "it stays so"


def test_a_sealed_attempt_that_loses_its_slot_to_a_restore_is_void() -> None:
    bank = BankPipeline()
    made = three(bank)
    bank.send(1)
    plan = bank.plan()
    done = sealed(bank, plan)
    bank.recovery.restore(RestorePoint(checkpoint=made[2]))
    assert isinstance(bank.coordinator.publish(plan, done), Subsumed)
    assert held(bank, bank.complete()) == {"a": 4}, "what it had read is read again"


def test_forks_go_on_beside_the_live_timeline_and_beside_each_other() -> None:
    bank = BankPipeline()
    made = three(bank)
    for name in ("one", "two"):
        assert bank.recovery.fork(RestorePoint(checkpoint=made[0]), name).won
        assert not bank.recovery.fork(RestorePoint(checkpoint=made[0]), name).won, "a repeated call finds it"
    bank.send(1)
    runs = [
        CheckpointLoop(coordinator=bank.coordinator, pipeline=bank.pipeline, execute=bank.execute, timeline=name)
        for name in ("one", "two", None)
    ]
    done = [run.run_once(ASK).checkpoints[0] for run in runs]
    assert [str(c.plan.slot) for c in done] == ["one/2.1", "two/2.1", "t1/4.1"]
    assert [held(bank, c) for c in done] == [{"a": 4}] * 3
    assert len({c.handles["accounts"].segments[-1].path for c in done}) == 3
    with pytest.raises(ConflictError, match="timeline one exists already: it began at chk-1"):
        bank.recovery.fork(RestorePoint(checkpoint=made[1]), "one")


@pytest.mark.parametrize("name", ["t7", "t1", "../x", "a b", ""])
def test_names_of_forks_are_on_the_allow_list_and_leave_those_of_restores_free(name: str) -> None:
    bank = BankPipeline()
    with pytest.raises(NameRefusedError):
        bank.recovery.fork(RestorePoint(checkpoint=three(bank)[0]), name)


def test_what_does_not_fit_is_told_before_anything_is_written() -> None:
    bank = BankPipeline()
    made = three(bank)
    other = replace(PIPELINE, operators=[Fold("people", key_by="account", state=Account)])
    recovery = Recovery(coordinator=bank.coordinator, pipeline=other)
    with pytest.raises(IncompatibleStateError, match="accounts: is no longer declared"):
        recovery.restore(RestorePoint(checkpoint=made[0]))
    assert bank.coordinator.timelines.names() == ["t1"]
    left = recovery.fork(RestorePoint(checkpoint=made[0], allow_non_restored_state=True), "empty").genesis
    assert (left.left_behind, left.handles) == ({"accounts": made[0].handles["accounts"]}, {})
    named = recovery.fork(RestorePoint(checkpoint=made[0], renamed={"accounts": "people"}), "named").genesis
    assert named.handles == {"people": made[0].handles["accounts"]}
    run = CheckpointLoop(coordinator=bank.coordinator, pipeline=other, execute=lambda a: bank.executed(other, a))
    found = replace(run, timeline="named").run_once(ASK).checkpoints[0]
    rows = MemoryCompute(pipeline=other, log=bank.log, tables=bank.tables).resolve(found, "people")
    assert {key[0]: row["payments"] for key, row in rows.items()} == {"a": 3}
    with pytest.raises(UsageError, match="no operator nobody in chk-1"):
        recovery.restore(RestorePoint(checkpoint=made[0], renamed={"nobody": "people"}))


def test_files_that_are_gone_are_told_before_anything_is_written() -> None:
    bank = BankPipeline()
    made = three(bank)
    bank.tables.files.clear()
    with pytest.raises(CorruptObjectError, match="chk-1 cannot be restored: files of accounts are gone"):
        bank.recovery.restore(RestorePoint(checkpoint=made[0]))
    assert bank.coordinator.timelines.names() == ["t1"]
