"""What the end of a step means to whoever asked for it: a checkpoint, or the error to raise."""

from tidemark.coordinator.records.states import Aborted, Completed, Covered, PlanState, Refused, Void
from tidemark.errors import ConflictError, GateFailedError, StoppedError, TidemarkError
from tidemark.model.checkpoint import Checkpoint
from tidemark.model.failure import FailureReason

_SAFE = "every completed checkpoint is intact."


def covered_or_refused(name: str, ended: Covered | Refused | None) -> int:
    """The id of the covering checkpoint.

    Raises:
        StoppedError: nothing was planned because the pipeline is stopped.
        ConflictError: nothing was planned because it pauses.
    """
    if isinstance(ended, Covered):
        return ended.checkpoint.id
    if ended is None:
        raise ConflictError(f"{name}: nothing was planned", safe=_SAFE, next=f"tidemark run {name}")
    kind = StoppedError if ended.reason is FailureReason.STOPPED else ConflictError
    raise kind(f"{ended.reason.value}: {ended.message}", safe=_SAFE, next=ended.next)


def completed_or_raise(name: str, state: PlanState) -> Checkpoint:
    """The checkpoint of a completed plan.

    Raises:
        GateFailedError: it was aborted by its gate.
        TidemarkError: it was aborted for another reason.
        ConflictError: its timeline ended first, or it is not sealed.
    """
    if isinstance(state, Completed):
        return state.checkpoint
    if isinstance(state, Aborted):
        failure = state.record.failure
        gate = failure.reason in (FailureReason.EXPECTATION_FAILED, FailureReason.GATE_ERROR)
        kind = GateFailedError if gate else TidemarkError
        error = kind(f"{failure.reason.value}: {failure.message}", safe=_SAFE, next=failure.next)
        raise error.with_verdict(failure.verdict) if isinstance(error, GateFailedError) else error
    if isinstance(state, Void):
        raise ConflictError(
            f"SUBSUMED: timeline {state.closing.timeline} ended before {state.plan.name} was published",
            safe=_SAFE,
            next=f"tidemark run {name}    (plans on {state.closing.successor or 'the live timeline'}).",
        )
    raise ConflictError(f"{state.plan.name} is not sealed yet", safe=_SAFE, next=f"tidemark run {name}")
