"""The loop in stages, as the tasks of a DAG drive it: several processes make what one process makes."""

from dataclasses import replace

import pytest

from tests.support.bank import ASK, BankPipeline, at
from tests.support.crashes import Killed
from tests.support.memory import dag_run
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.loop import CheckpointLoop, covers
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.states import Aborted, Completed, Covered, OpenPlan, Refused, SealedPlan, Subsumed
from tidemark.coordinator.recovery.backfill import Backfill, BackfillRequest
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.recovery.stop_and_resume import Stopping
from tidemark.errors import ConflictError, StoreError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.store_objects import Failure
from tidemark.ports import PutOutcome
from tidemark.testing.twin.memory import MemoryStore

DAY = replace(ASK, max_records=2, interval_start=at(0), interval_end=at(50), until_interval_end=True)
DECLINED = Failure(reason=FailureReason.DECLINED, message="no", next="x")


def loaded() -> BankPipeline:
    """Five records of one interval, of which a checkpoint takes two."""
    bank = BankPipeline()
    bank.send(5, timestamp_ms=10)
    return bank


def test_the_stages_write_what_one_process_writes_byte_for_byte() -> None:
    alone, staged = loaded(), loaded()
    while alone.loop.run_once(DAY).ended is None:
        pass
    made = dag_run(staged.loop, DAY).checkpoints
    assert len(made) == 3
    assert staged.store.objects == alone.store.objects
    assert staged.state("accounts") == alone.state("accounts") == {("a",): (5, 5)}


def test_each_stage_stops_where_the_next_task_begins() -> None:
    bank = loaded()
    planned = bank.loop.plan(DAY)
    assert isinstance(planned.state, OpenPlan)
    assert (planned.state.attempt, planned.checkpoints) == (0, ())
    folded = bank.loop.fold(planned.state.plan, DAY)
    assert isinstance(folded.state, SealedPlan)
    assert [c.id for c in folded.checkpoints] == [1, 2]
    assert covers(folded.state.plan, DAY)
    done = bank.loop.complete(folded.state.plan)
    assert isinstance(done, Completed)
    assert (done.checkpoint.id, done.won) == (3, True)
    assert bank.loop.complete(folded.state.plan) == replace(done, won=False), "a repeated task finds its own manifest"
    assert bank.loop.plan(DAY).state == Covered(checkpoint=done.checkpoint)


def test_every_checkpoint_but_the_last_is_announced_before_the_next_is_planned() -> None:
    bank, heads = loaded(), list[tuple[int, object]]()

    def announce(made: Checkpoint) -> None:
        heads.append((made.id, bank.coordinator.open_plan()))

    replace(bank.loop, on_completed=announce).fold(bank.plan(DAY), DAY)
    assert [number for number, _ in heads] == [1, 2]
    assert not any(isinstance(found, OpenPlan) for _, found in heads)


def _killed_behind(bank: BankPipeline, wanted: int) -> CheckpointLoop:
    """A loop whose process ends once checkpoint `wanted` is sealed."""

    def execute(attempt: OwnedAttempt) -> Sealed:
        sealed = bank.execute(attempt)
        if attempt.plan.id == wanted:
            raise Killed
        return sealed

    return replace(bank.loop, execute=execute)


@pytest.mark.parametrize("wanted", [1, 2, 3])
def test_a_repeated_fold_continues_where_the_killed_one_died_and_each_checkpoint_is_announced(wanted: int) -> None:
    bank, announced = loaded(), set[int]()
    plan = bank.plan(DAY)
    with pytest.raises(Killed):
        replace(_killed_behind(bank, wanted), on_completed=lambda made: announced.add(made.id)).fold(plan, DAY)
    folded = replace(bank.loop, on_completed=lambda made: announced.add(made.id)).fold(plan, DAY)
    assert isinstance(folded.state, SealedPlan | Completed)
    last = folded.state.plan if isinstance(folded.state, SealedPlan) else folded.state.checkpoint.plan
    assert last.id == 3
    done = bank.loop.complete(last)
    assert isinstance(done, Completed)
    assert announced == {1, 2}, "the last one is announced by the task that completes it"
    assert bank.coordinator.covered_by(at(50)) == done.checkpoint
    assert bank.state("accounts") == {("a",): (5, 5)}


def test_a_fold_reports_that_its_plan_was_given_up_and_plans_no_other() -> None:
    bank = loaded()
    plan = bank.plan(DAY)
    aborted = bank.coordinator.abort(plan, DECLINED)
    assert isinstance(aborted, Aborted)
    assert bank.loop.fold(plan, DAY).state == aborted
    assert bank.free().slot == replace(plan.slot, k=2)


def test_a_run_plans_anew_where_its_plan_is_given_up_before_it_begins() -> None:
    bank = loaded()
    gave_up: list[object] = []

    def decline(step: str, moment: str) -> None:
        if (step, moment) == ("attempt", "before") and not gave_up:
            found = bank.coordinator.open_plan()
            assert isinstance(found, OpenPlan)
            gave_up.append(bank.coordinator.abort(found.plan, DECLINED))

    loop = replace(bank.loop, coordinator=replace(bank.coordinator, listener=decline))
    (made,) = loop.run_once(ASK).checkpoints
    assert (made.plan.slot.k, len(gave_up)) == (2, 1)


def test_a_fold_whose_timeline_ended_goes_on_with_the_live_one() -> None:
    bank = loaded()
    first = bank.complete(replace(DAY, interval_end=at(5)))
    plan = bank.plan(DAY)
    bank.recovery.restore(RestorePoint(checkpoint=first))
    assert isinstance(bank.coordinator.state(plan), Subsumed)
    folded = bank.loop.fold(plan, DAY)
    assert isinstance(folded.state, SealedPlan)
    assert (plan.slot.timeline, folded.state.plan.slot.timeline) == ("t1", "t2")


def test_a_fold_that_is_stopped_between_two_plans_ends_with_what_is_complete() -> None:
    bank = loaded()

    def stop(made: Checkpoint) -> None:
        Stopping(bank.coordinator).stop("maintenance")

    done = replace(bank.loop, on_completed=stop).fold(bank.plan(DAY), DAY)
    assert isinstance(done.state, Refused)
    assert [c.id for c in done.checkpoints] == [1]


def test_an_outdated_step_of_a_backfill_is_refused() -> None:
    bank = BankPipeline()
    made = []
    for _ in range(2):
        bank.send(1)
        made.append(bank.complete())
    request = BackfillRequest(begins=RestoreRequest(checkpoint=made[0].id))
    one = Backfill(coordinator=bank.coordinator, pipeline=bank.pipeline, request=request)
    one.begin()
    plan = one.trigger()
    assert isinstance(plan, CheckpointPlan)
    other = replace(bank.loop, pipeline=replace(bank.pipeline, max_dead_letters=0.9))
    with pytest.raises(ConflictError, match="planned by other code"):
        other.fold(plan, ASK)


def test_a_manifest_that_cannot_be_put_is_reported_by_the_task_that_publishes() -> None:
    bank = loaded()
    folded = bank.loop.fold(bank.plan(), ASK)
    assert isinstance(folded.state, SealedPlan)

    class Full(MemoryStore):
        def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
            if key == keys.slot_key("t1", 1):
                raise StoreError("disk full", next="x")
            return super().put_if_absent(key, body)

    bank.store = Full(bank.store.objects)
    with pytest.raises(StoreError):
        bank.loop.complete(folded.state.plan)
    (report,) = bank.reports
    assert (report.failure.reason, report.retry) == (FailureReason.PUBLISH_FAILED, True)
