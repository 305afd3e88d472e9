"""Every error that Tidemark raises on purpose, with the exit code of each.

    TidemarkError (1)
    ├── UsageError (2)                 the request makes no sense
    │   ├── DeclarationError           a pipeline, operator or state class is invalid
    │   ├── IncompatibleStateError     a declaration does not fit the stored state
    │   └── NameRefusedError           a name that may not reach a path or SQL
    ├── NotFoundError (3)              no such pipeline, checkpoint, operator, topic, key
    │   └── ReleasedError              retention has released the checkpoint
    ├── ConflictError (4)              another process was first; nothing was changed
    │   ├── BusyError                  another process holds the timeline
    │   ├── FencedError                this attempt was revoked
    │   ├── StoppedError               the pipeline is stopped: it makes no plans
    │   ├── TargetChangedError         others have changed the rows of a published target
    │   └── TooEarlyError              the minimum pause after the newest checkpoint is not over
    ├── GateFailedError (5)            expectations failed; nothing was published
    ├── DataLostError (6)              records were deleted before they were read
    ├── DamagedError (6)               files or objects of a restore point are gone or altered
    └── (1)
        ├── CorruptObjectError         an object in the store does not match its checksum
        ├── StoreError                 the store could not be read or written
        ├── BrokerError                Kafka did not answer, or refused
        │   └── RecordRefusedError     Kafka refuses one record of a sink; the message names it by its id
        ├── RegistryUnavailableError   the schema registry did not answer, or refused
        ├── SchemaChangedError         the schema registry has another schema under an id that is in use
        ├── EngineError                Spark failed
        ├── CheckpointExpiredError     an attempt passed checkpoint_timeout
        ├── DeadLettersExceededError   too large a share of the records could not be applied
        ├── StateOverflowError         a key's state does not fit its type or bound
        ├── ProcessFunctionError       the function of a Process or a FlatMap raised
        └── ReplayDiffersError         computing a checkpoint again gave a different state

A message has three lines: the failure, the intact parts, and the next command to type.
"""

from typing import ClassVar

from tidemark.redaction import redact


class TidemarkError(Exception):
    """The root of all errors of Tidemark. No text in it contains a token or a password.

    >>> from tidemark import TidemarkError
    >>> print(TidemarkError("the bucket is away", next="retry."))
    the bucket is away
    Safe: nothing was written.
    Next: retry.

    Args:
        what: the failure, as one sentence without a full stop.
        safe: the intact parts.
        next: the next command or step.

    Attributes:
        code: exit code of a command that ends with this error.
    """

    code: ClassVar[int] = 1

    def __init__(self, what: str, *, safe: str = "nothing was written.", next: str) -> None:  # noqa: A002
        super().__init__(redact(what))
        self.what = redact(what)
        self.safe = safe
        self.next = redact(next)

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
    """The request makes no sense; the same request will fail again."""

    code = 2


class DeclarationError(UsageError):
    """A pipeline, operator or state class is invalid. Raised when the file is imported."""


class IncompatibleStateError(UsageError):
    """The declaration does not fit the stored state; the message names each operator and field."""


class NameRefusedError(UsageError):
    """The name contains characters that must not reach a path or SQL."""


class NotFoundError(TidemarkError):
    """The pipeline, checkpoint, operator, topic or key does not exist."""

    code = 3


class ReleasedError(NotFoundError):
    """Retention has released the checkpoint: its record remains, but its state cannot be read, restored or pinned."""


class ConflictError(TidemarkError):
    """Another process was first; this call changed nothing."""

    code = 4


class TargetChangedError(ConflictError):
    """Others have changed the rows of a published target, so no difference fits it; a rebuild replaces them."""


class BusyError(ConflictError):
    """Another process currently holds the timeline."""


class FencedError(ConflictError):
    """A later attempt has revoked this one; anything it still writes has no effect."""


class StoppedError(ConflictError):
    """The pipeline is stopped and makes no plans until you resume it; a retry fails the same way."""


class TooEarlyError(ConflictError):
    """The minimum pause after the newest checkpoint is not over; nothing was planned.

    `wait_ms` is the rest of the pause.
    """

    wait_ms: int = 0

    def with_wait(self, wait_ms: int) -> "TooEarlyError":
        """Returns the same error with the rest of the pause."""
        self.wait_ms = wait_ms
        return self


class GateFailedError(TidemarkError):
    """The quality gate rejected the candidate, or could not judge it.

    `verdict` is the complete `tidemark.model.checkpoint.manifest.Verdict`, for the record of the attempt.
    """

    code = 5
    verdict: object | None = None

    def with_verdict(self, verdict: object) -> "GateFailedError":
        """Returns the same error with its verdict."""
        self.verdict = verdict
        return self


class DataLostError(TidemarkError):
    """Records, or a version of a broadcast table, were deleted before they were read, or a topic was recreated."""

    code = 6


class DamagedError(TidemarkError):
    """Files or objects that a restore point needs are missing or altered; nothing was started from it."""

    code = 6


class CorruptObjectError(TidemarkError):
    """An object in the store is truncated, altered, or in an unknown format."""


class StoreError(TidemarkError):
    """The checkpoint store could not be read or written."""


class BrokerError(TidemarkError):
    """Kafka did not answer in time, or refused the request."""


class RecordRefusedError(BrokerError):
    """Kafka refuses one record of a sink, and a retry will not help: it is too large, or breaks a rule of the topic.

    Kafka acknowledged every record before it.

    Attributes:
        sink: name of the sink.
        record: id of the record, as in the header `tidemark-id`.
        size: bytes of its key and value.
        why: the message from Kafka.
    """

    sink: str = ""
    record: str = ""
    size: int = 0
    why: str = ""


class RegistryUnavailableError(TidemarkError):
    """The schema registry did not answer after several tries, or refused the request; a later attempt asks again."""


class SchemaChangedError(TidemarkError):
    """The schema registry has another schema under an id by which records were decoded; no retry will help."""


class EngineError(TidemarkError):
    """Spark failed while it executed a checkpoint."""


class CheckpointExpiredError(TidemarkError):
    """An attempt exceeded the pipeline's `checkpoint_timeout` before it was sealed."""


class DeadLettersExceededError(TidemarkError):
    """The share of records that could not be applied exceeds `max_dead_letters`."""


class StateOverflowError(TidemarkError):
    """A key's state does not fit its type or its bound; the message names the key."""


class ProcessFunctionError(TidemarkError):
    """The function of a `Process` or a `FlatMap` raised, or yielded something other than its `emits` class.

    Attributes:
        key: the key, as text; empty for a `FlatMap`, which has none.
        place: topic, partition, offset and path of the last record passed to the function.
        kind: class name of the exception.
        trace: its traceback, with the frames of the function only.
    """

    key: str = ""
    place: tuple[str, int, int, tuple[int, ...]] = ("", 0, 0, ())
    kind: str = ""
    trace: str = ""


class ReplayDiffersError(TidemarkError):
    """Computing a checkpoint again from its own plan gave a different state."""


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
"""Exit codes of the command line; a test compares them with the table in the documentation."""
