"""Two restore points compared: the keys of states and the rows of sinks that differ, and the first of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.answers.checkpoint_overview import AnswerTrouble


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCheckpoint:
    """One side of a comparison.

    Attributes:
        asked: the restore point as the request names it.
        id, name: the checkpoint that it is.
        timeline: the timeline of the checkpoint.
        logical_time: ISO 8601 in UTC.
        trigger_timestamp: in milliseconds since the epoch.
        parent: id of the checkpoint before it.
        replays: ids that it repeats on a fork.
    """

    asked: str
    id: int
    name: str
    timeline: str
    logical_time: str
    trigger_timestamp: int
    parent: int | None
    replays: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChange:
    """A field of state that differs in some keys of both sides.

    `sum` is the sum of all differences, right − left, and `largest` the largest absolute one. Both are null if the
    field is no number.
    """

    name: str
    keys: int
    sum: int | float | str | None
    largest: int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChange:
    """A key whose state differs.

    Attributes:
        key: the values of its key columns.
        change: `inserted`, `changed` or `deleted`.
        before: the fields on the left; null if the key is not there.
        after: the fields on the right; null if the key is not there.
        changed: the fields that differ, of a changed key.
        checkpoint: id of the checkpoint that wrote the value on the right; null for a deleted key.
    """

    key: Mapping[str, Any]
    change: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    changed: Sequence[str]
    checkpoint: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorComparison:
    """The state of one operator on both sides.

    Attributes:
        uid: the operator.
        status: `compared`; `left_only` or `right_only`, if only one side has it; `other_keys`, if both key it
            differently; `not_compared`, with the reason in `trouble`.
        keys: names of its key columns.
        inserted: keys on the right only.
        deleted: keys on the left only.
        changed: keys on both sides with different values.
        equal: keys that were written since the common ancestor and have the same values.
        unread: keys that were written, but whose values were not compared, because the time was over; 0 = every
            count is exact.
        columns: the fields that differ.
        added: fields on the right only.
        removed: fields on the left only.
        rows: the first keys that differ, in order of keys.
        trouble: why it was not compared.
    """

    uid: str
    status: str
    keys: Sequence[str] = ()
    inserted: int = 0
    deleted: int = 0
    changed: int = 0
    equal: int = 0
    unread: int = 0
    columns: Sequence[ColumnChange] = ()
    added: Sequence[str] = ()
    removed: Sequence[str] = ()
    rows: Sequence[KeyChange] = ()
    trouble: AnswerTrouble | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRowChange:
    """A row of a sink that differs: `inserted`, `changed` or `deleted`; `changed` names the columns that differ."""

    change: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    changed: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkComparison:
    """The rows of one sink on both sides, counted by their ids.

    Attributes:
        uid: the operator or output.
        sink: the name of the sink.
        status: as in `OperatorComparison`; also `keeps_no_rows`, if rows are sent and not kept.
        inserted: rows on the right only.
        deleted: rows on the left only.
        changed: rows of the same id with another value.
        equal: rows emitted on both sides since the common ancestor, with the same values.
        rows: the first rows that differ, in order of their ids.
        trouble: why it was not compared.
    """

    uid: str
    sink: str
    status: str
    inserted: int = 0
    deleted: int = 0
    changed: int = 0
    equal: int = 0
    rows: Sequence[SinkRowChange] = ()
    trouble: AnswerTrouble | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointComparison:
    """Two restore points, operator by operator and sink by sink.

    `ancestor` is the id of their newest common ancestor, which may be one of them; null if none is left.
    """

    left: ComparedCheckpoint
    right: ComparedCheckpoint
    ancestor: int | None
    operators: Sequence[OperatorComparison]
    sinks: Sequence[SinkComparison]
