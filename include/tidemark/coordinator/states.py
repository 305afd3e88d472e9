"""What a plan, a timeline or a request may have come to: one type per answer, so that none can be mistaken.

Losing a race is an answer, not an error.
"""

from dataclasses import dataclass

from tidemark.model.checkpoint import Checkpoint, Sealed
from tidemark.model.failure import FailureReason
from tidemark.model.plan import CheckpointPlan, Slot
from tidemark.model.records import AbortRecord, Closing


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingOpen:
    """No plan is open: the slot is free for the next plan.

    Attributes:
        slot: where the next plan goes; its k is one above the last aborted plan.
        aborted: abort records of the slot's earlier plans, oldest first.
    """

    slot: Slot
    aborted: tuple[AbortRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPlan:
    """A plan that is neither sealed nor aborted.

    Attributes:
        plan: it.
        attempt: the attempt that runs, or died; 0 = none has begun.
        adopted: whether somebody else made the plan, in an earlier call or at the same moment.
    """

    plan: CheckpointPlan
    attempt: int = 0
    adopted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedPlan:
    """A candidate that awaits publication; whoever finds it publishes it."""

    plan: CheckpointPlan
    sealed: Sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The plan's manifest is in its slot.

    Attributes:
        checkpoint: it.
        won: whether this very call put it.
    """

    checkpoint: Checkpoint
    won: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """The plan is closed for good; the next plan of the slot starts at the same offsets."""

    plan: CheckpointPlan
    record: AbortRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Void:
    """The timeline ended before the plan was published (SUBSUMED): what it wrote are orphans."""

    plan: CheckpointPlan
    closing: Closing


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Nothing was planned: MIN_PAUSE or STOPPED. `wait_ms` says when to ask again, where that is known."""

    reason: FailureReason
    message: str
    next: str
    wait_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """The interval that was asked for is covered by an earlier checkpoint; there is nothing to do."""

    checkpoint: Checkpoint

    def __str__(self) -> str:
        return f"covered by {self.checkpoint.plan.name}"


PlanState = OpenPlan | SealedPlan | Completed | Aborted | Void
"""What one plan has come to."""
