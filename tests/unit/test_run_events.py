"""Which checkpoints the events of a run name, and how far a run is."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tests.support.bank import ASK, P0, PIPELINE, BankPipeline
from tests.support.memory import Payment
from tidemark.coordinator.records.states import Completed, OpenPlan, SealedPlan
from tidemark.operations import runs
from tidemark.testing import BARRIER, replay

FIRST, SECOND = replace(ASK, run="dag/first"), replace(ASK, run="dag/second")


def bounded(records: int) -> tuple[BankPipeline, Any]:
    """A bank whose checkpoints take two records, and a context over it."""
    bank = BankPipeline(replace(PIPELINE, max_records=2))
    bank.send(records, timestamp_ms=10)
    return bank, SimpleNamespace(coordinator=lambda name: bank.coordinator, clock=bank.clock)


def test_the_events_of_a_first_run_that_failed_are_added_by_the_next() -> None:
    bank, context = bounded(7)
    bank.complete(FIRST)
    bank.complete(FIRST)
    last = bank.loop.make_checkpoints(SECOND).checkpoints[-1]
    assert runs.list_unannounced(context, last) == [1, 2, 3, 4]
    runs.record_announced(context, "bank", last.id)
    assert runs.list_unannounced(context, last) == [last.id]


def test_checkpoints_of_release_0_1_are_not_announced_again() -> None:
    bank, context = bounded(2)
    bank.complete(replace(ASK, max_records=1))
    bank.complete(ASK)
    bank.send(3, timestamp_ms=20)
    last = bank.loop.make_checkpoints(FIRST).checkpoints[-1]
    assert runs.list_unannounced(context, last) == [3, 4]


def test_pieces_before_a_checkpoint_that_was_left_sealed_are_announced_with_it() -> None:
    bank, context = bounded(1)
    runs.record_announced(context, "bank", bank.complete().id)
    bank.send(5, timestamp_ms=10)
    folded = bank.loop.fold(bank.plan(FIRST), FIRST)
    assert isinstance(folded.state, SealedPlan)
    published = bank.loop.plan(SECOND)
    assert isinstance(published.state, OpenPlan)
    assert runs.list_unannounced(context, published.checkpoints[-1]) == [2, 3, 4]


def test_the_progress_of_a_run_counts_from_where_it_began() -> None:
    bank, context = bounded(2)
    bank.loop.make_checkpoints(FIRST)
    bank.send(5, timestamp_ms=20)
    bank.complete(SECOND)
    bank.clock.ms += 4_000
    found = runs.describe(context, bank.complete(SECOND))
    assert found is not None
    assert (found.run, found.checkpoint, found.done, found.total, found.share) == ("dag/second", "chk-3", 4, 5, 0.8)
    assert found.per_second == 1.0
    assert found.seconds_left == 1.0
    done = bank.loop.make_checkpoints(SECOND).state
    assert isinstance(done, Completed)
    last = runs.describe(context, done.checkpoint)
    assert last is not None
    assert (last.share, last.seconds_left) == (1.0, 0.0)
    assert done.checkpoint.plan.ranges[P0].end == 7


def test_a_barrier_of_the_test_harness_reads_everything_whatever_bounds_a_checkpoint() -> None:
    payments = [Payment("a", 1), Payment("a", 1), Payment("a", 1)]
    for pipeline in (PIPELINE, replace(PIPELINE, max_records=1)):
        assert replay(pipeline, [payments, BARRIER]).state("accounts")["a"].payments == 3
