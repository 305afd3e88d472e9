"""Records on their way through a process function, and its output."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidemark.model.core.offsets import Path
from tidemark.processing.live_operator_state import TaskState


class PositionedRecord(NamedTuple):
    """A record of a key: its origin, its event time, its access time, and the record itself.

    `path` is empty for a record of a source. `event_time` is in microseconds since the epoch, `at` in milliseconds on
    the operator's clock. A timer that fires has a position, too, and no record (adr/0056).
    """

    topic: str
    partition: int
    offset: int
    path: Path
    event_time: int
    at: int
    record: Any


class Emitted(NamedTuple):
    """A record that a function yielded: position of its source record, its path, its fields in stored form.

    `output` is the number of the output of its operator; records are numbered per output.
    """

    topic: str
    partition: int
    offset: int
    path: Path
    event_time: int
    fields: tuple[Any, ...]
    output: int = 0


class FailedRecord(NamedTuple):
    """A record that a function failed on: its position, and the reason."""

    topic: str
    partition: int
    offset: int
    path: Path
    reason: str


@dataclass
class Output:
    """The output of keys so far, until it is collected.

    Attributes:
        rows: stored rows, in the columns of `run_columns`.
        emitted: records for sinks and for operators that read this one.
        letters: failed records, if the operator turns them into dead letters.
        task: operator state of the task that processes the keys; None if none is declared. It is never collected.
        fired: how many timers have fired.
    """

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    emitted: list[Emitted] = field(default_factory=list)
    letters: list[FailedRecord] = field(default_factory=list)
    task: TaskState | None = None
    fired: int = 0
