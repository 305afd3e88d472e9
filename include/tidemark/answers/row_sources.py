"""The source of rows: the checkpoint that changed or emitted them, its offsets, and the records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRange:
    """Offsets `[start, end)` that a checkpoint read, or redrove, to change a row."""

    partition: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOrigin:
    """The checkpoint that changed a row. If its manifest is gone it is not `known`: only id and name are set.

    `redriven` are dead letters of earlier checkpoints that the operator got again.
    """

    checkpoint: int
    name: str
    known: bool
    run: str | None = None
    timeline: str | None = None
    parent: int | None = None
    logical_time: str | None = None
    ranges: Sequence[ChangedRange] = ()
    redriven: Sequence[ChangedRange] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrigin:
    """A row of state and its origin."""

    uid: str
    key: Sequence[str]
    as_of: str
    row: Mapping[str, Any]
    changed: ChangeOrigin


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRow:
    """What became due when a row was emitted: no single record, but a window, a pair, or a timer.

    Attributes:
        operator: the operator with the frontier; a row may have gone through others behind it.
        what: `window`, `timer` or `pair`.
        at: the end of the window, the time of the timer, or the event time of the pair.
        key: its key, with the bounds of a window; empty if the row does not have all of it.
    """

    operator: str
    what: str
    at: str
    key: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRowOrigin:
    """A row of a sink, and the record that it was emitted for; `path` distinguishes the rows of one record.

    With `due`, no record has the position of the row.
    """

    row: Mapping[str, Any]
    uid: str
    partition: str
    offset: int
    path: Sequence[int]
    due: DueRow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOrigin:
    """Rows of a sink that one checkpoint emitted; `more` if there are further ones."""

    sink: str
    uid: str
    more: bool
    changed: ChangeOrigin
    rows: Sequence[SinkRowOrigin]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
    """Bytes as text. `size` counts all of them; if the text was `cut`, it shows the first part only."""

    text: str
    encoding: str
    size: int
    cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecord:
    """A record of a topic; `dead_letters` gives per operator the reason why it could not be applied.

    `filtered`: the operator that was asked for leaves it out by its condition.
    """

    partition: str
    offset: int
    timestamp: str | None
    key: ShownText | None
    value: ShownText | None
    dead_letters: Mapping[str, str]
    filtered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRange:
    """A requested range, the part of it that Kafka still has, and why the rest is gone."""

    partition: str
    start: int
    end: int
    kept_start: int
    kept_end: int
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage:
    """A bounded read; pass `next` as `after` to continue it."""

    checkpoint: str
    by_key: bool
    ranges: Sequence[KeptRange]
    records: Sequence[ShownRecord]
    looked_at: int
    stopped_by: str
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDeadLetter:
    """A record that an operator could not apply; `path` is empty if the operator reads it from Kafka."""

    partition: str
    offset: int
    path: Sequence[int]
    timestamp: str
    reason: str
    key: ShownText | None
    value: ShownText | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPage:
    """Dead letters of one operator in one checkpoint; `matching` counts all of them."""

    checkpoint: str
    uid: str
    matching: int
    rows: Sequence[ShownDeadLetter]
