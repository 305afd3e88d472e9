"""Records on their way through a process function, and what comes of them."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidemark.processing.live_operator_state import TaskState


class Placed(NamedTuple):
    """A record of a key: where it is from, when it happened, when it accesses state, itself.

    `n` is 0 for a record of a source; a record that another operator emitted carries that one's number. `event_time`
    is handed on as it came. `at` is in milliseconds on the operator's clock.
    """

    topic: str
    partition: int
    offset: int
    n: int
    event_time: Any
    at: int
    record: Any


class Emitted(NamedTuple):
    """A record that a function yielded: the position it is due to, its number there, its fields in stored form."""

    topic: str
    partition: int
    offset: int
    n: int
    event_time: Any
    fields: tuple[Any, ...]


class FailedRecord(NamedTuple):
    """A record that a function failed on: its position, and why."""

    topic: str
    partition: int
    offset: int
    n: int
    reason: str


@dataclass
class Output:
    """What has come of keys so far, until somebody takes it.

    Attributes:
        rows: stored rows, in the columns of `run_columns`.
        emitted: records for sinks and for operators behind this one.
        letters: records that failed, where the operator makes dead letters of them.
        task: operator state of the task that works through the keys; None where none is declared. It is not taken.
    """

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    emitted: list[Emitted] = field(default_factory=list)
    letters: list[FailedRecord] = field(default_factory=list)
    task: TaskState | None = None
