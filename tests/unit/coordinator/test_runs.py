"""A run of several checkpoints ends where its first plan said, whatever happens in between (adr/0032)."""

from dataclasses import dataclass, replace
from datetime import timedelta
from unittest.mock import patch

import pytest

from tests.support.bank import ASK, P0, P1, PIPELINE, BankPipeline, at
from tests.support.memory import Payment
from tidemark import Fold, KafkaSource, Pipeline, Retention
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.plans.runs import id_of, newest_run
from tidemark.coordinator.records.states import Aborted, Completed, Covered, OpenPlan, Refused
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.recovery.stop_and_resume import Stopping
from tidemark.coordinator.retention.stored_rule import Lines, kept_by
from tidemark.errors import CheckpointExpiredError, DeclarationError, EngineError
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.store_objects import Failure
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.retention.manifest_lines import ManifestLine

FIRST, SECOND = replace(ASK, run="dag/first"), replace(ASK, run="dag/second")
P2 = TopicPartition("payments", 2)


def bounded(**changes: object) -> BankPipeline:
    """A bank whose checkpoints take two records; five of one time wait in it."""
    bank = BankPipeline(replace(PIPELINE, **{"max_records": 2, **changes}))  # type: ignore[arg-type]
    bank.send(5, timestamp_ms=10)
    return bank


def spans(made: list[Checkpoint] | tuple[Checkpoint, ...]) -> list[int]:
    return [c.plan.ranges.span for c in made]


def test_a_run_makes_as_many_checkpoints_as_it_needs_and_the_last_one_ends_it() -> None:
    bank = bounded()
    made = bank.loop.make_checkpoints(FIRST).checkpoints
    assert spans(made) == [2, 2, 1]
    assert [c.plan.covers for c in made] == [False, False, True]
    assert {c.plan.run for c in made} == {id_of(FIRST)}
    assert bank.state("accounts") == {("a",): (5, 5)}


def test_the_bounds_are_no_part_of_what_the_state_depends_on() -> None:
    assert replace(PIPELINE, max_records=5, max_bytes=9).fingerprint == PIPELINE.fingerprint


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(DeclarationError, match="max_bytes=0"):
        replace(PIPELINE, max_bytes=0)


def test_without_bounds_a_plan_names_no_run() -> None:
    bank = bounded(max_records=None)
    made = bank.loop.make_checkpoints(FIRST).checkpoints
    assert spans(made) == [5]
    assert made[0].plan.run == ""
    assert not bank.store.list("runs/")


def test_under_load_a_run_ends_where_it_meant_to() -> None:
    bank = bounded()
    loop = replace(bank.loop, on_completed=lambda made: bank.send(3, timestamp_ms=20))
    made = loop.make_checkpoints(FIRST).checkpoints
    assert spans(made) == [2, 2, 1]
    assert made[-1].plan.pending == {P0: 6}
    assert spans(bank.loop.make_checkpoints(SECOND).checkpoints) == [2, 2, 2]


def test_two_runs_that_take_turns_both_end() -> None:
    bank = bounded()
    ended, asked = set[str](), 0
    while len(ended) < 2:
        for request in (FIRST, SECOND):
            found = bank.loop.run_once(request)
            bank.send(1, timestamp_ms=20)
            asked += 1
            if found.checkpoints and found.checkpoints[0].plan.covers:
                ended.add(found.checkpoints[0].plan.run)
    assert asked <= 8


def test_an_aborted_plan_a_restore_and_a_foreign_checkpoint_move_no_end() -> None:
    bank = bounded()
    first = bank.complete(FIRST)
    bank.send(4, timestamp_ms=20)
    bank.coordinator.abort(bank.plan(FIRST), Failure(reason=FailureReason.DECLINED, message="no", next="x"))
    bank.complete(replace(ASK, run="dag/other"))
    bank.send(4, timestamp_ms=30)
    request = RestoreRequest(checkpoint=first.id)
    recovery = Recovery(coordinator=bank.coordinator, pipeline=bank.pipeline)
    recovery.restore(request.find_restore_point(bank.coordinator), request.request)
    made = bank.loop.make_checkpoints(FIRST).checkpoints
    assert made[-1].plan.ranges[P0].end == 5


def test_a_run_that_has_ended_is_covered_by_its_last_checkpoint() -> None:
    bank = bounded()
    last = bank.loop.make_checkpoints(FIRST).checkpoints[-1]
    bank.send(2, timestamp_ms=20)
    assert bank.loop.make_checkpoints(FIRST).state == Covered(checkpoint=last)
    other = replace(FIRST, interval_end=at(50))
    assert bank.loop.make_checkpoints(other).checkpoints, "the same id with another interval is another run"


