"""The possible states of a plan, a timeline or a request: one type per answer, so that none can be confused.

Losing a race is an answer, not an error.
"""

from dataclasses import dataclass, field

from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan, Slot
from tidemark.model.checkpoint.store_objects import AbortRecord, Closing, Genesis


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingOpen:
    """No plan is open: the slot is free for the next plan.

    Attributes:
        slot: the slot of the next plan; its k is one above that of the last aborted plan.
        aborted: abort records of the slot's earlier plans, oldest first.
    """

    slot: Slot
    aborted: tuple[AbortRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPlan:
    """A plan that is neither sealed nor aborted.

    Attributes:
        plan: the plan.
        attempt: the attempt that runs, or that died; 0 = none has begun.
        adopted: whether the plan was made elsewhere: in an earlier call, or by another process at the same moment.
    """

    plan: CheckpointPlan
    attempt: int = 0
    adopted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedPlan:
    """A candidate that awaits publication; any process that finds it publishes it.

    Attributes:
        plan: the plan.
        sealed: what its last attempt sealed.
        before: the entry of the slot before the plan's, if this process has sealed the plan itself and knows it.
    """

    plan: CheckpointPlan
    sealed: Sealed
    before: Checkpoint | Genesis | Closing | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The plan's manifest is in its slot.

    Attributes:
        checkpoint: the completed checkpoint.
        won: whether this call put the manifest.
    """

    checkpoint: Checkpoint
    won: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """The plan is closed for good; the next plan of the slot starts at the same offsets."""

    plan: CheckpointPlan
    record: AbortRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Subsumed:
    """The timeline ended before the plan was published (SUBSUMED); the files of the plan are orphans."""

    plan: CheckpointPlan
    closing: Closing


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Nothing was planned: MIN_PAUSE or STOPPED. `wait_ms` says when to ask again, if that is known."""

    reason: FailureReason
    message: str
    next: str
    wait_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """The requested interval is covered by an earlier checkpoint; there is nothing to do."""

    checkpoint: Checkpoint

    def __str__(self) -> str:
        return f"covered by {self.checkpoint.plan.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A timeline next to the live one. `won` = this call began it."""

    genesis: Genesis
    won: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The live timeline was closed in favour of a new one that begins at the restored checkpoint.

    Attributes:
        genesis: the first record of the new timeline.
        closing: the last record of the old one.
        left: checkpoints of the old timeline that are no ancestors of the new one, newest first; all stay readable.
        overtaken: the checkpoints among them that took the slot before the closing, while this call was at work.
        won: whether this call put the closing.
    """

    genesis: Genesis
    closing: Closing
    left: tuple[Checkpoint, ...]
    overtaken: tuple[Checkpoint, ...] = ()
    won: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """Another restore or promote closed the timeline first, or it has ended; the timeline of `genesis` stays a fork."""

    closing: Closing
    genesis: Genesis | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """A fork has become the live timeline.

    Attributes:
        closing: the last record of the timeline that was live.
        replaced: checkpoints of that timeline whose offsets the fork has applied too, newest first.
        left: those whose offsets the fork has not applied, which `discard` accepted. They stay readable.
        won: whether this call put the closing.
    """

    closing: Closing
    replaced: tuple[Checkpoint, ...] = ()
    left: tuple[Checkpoint, ...] = ()
    won: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A timeline next to the live one has ended, or would end.

    Attributes:
        closing: the last record of the timeline, which names no successor.
        checkpoints: its own checkpoints, oldest first. Retention releases them, unless something else keeps them.
        savepoints: names of savepoints that pin some of them.
        forks: timelines that began at one of them.
        gives_back: the savepoint that a restore claimed for the timeline, which pins its checkpoint again, or empty.
        won: whether this call put the closing.
    """

    closing: Closing
    checkpoints: tuple[Checkpoint, ...]
    savepoints: tuple[str, ...] = ()
    forks: tuple[str, ...] = ()
    gives_back: str = ""
    won: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionBlocked:
    """The fork has not applied everything that the live timeline has: run a checkpoint on it, then promote again.

    Attributes:
        timeline: the fork.
        lacking: checkpoints of the live timeline that reach beyond the fork, newest first.
        overtaken: whether the fork had caught up at first, but then a checkpoint of the live timeline won the slot.
    """

    timeline: str
    lacking: tuple[Checkpoint, ...]
    overtaken: bool = False


PlanState = OpenPlan | SealedPlan | Completed | Aborted | Subsumed
"""The possible states of one plan."""
