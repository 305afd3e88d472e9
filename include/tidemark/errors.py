"""Every error that Tidemark raises on purpose, and the exit code that each one becomes.

    TidemarkError (1)
    ├── UsageError (2)                 what was asked for makes no sense
    │   ├── DeclarationError           a pipeline, operator or state class is not well-formed
    │   ├── IncompatibleStateError     a declaration does not fit the state that is stored
    │   └── NameRefusedError           a name that may not reach a path or SQL
    ├── NotFoundError (3)              no such pipeline, checkpoint, operator, topic, key
    │   └── ReleasedError              retention has let a checkpoint go
    ├── ConflictError (4)              somebody else got there first; nothing was changed
    │   ├── BusyError                  another process holds the timeline
    │   ├── FencedError                this attempt was revoked
    │   └── StoppedError               the pipeline is stopped: no plan is made
    ├── GateFailedError (5)            expectations failed; nothing was published
    ├── DataLostError (6)              records were deleted before they were read
    ├── DamagedError (6)               files or objects of a restore point are gone or altered
    └── (1)
        ├── CorruptObjectError         an object of the store does not match its checksum
        ├── StoreError                 the store could not be read or written
        ├── BrokerError                Kafka did not answer, or refused
        │   └── RecordRefusedError     Kafka refuses one record of a sink; the message names it by its id
        ├── EngineError                Spark failed
        ├── CheckpointExpiredError     an attempt passed checkpoint_timeout
        ├── DeadLettersExceededError   too large a share of the records could not be applied
        ├── StateOverflowError         a key's state does not fit its type or bound
        ├── ProcessFunctionError       the function of a Process raised
        └── ReplayDiffersError         a checkpoint, computed again, came to another state

A message is three lines: what happened, what is safe, what to type next.
"""

from typing import ClassVar

from tidemark.redaction import redacted


class TidemarkError(Exception):
    """The root. `code` is the exit code of a command that ends with it. Its texts hold no token and no password.

    Args:
        what: what happened, one sentence without a full stop.
        safe: what is intact.
        next: what the operator may type or do now.
    """

    code: ClassVar[int] = 1

    def __init__(self, what: str, *, safe: str = "nothing was written.", next: str) -> None:  # noqa: A002
        super().__init__(redacted(what))
        self.what = redacted(what)
        self.safe = safe
        self.next = redacted(next)

    def __str__(self) -> str:
        return f"{self.what}\nSafe: {self.safe}\nNext: {self.next}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.safe, self.next, dict(vars(self))))


def _rebuild(
    kind: type[TidemarkError],
    what: str,
    safe: str,
    next: str,
    more: dict[str, object],  # noqa: A002
) -> TidemarkError:
    made = kind(what, safe=safe, next=next)
    vars(made).update(more)
    return made


class UsageError(TidemarkError):
    """What was asked for makes no sense; asking again in the same words will not help."""

    code = 2


class DeclarationError(UsageError):
    """A pipeline, operator or state class is not well-formed (found when it is imported)."""


class IncompatibleStateError(UsageError):
    """The declaration does not fit the state that is stored; the message names each operator and field (C6, C9)."""


class NameRefusedError(UsageError):
    """A name outside the allow-list, which would reach a path or SQL."""


class NotFoundError(TidemarkError):
    """No such pipeline, checkpoint, operator, topic or key."""

    code = 3


class ReleasedError(NotFoundError):
    """Retention has let a checkpoint go: its record stays, its state cannot be read, restored or pinned (E11)."""


class ConflictError(TidemarkError):
    """Somebody else got there first; this call changed nothing."""

    code = 4


class BusyError(ConflictError):
    """Another process holds the timeline at this moment."""


class FencedError(ConflictError):
    """This attempt was revoked by a later one: whatever it still does is void (I6)."""


class StoppedError(ConflictError):
    """The pipeline is stopped, so no plan is made until it is resumed; a retry meets the same."""


class GateFailedError(TidemarkError):
    """The quality gate rejected the candidate, or could not judge it.

    `verdict` is the whole verdict (a `tidemark.model.checkpoint.manifest.Verdict`), for the record of the attempt.
    """

    code = 5
    verdict: object | None = None

    def with_verdict(self, verdict: object) -> "GateFailedError":
        """The same error, carrying its verdict."""
        self.verdict = verdict
        return self


class DataLostError(TidemarkError):
    """Records were deleted, or their topic recreated, before they were read; or a version of a broadcast table was."""

    code = 6


class DamagedError(TidemarkError):
    """Files or objects that a restore point needs are gone or altered: nothing was started from it (G14)."""

    code = 6


class CorruptObjectError(TidemarkError):
    """An object of the store is truncated, altered, or of an unknown format."""


class StoreError(TidemarkError):
    """The checkpoint store could not be read or written."""


class BrokerError(TidemarkError):
    """Kafka did not answer in time, or refused the request."""


class RecordRefusedError(BrokerError):
    """Kafka refuses one record of a sink, and would refuse it again: it is too large, or breaks a rule of the topic.

    Every record ahead of it was acknowledged.

    Attributes:
        sink: name of the sink.
        record: id of the record, as in the header `tidemark-id`.
        size: bytes of its key and value.
        why: Kafka's words.
    """

    sink: str = ""
    record: str = ""
    size: int = 0
    why: str = ""


class EngineError(TidemarkError):
    """Spark failed while it executed a checkpoint."""


class CheckpointExpiredError(TidemarkError):
    """An attempt passed the pipeline's `checkpoint_timeout` before it was sealed (D3)."""


class DeadLettersExceededError(TidemarkError):
    """A larger share of the records than `max_dead_letters` could not be applied."""


class StateOverflowError(TidemarkError):
    """A key's state does not fit its type or its bound; the message names the key."""


class ProcessFunctionError(TidemarkError):
    """The function of a `Process` raised, or yielded something else than it emits.

    Attributes:
        key: the key, as text.
        place: topic, partition, offset, and number of the record that it was given last.
        kind: class name of what it raised.
        trace: its traceback, the function's own frames only.
    """

    key: str = ""
    place: tuple[str, int, int, int] = ("", 0, 0, 0)
    kind: str = ""
    trace: str = ""


class ReplayDiffersError(TidemarkError):
    """A checkpoint was computed again by its own plan, and came to another state."""


EXIT_CODES: dict[int, str] = {
    0: "ok",
    1: "failed",
    2: "usage",
    3: "not found",
    4: "conflict or fenced",
    5: "data-quality gate",
    6: "data loss detected",
    130: "interrupted",
}
"""Exit codes of the command line; the documentation's table is held equal to this by a test."""
