"""What a plan, a timeline or a request may have come to: one type per answer, so that none can be mistaken.

Losing a race is an answer, not an error.
"""

from dataclasses import dataclass

from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan, Slot
from tidemark.model.checkpoint.store_objects import AbortRecord, Closing, Genesis


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A timeline of its own beside the live one. `won` = this very call began it."""

    genesis: Genesis
    won: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The live timeline was closed in favour of a new one that begins at the restored checkpoint.

    Attributes:
        genesis: first record of the new timeline.
        closing: last record of the old one.
        left: checkpoints of the old timeline that the new one does not come from, newest first; all stay readable.
        overtaken: those of them that took the slot before the closing, while this very call was at it.
        won: whether this very call put the closing.
    """

    genesis: Genesis
    closing: Closing
    left: tuple[Checkpoint, ...]
    overtaken: tuple[Checkpoint, ...] = ()
    won: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """Another restore or promote closed the timeline first, or it has ended; `genesis` began one that stays a fork."""

    closing: Closing
    genesis: Genesis | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """A fork is the live timeline now.

    Attributes:
        closing: last record of the timeline that was live.
        replaced: its checkpoints whose offsets the fork has applied too, newest first.
        left: those whose offsets it has not: `discard` let them go. They stay readable.
        won: whether this very call put the closing.
    """

    closing: Closing
    replaced: tuple[Checkpoint, ...] = ()
    left: tuple[Checkpoint, ...] = ()
    won: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A timeline beside the live one has ended, or would.

    Attributes:
        closing: its last record, which names no successor.
        checkpoints: its own, oldest first: retention lets go of them, unless something else keeps them.
        savepoints: names that pin some of them.
        forks: timelines that began at one of them.
        gives_back: the savepoint that a restore claimed for it, which pins its checkpoint again; empty = none.
        won: whether this very call put the closing.
    """

    closing: Closing
    checkpoints: tuple[Checkpoint, ...]
    savepoints: tuple[str, ...] = ()
    forks: tuple[str, ...] = ()
    gives_back: str = ""
    won: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """The fork has not applied what the live timeline has: catch up (a checkpoint on the fork), then promote again.

    Attributes:
        timeline: the fork.
        lacking: checkpoints of the live timeline that reach beyond the fork, newest first.
        overtaken: whether the fork had caught up when it was looked at first, and a checkpoint won the slot.
    """

    timeline: str
    lacking: tuple[Checkpoint, ...]
    overtaken: bool = False


PlanState = OpenPlan | SealedPlan | Completed | Aborted | Void
"""What one plan has come to."""
