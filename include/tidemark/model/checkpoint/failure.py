"""Why a checkpoint failed: a closed set, stored with the message, and which of the reasons count."""

from enum import Enum


class FailureReason(Enum):
    """The reason of an abort, or of the end of an attempt."""

    EXPECTATION_FAILED = "EXPECTATION_FAILED"
    """The quality gate's critical expectations did not hold."""
    GATE_ERROR = "GATE_ERROR"
    """The gate could not judge: a Great Expectations exception is not a pass."""
    DEAD_LETTERS_EXCEEDED = "DEAD_LETTERS_EXCEEDED"
    """More than `max_dead_letters` of the records could not be applied."""
    EXPIRED = "EXPIRED"
    """The attempt or the DAG run exceeded its timeout."""
    CODE_CHANGED = "CODE_CHANGED"
    """The pipeline's fingerprint no longer matches the plan's."""
    OFFSET_LOST = "OFFSET_LOST"
    """Planned offsets, or the planned version of a broadcast table, were deleted before they were read.

    A topic that was recreated or shortened has the same effect.
    """
    STATE_OVERFLOW = "STATE_OVERFLOW"
    """A key's state does not fit its type or bound."""
    PROCESS_FAILED = "PROCESS_FAILED"
    """The function of a process operator raised; the message says for which key and record, with the traceback."""
    INPUT_LOST = "INPUT_LOST"
    """A file or version that the plan's input handles name cannot be read."""
    BROKER_ERROR = "BROKER_ERROR"
    """Kafka did not answer."""
    RECORD_REFUSED = "RECORD_REFUSED"
    """Kafka refuses one emitted record; the plan waits until the topic accepts it or you run `tidemark sink skip`."""
    REGISTRY_UNAVAILABLE = "REGISTRY_UNAVAILABLE"
    """The schema registry did not answer."""
    SCHEMA_CHANGED = "SCHEMA_CHANGED"
    """The schema registry has another schema under an id that is in use: its ids are those of another registry."""
    STORE_ERROR = "STORE_ERROR"
    """The store or the disk refused to read or write."""
    ENGINE_ERROR = "ENGINE_ERROR"
    """Spark failed."""
    MIN_PAUSE = "MIN_PAUSE"
    """The checkpoint was requested before the minimum pause was over; nothing was planned."""
    STOPPED = "STOPPED"
    """A stop record forbids plans."""
    STATE_ERASED = "STATE_ERASED"
    """A key was erased from the state that the plan reads."""
    PROMOTED = "PROMOTED"
    """The plan was made on a fork, which sends nothing to Kafka, and the fork is now live."""
    DECLINED = "DECLINED"
    """`tidemark checkpoint abort`, or the DAG run was marked failed."""
    PUBLISH_FAILED = "PUBLISH_FAILED"
    """The manifest could not be written."""
    SUBSUMED = "SUBSUMED"
    """A closing took the slot: the timeline ended first."""
    TASK_FAILURE = "TASK_FAILURE"
    """Any other error of Tidemark, with its traceback in the log."""

    @property
    def counts(self) -> bool:
        """Whether it counts towards `tolerable_failed_checkpoints`."""
        return self not in _UNCOUNTED

    @property
    def aborts(self) -> bool:
        """Whether a retry of the same plan cannot succeed, so that the plan is aborted at once."""
        return self in _FINAL

    @property
    def waits(self) -> bool:
        """Whether the plan stays open, and no retry succeeds, until a person has acted."""
        return self is FailureReason.RECORD_REFUSED


_UNCOUNTED = frozenset(
    {
        FailureReason.MIN_PAUSE,
        FailureReason.STOPPED,
        FailureReason.DECLINED,
        FailureReason.SUBSUMED,
        FailureReason.CODE_CHANGED,
        FailureReason.STATE_ERASED,
        FailureReason.PROMOTED,
    }
)
_FINAL = frozenset(
    {
        FailureReason.EXPECTATION_FAILED,
        FailureReason.GATE_ERROR,
        FailureReason.DEAD_LETTERS_EXCEEDED,
        FailureReason.EXPIRED,
        FailureReason.CODE_CHANGED,
        FailureReason.OFFSET_LOST,
        FailureReason.STATE_OVERFLOW,
        FailureReason.PROCESS_FAILED,
        FailureReason.INPUT_LOST,
        FailureReason.SCHEMA_CHANGED,
        FailureReason.STATE_ERASED,
        FailureReason.PROMOTED,
        FailureReason.DECLINED,
    }
)