def test_a_run_of_an_interval_covers_it_with_its_last_checkpoint_only() -> None:
    bank = bounded()
    bank.send(2, timestamp_ms=70)
    asked = replace(FIRST, interval_end=at(50), until_interval_end=True)
    made = bank.loop.make_checkpoints(asked).checkpoints
    assert spans(made) == [2, 2, 1]
    assert [c.covered_until_ms for c in made] == [None, None, 50]


def test_a_partition_that_is_added_during_a_run_waits_for_the_next() -> None:
    bank = bounded()
    bank.complete(FIRST)
    bank.log.add_partitions("payments")
    bank.send(2, P2, timestamp_ms=5)
    made = bank.loop.make_checkpoints(FIRST).checkpoints
    assert (made[-1].plan.covers, made[-1].plan.ranges[P2].span) == (True, 0)
    assert sum(c.plan.ranges[P2].span for c in bank.loop.make_checkpoints(SECOND).checkpoints) == 2


def test_a_log_that_became_shorter_leaves_no_end_that_nobody_reaches() -> None:
    bank = bounded()
    bank.complete(FIRST)
    bank.log.truncate(P0, 3)
    made = bank.loop.make_checkpoints(FIRST).checkpoints
    assert (spans(made), made[-1].plan.covers) == ([1], True)


@dataclass(frozen=True)
class Refund:
    """A record of an input that is added later."""

    account: str


def test_a_new_input_gives_the_run_ends_again() -> None:
    bank = bounded()
    bank.complete(FIRST)
    bank.log.create("refunds")
    for _ in range(2):
        bank.log.append(TopicPartition("refunds", 0), b'{"account": "a"}', timestamp_ms=10)
    (operator,) = PIPELINE.operators
    assert PIPELINE.source is not None and isinstance(operator, Fold)
    wider = replace(
        bank.pipeline,
        source=None,
        sources={"records": PIPELINE.source, "refunds": KafkaSource("refunds", Refund, start="latest")},
        operators=[replace(operator, input="records")],
    )
    bank.pipeline = wider
    made = bank.loop.make_checkpoints(FIRST).checkpoints
    assert made[-1].plan.covers
    assert made[-1].plan.ranges[TopicPartition("refunds", 0)].start == 2, "where the input says that it starts"
    record = newest_run(bank.coordinator.objects, id_of(FIRST))
    assert record is not None
    assert record.inputs == ("records", "refunds")


def test_the_minimum_pause_lies_between_runs_not_within_one() -> None:
    bank = bounded(min_pause=timedelta(hours=1))
    assert len(bank.loop.make_checkpoints(FIRST).checkpoints) == 3
    refused = bank.loop.make_checkpoints(SECOND).state
    assert isinstance(refused, Refused)
    assert refused.reason is FailureReason.MIN_PAUSE


def test_a_run_that_is_stopped_in_the_middle_says_so() -> None:
    bank = bounded()

    def stop(made: Checkpoint) -> None:
        Stopping(bank.coordinator).stop("maintenance")

    done = replace(bank.loop, on_completed=stop).make_checkpoints(FIRST)
    assert isinstance(done.state, Refused)
    assert done.state.reason is FailureReason.STOPPED
    assert spans(done.checkpoints) == [2]


@pytest.mark.parametrize("error", [CheckpointExpiredError("late", next="x"), EngineError("no memory", next="x")])
def test_after_an_attempt_that_was_too_large_the_next_plan_reads_half(error: Exception) -> None:
    bank = bounded(max_records=4)
    plan = bank.plan(FIRST)
    assert plan.ranges.span == 4
    owned = bank.coordinator.begin(plan)
    assert isinstance(owned, OwnedAttempt)
    reason = FailureReason.EXPIRED if isinstance(error, CheckpointExpiredError) else FailureReason.ENGINE_ERROR
    bank.coordinator.abort(plan, Failure(reason=reason, message=str(error), next="x"))
    assert spans(bank.loop.make_checkpoints(FIRST).checkpoints) == [2, 2, 1]
    bank.send(5, timestamp_ms=20)
    assert spans(bank.loop.make_checkpoints(SECOND).checkpoints) == [4, 1], "the backlog is read: the whole bound again"


