"""The failure manager: which reason an error has, whether it counts, and whether a retry makes sense.

Everything is derived from the store's objects: failures in a row are the abort records of the slot that the timeline
waits at, so a completed checkpoint resets the count by moving to the next slot.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.coordinator.records.states import OpenPlan, PlanState, SealedPlan
from tidemark.errors import (
    BrokerError,
    CheckpointExpiredError,
    ConflictError,
    CorruptObjectError,
    DataLostError,
    DeadLettersExceededError,
    EngineError,
    FencedError,
    GateFailedError,
    ProcessFunctionError,
    RecordRefusedError,
    RegistryUnavailableError,
    SchemaChangedError,
    StateOverflowError,
    StoreError,
    TidemarkError,
)
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Verdict
from tidemark.model.checkpoint.store_objects import AbortRecord, Failure
from tidemark.redaction import redact

_LONGEST_MESSAGE = 4000
_REASONS: tuple[tuple[type[TidemarkError], FailureReason], ...] = (
    (DeadLettersExceededError, FailureReason.DEAD_LETTERS_EXCEEDED),
    (CheckpointExpiredError, FailureReason.EXPIRED),
    (DataLostError, FailureReason.OFFSET_LOST),
    (StateOverflowError, FailureReason.STATE_OVERFLOW),
    (ProcessFunctionError, FailureReason.PROCESS_FAILED),
    (CorruptObjectError, FailureReason.INPUT_LOST),
    (RecordRefusedError, FailureReason.RECORD_REFUSED),
    (BrokerError, FailureReason.BROKER_ERROR),
    (RegistryUnavailableError, FailureReason.REGISTRY_UNAVAILABLE),
    (SchemaChangedError, FailureReason.SCHEMA_CHANGED),
    (StoreError, FailureReason.STORE_ERROR),
    (EngineError, FailureReason.ENGINE_ERROR),
    # Another process continued: it subsumes the work of this attempt.
    (FencedError, FailureReason.SUBSUMED),
    # A second conflict in a row without a revocation means that a foreign process writes to Tidemark's tables.
    (ConflictError, FailureReason.STORE_ERROR),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReport:
    """The consequences of a failure, for the caller to act on.

    Attributes:
        failure: the recorded reason, message and next step.
        state: the plan's state; None if nothing was planned or the store did not answer.
        in_a_row: counted failures since the last completed checkpoint, this one included.
        tolerable: `Pipeline.tolerable_failed_checkpoints`.
    """

    failure: Failure
    state: PlanState | None
    in_a_row: int
    tolerable: int

    @property
    def retry(self) -> bool:
        """Whether it makes sense to try the same plan again."""
        reason = self.failure.reason
        return isinstance(self.state, OpenPlan | SealedPlan) and not (reason.aborts or reason.waits)

    @property
    def exceeded(self) -> bool:
        """Whether the caller must pause the DAG and alert; never for a failure that does not count."""
        return self.failure.reason.counts and self.in_a_row > self.tolerable


def classify(error: BaseException, *, publishing: bool = False) -> FailureReason:
    """Returns the failure reason of an error.

    Args:
        error: any exception; one that is not Tidemark's own is a TASK_FAILURE.
        publishing: whether putting the manifest raised it.
    """
    if publishing and isinstance(error, StoreError):
        return FailureReason.PUBLISH_FAILED
    if isinstance(error, GateFailedError):
        crashed = isinstance(error.verdict, Verdict) and error.verdict.error is not None
        return FailureReason.GATE_ERROR if crashed else FailureReason.EXPECTATION_FAILED
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), FailureReason.TASK_FAILURE)


def failure_of(error: BaseException, *, publishing: bool = False) -> Failure:
    """Returns the failure record of an error: its reason, message, next step, and the gate's verdict."""
    if isinstance(error, TidemarkError):
        message, after = error.what, error.next
        if isinstance(error, ProcessFunctionError):
            message = redact(f"{message}\n{error.trace}".rstrip())
    else:
        message = redact(f"{type(error).__name__}: {error}")
        after = "read the traceback in the log, then run the pipeline again."
    verdict = error.verdict if isinstance(error, GateFailedError) else None
    return Failure(
        reason=classify(error, publishing=publishing),
        message=message[:_LONGEST_MESSAGE],
        next=after,
        verdict=verdict if isinstance(verdict, Verdict) else None,
    )


def in_a_row(aborts: Iterable[AbortRecord], current: Failure | None = None, *, current_id: int | None = None) -> int:
    """Counts failures in a row: one per checkpoint id, and only reasons that count.

    Args:
        aborts: abort records of the slot that the timeline waits at.
        current: a failure that left its plan open, or that is among `aborts` already.
        current_id: the checkpoint id of that plan.
    """
    counted = {record.id for record in aborts if record.failure.reason.counts}
    if current is not None and current_id is not None and current.reason.counts:
        counted.add(current_id)
    return len(counted)
