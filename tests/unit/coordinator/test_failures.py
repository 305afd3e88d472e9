"""The failure manager: one test per reason, what counts, what aborts, and the restart strategies."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.bank import ASK, PIPELINE, BankPipeline
from tidemark.coordinator.checkpoints.failure_policy import classify, failure_of
from tidemark.coordinator.checkpoints.restart import (
    ENDLESS,
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategy,
    Retries,
)
from tidemark.coordinator.records.states import Aborted, Completed, OpenPlan, Refused, SealedPlan, Subsumed
from tidemark.errors import (
    BrokerError,
    CheckpointExpiredError,
    ConflictError,
    CorruptObjectError,
    DataLostError,
    DeadLettersExceededError,
    DeclarationError,
    EngineError,
    FencedError,
    GateFailedError,
    ProcessFunctionError,
    RecordRefusedError,
    RegistryUnavailableError,
    SchemaChangedError,
    StateOverflowError,
    StoreError,
)
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Verdict
from tidemark.model.checkpoint.store_objects import Closing, Failure, StopRecord
from tidemark.ports import PutOutcome
from tidemark.testing.twin.memory import MemoryStore

R = FailureReason
ERRORS = [
    (GateFailedError("gate failed", next="x").with_verdict(Verdict(passed=False)), R.EXPECTATION_FAILED),
    (GateFailedError("no verdict", next="x"), R.EXPECTATION_FAILED),
    (GateFailedError("gate crashed", next="x").with_verdict(Verdict(passed=False, error="boom")), R.GATE_ERROR),
    (DeadLettersExceededError("too many", next="x"), R.DEAD_LETTERS_EXCEEDED),
    (CheckpointExpiredError("late", next="x"), R.EXPIRED),
    (DataLostError("gone", next="x"), R.OFFSET_LOST),
    (StateOverflowError("too big", next="x"), R.STATE_OVERFLOW),
    (ProcessFunctionError("raised", next="x"), R.PROCESS_FAILED),
    (CorruptObjectError("damaged", next="x"), R.INPUT_LOST),
    (BrokerError("down", next="x"), R.BROKER_ERROR),
    (RecordRefusedError("too large", next="x"), R.RECORD_REFUSED),
    (RegistryUnavailableError("503", next="x"), R.REGISTRY_UNAVAILABLE),
    (SchemaChangedError("other ids", next="x"), R.SCHEMA_CHANGED),
    (StoreError("full", next="x"), R.STORE_ERROR),
    (ConflictError("twice", next="x"), R.STORE_ERROR),
    (EngineError("spark", next="x"), R.ENGINE_ERROR),
    (FencedError("revoked", next="x"), R.SUBSUMED),
    (DeclarationError("bad", next="x"), R.TASK_FAILURE),
    (ValueError("a defect"), R.TASK_FAILURE),
    (KeyboardInterrupt(), R.TASK_FAILURE),
]


@pytest.mark.parametrize(("error", "reason"), ERRORS, ids=lambda v: getattr(v, "name", None) or type(v).__name__)
def test_every_error_has_its_reason(error: BaseException, reason: FailureReason) -> None:
    assert classify(error) is reason
    assert failure_of(error).reason is reason


def test_a_store_error_of_the_publication_is_its_own_reason() -> None:
    assert classify(StoreError("full", next="x"), publishing=True) is R.PUBLISH_FAILED
    assert classify(EngineError("spark", next="x"), publishing=True) is R.ENGINE_ERROR


def test_a_failure_keeps_the_words_and_the_verdict() -> None:
    verdict = Verdict(passed=False, error="boom")
    made = failure_of(GateFailedError("gate crashed", next="mend it.").with_verdict(verdict))
    assert made == Failure(reason=R.GATE_ERROR, message="gate crashed", next="mend it.", verdict=verdict)
    foreign = failure_of(ValueError("x" * 9000))
    assert foreign.message.startswith("ValueError: xxx")
    assert len(foreign.message) == 4000


def test_min_pause_refuses_and_says_how_long() -> None:
    bank = BankPipeline(replace(PIPELINE, min_pause=timedelta(seconds=60)))
    bank.complete()
    bank.clock.advance(20_000)
    found = bank.coordinator.trigger(bank.pipeline, ASK)
    assert isinstance(found, Refused)
    assert (found.reason, found.wait_ms) == (R.MIN_PAUSE, 40_000)
    bank.clock.advance(40_000)
    assert isinstance(bank.coordinator.trigger(bank.pipeline, ASK), OpenPlan)


def test_a_stop_record_refuses_until_a_later_one_resumes() -> None:
    bank = BankPipeline()
    put = bank.coordinator.objects.put
    put(keys.stop_key(1), StopRecord(stopped=True, why="maintenance", at_ms=1, write_id="a"))
    found = bank.loop.run_once(ASK)
    assert found.checkpoints == ()
    assert isinstance(found.ended, Refused)
    assert (found.ended.reason, found.ended.message) == (R.STOPPED, "the pipeline is stopped: maintenance")
    put(keys.stop_key(2), StopRecord(stopped=False, why="done", at_ms=2, write_id="b"))
    assert bank.complete().id == 1


def test_declined_is_what_an_operator_aborts_with() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    done = bank.coordinator.abort(plan, Failure(reason=R.DECLINED, message="no", next="x"))
    assert isinstance(done, Aborted)
    assert done.record.failure.reason is R.DECLINED


def test_code_changed_aborts_the_open_plan_and_plans_anew() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    bank.pipeline = replace(PIPELINE, max_dead_letters=0.5)
    again = bank.plan()
    assert (again.id, again.slot.k) == (2, 2)
    found = bank.coordinator.state(plan)
    assert isinstance(found, Aborted)
    assert found.record.failure.reason is R.CODE_CHANGED


def test_a_timeline_that_ended_subsumes_the_plan() -> None:
    bank = BankPipeline()
    plan = bank.plan()
    bank.coordinator.begin(plan)
    bank.coordinator.objects.put(
        keys.slot_key("t1", 1), Closing(timeline="t1", sequence=1, successor="t2", why="restore", write_id="w")
    )
    report = bank.coordinator.record_failure(bank.pipeline, plan, FencedError("revoked", next="x"))
    assert isinstance(report.state, Subsumed)
    assert (report.failure.reason, report.in_a_row, report.retry) == (R.SUBSUMED, 0, False)


def test_every_reason_is_shown_by_a_test_above() -> None:
    shown = {reason for _, reason in ERRORS}
    elsewhere = {R.PUBLISH_FAILED, R.MIN_PAUSE, R.STOPPED, R.DECLINED, R.CODE_CHANGED, R.STATE_ERASED, R.PROMOTED}
    assert shown | elsewhere == set(FailureReason)


def test_a_final_failure_aborts_the_plan_and_raises_its_own_error() -> None:
    bank = BankPipeline()
    bank.fail = DataLostError("gone", next="x")
    with pytest.raises(DataLostError):
        bank.loop.run_once(ASK)
    report = bank.reports[0]
    assert isinstance(report.state, Aborted)
    assert (report.retry, report.in_a_row, report.exceeded) == (False, 1, True)


def test_another_failure_leaves_the_plan_for_the_next_attempt() -> None:
    bank = BankPipeline()
    bank.fail = EngineError("spark", next="x")
    with pytest.raises(EngineError):
        bank.loop.run_once(ASK)
    assert isinstance(bank.reports[0].state, OpenPlan)
    assert bank.reports[0].retry
    bank.fail = None
    done = bank.complete()
    assert (done.id, done.sealed.attempt) == (1, 2)


def test_failures_in_a_row_count_once_per_id_and_a_success_resets_them() -> None:
    bank = BankPipeline(replace(PIPELINE, tolerable_failed_checkpoints=2))

    def failed(error: Exception) -> tuple[int, bool]:
        bank.fail = error
        with pytest.raises(type(error)):
            bank.loop.run_once(ASK)
        return bank.reports[-1].in_a_row, bank.reports[-1].exceeded

    assert failed(EngineError("spark", next="x")) == (1, False)
    assert failed(EngineError("again", next="x")) == (1, False)  # the same id
    assert failed(DataLostError("gone", next="x")) == (1, False)  # still: now it is aborted
    assert failed(DataLostError("gone", next="x")) == (2, False)
    assert failed(DataLostError("gone", next="x")) == (3, True)
    bank.fail = None
    bank.complete()
    assert failed(DataLostError("gone", next="x")) == (1, False)


def test_reasons_that_do_not_count_do_not_count() -> None:
    bank = BankPipeline()
    bank.coordinator.abort(bank.plan(), Failure(reason=R.DECLINED, message="no", next="x"))
    report = bank.coordinator.record_failure(bank.pipeline, bank.plan(), FencedError("revoked", next="x"))
    assert (report.in_a_row, report.exceeded) == (0, False)


def test_a_fenced_attempt_never_alerts_whatever_failed_before_it() -> None:
    bank = BankPipeline()
    bank.coordinator.record_failure(bank.pipeline, bank.plan(), DataLostError("gone", next="x"))
    report = bank.coordinator.record_failure(bank.pipeline, bank.plan(), FencedError("revoked", next="x"))
    assert (report.in_a_row, report.exceeded) == (1, False)


def test_a_publication_that_failed_is_published_by_the_next_call() -> None:
    bank = BankPipeline()
    refused = [keys.slot_key("t1", 1)]

    class Full(MemoryStore):
        def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
            if key in refused:
                raise StoreError("disk full", next="x")
            return super().put_if_absent(key, body)

    bank.store = Full(bank.store.objects)
    with pytest.raises(StoreError):
        bank.loop.run_once(ASK)
    report = bank.reports[0]
    assert isinstance(report.state, SealedPlan)
    assert (report.failure.reason, report.retry) == (R.PUBLISH_FAILED, True)
    refused.clear()
    assert bank.complete().sealed.attempt == 1


def test_an_error_whose_record_fails_says_so_and_stays_itself() -> None:
    bank = BankPipeline()
    bank.fail = EngineError("spark", next="x")

    class Dying(MemoryStore):
        def get(self, key: str) -> bytes | None:
            found = super().get(key)
            if key.startswith("plans/") and b"revoked" in (found or b""):
                raise StoreError("disk gone", next="x")
            return found

    bank.store = Dying(bank.store.objects)
    with pytest.raises(EngineError) as caught:
        bank.loop.run_once(ASK)
    assert caught.value.__notes__ == ["the failure itself could not be recorded: disk gone"]
    assert bank.reports == []


def test_a_completed_plan_counts_no_failure() -> None:
    bank = BankPipeline()
    done = bank.complete()
    report = bank.coordinator.record_failure(bank.pipeline, done.plan, EngineError("late", next="x"))
    assert isinstance(report.state, Completed)
    assert (report.in_a_row, report.retry) == (0, False)


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        (NoRestart(), Retries(retries=0, delay_s=0, multiplier=1, max_delay_s=0)),
        (FixedDelay(), Retries(retries=1, delay_s=1, multiplier=1, max_delay_s=1)),
        (
            FixedDelay(attempts=3, delay=timedelta(seconds=5)),
            Retries(retries=3, delay_s=5, multiplier=1, max_delay_s=5),
        ),
        (ExponentialDelay(), Retries(retries=ENDLESS, delay_s=1, multiplier=2, max_delay_s=300)),
        (FailureRate(failures=4), Retries(retries=4, delay_s=1, multiplier=1, max_delay_s=1)),
    ],
)
def test_the_four_restart_strategies_are_plain_retries(strategy: RestartStrategy, wanted: Retries) -> None:
    assert strategy.retries() == wanted


@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedDelay(attempts=0),
        lambda: FailureRate(delay=timedelta(seconds=-1)),
        lambda: ExponentialDelay(multiplier=0.5),
        lambda: ExponentialDelay(longest=timedelta(0)),
    ],
)
def test_senseless_strategies_are_refused(make: Callable[[], RestartStrategy]) -> None:
    with pytest.raises(DeclarationError):
        make()