def test_a_bound_that_is_too_large_does_not_fail_once_more_after_each_checkpoint() -> None:
    bank = bounded(max_records=8)
    bank.send(19, timestamp_ms=10)
    failed = 0

    def execute(attempt: OwnedAttempt) -> Sealed:
        if attempt.plan.ranges.span > 2:
            raise CheckpointExpiredError("late", next="x")
        return bank.execute(attempt)

    for number in range(20):  # a DAG run each
        try:
            replace(bank.loop, execute=execute).make_checkpoints(replace(ASK, run=f"dag/{number}"))
            break
        except CheckpointExpiredError:
            failed += 1
    assert failed == 2
    assert bank.state("accounts") == {("a",): (24, 24)}


def test_a_bound_in_bytes_goes_by_the_size_of_records_so_far() -> None:
    bank = bounded(max_records=None, max_bytes=70)
    size = len(bank.log.records(P0, bank.plan(FIRST).ranges[P0])[0].value or b"")
    assert spans(bank.loop.make_checkpoints(FIRST).checkpoints)[0] == 70 // size
    bank.send(5, P1, account="a" * 100, timestamp_ms=10)
    made = bank.loop.make_checkpoints(SECOND).checkpoints
    assert spans(made)[0] == 70 // size, "the records before were small"
    assert min(spans(made)[1:]) == 1, "larger than the bound, yet one at a time"


def test_a_plan_of_no_run_that_a_run_adopts_does_not_end_it() -> None:
    bank = bounded()
    bank.plan(ASK)  # as release 0.1 makes it with --max-records
    assert bank.loop.make_checkpoints(FIRST).checkpoints[-1].plan.ranges[P0].end == 5


def test_the_minimum_pause_does_not_stop_a_run_that_adopted_a_plan() -> None:
    bank = bounded(min_pause=timedelta(hours=1))
    bank.plan(FIRST)
    assert isinstance(bank.loop.make_checkpoints(SECOND).state, Completed)


def test_looking_for_the_end_of_a_run_does_not_become_slower_with_it() -> None:
    reads = []
    for size in (20, 80):
        bank = bounded(max_records=1)
        bank.send(size - 5, timestamp_ms=10)
        with patch.object(bank.store, "get", wraps=bank.store.get) as get:
            bank.loop.make_checkpoints(FIRST)
            reads.append(get.call_count / size)
    assert reads[1] < 1.2 * reads[0], reads


def test_an_open_plan_of_a_run_that_died_is_finished_by_the_next_run() -> None:
    bank = bounded()
    dead = bank.plan(FIRST)
    found = bank.coordinator.trigger(bank.pipeline, SECOND)
    assert isinstance(found, OpenPlan)
    assert (found.plan, found.adopted) == (dead, True)
    done = bank.loop.make_checkpoints(SECOND)
    assert isinstance(done.state, Completed)
    assert [c.plan.run for c in done.checkpoints] == [id_of(FIRST), id_of(SECOND), id_of(SECOND)]


def test_checkpoints_in_the_middle_of_a_run_push_no_restore_point_out() -> None:
    bank = bounded()
    for request in (FIRST, SECOND, replace(ASK, run="dag/third")):
        bank.loop.make_checkpoints(request)
        bank.send(4, timestamp_ms=20)
    bank.complete(replace(ASK, run="dag/fourth"))
    made = list(reversed(list(bank.coordinator.checkpoints())))
    assert [c.id for c in made if c.plan.covers] == [3, 5, 7]
    lines = Lines(checkpoints={"t1": [ManifestLine.of(c) for c in made]}, geneses={}, closings={})
    kept = kept_by(Retention.keep_last(3), lines)
    assert sorted(kept) == [5, 7, 8], "the newest of each run"


def test_a_repeated_task_does_not_plan_again_what_a_person_refused() -> None:
    bank = bounded()
    first = bank.complete(FIRST)
    refused = bank.plan(FIRST)
    bank.coordinator.abort(refused, Failure(reason=FailureReason.DECLINED, message="no", next="x"))
    found = bank.loop.fold(first.plan, FIRST)
    assert isinstance(found.state, Aborted)
    assert found.state.plan == refused
    assert bank.free().slot.k == 2, "no other plan was made"


def test_a_bounded_pipeline_has_one_declaration() -> None:
    made = Pipeline(
        name="bank", source=KafkaSource("payments", Payment), operators=PIPELINE.operators, max_records=1_000
    )
    assert made.max_records == 1_000
