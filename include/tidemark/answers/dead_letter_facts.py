"""Dead letters of the live timeline: their totals, their records, and the requests to redrive them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tidemark.answers.row_sources import ShownDeadLetter, ShownText

RequestState = Literal["waiting", "redriven", "unneeded", "withdrawn", "void"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterTotals:
    """Dead letters of one operator for one reason.

    Attributes:
        uid: the operator.
        reason: why it could not use the records.
        read: records that the operator has read on the live timeline.
        letters: records that are dead letters still.
        redriven: rows of records that the operator got again; one that was refused again is a letter of a later
            checkpoint.
        first: name of the first checkpoint with such a letter.
        last: name of the last one.
    """

    uid: str
    reason: str
    read: int
    letters: int
    redriven: int
    first: str
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveStatus:
    """A request to redrive dead letters.

    Attributes:
        number: its number.
        uid: the operator.
        letters: how many it asked for.
        state: `waiting` = the next checkpoint takes it up; `redriven` = `checkpoint` did; `unneeded` = a checkpoint
            found none of them to redrive; `withdrawn`; `void` = its timeline ended before.
        checkpoint: name of the checkpoint that redrove letters for it.
        redriven: how many letters the operator got again for it; 0 until a checkpoint takes it up.
        rejected: how many of those it rejected again; None if it has another uid by now.
        timeline: timeline of the request.
        owner: the person who asked.
        note: for people.
        at: when it was made.
    """

    number: int
    uid: str
    letters: int
    state: RequestState
    checkpoint: str | None
    redriven: int
    rejected: int | None
    timeline: str
    owner: str
    note: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterOverview:
    """The dead letters of a pipeline, and the requests to redrive them, newest first."""

    letters: Sequence[DeadLetterTotals]
    requests: Sequence[RedriveStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead letter.

    Attributes:
        partition: topic and partition of the record.
        offset: its offset.
        path: path of the record, if another operator emitted it; empty if its operator reads it from Kafka.
        checkpoint: name of the checkpoint that refused it.
        timestamp: timestamp of the record.
        reason: why it was refused.
        today: why the current declaration would refuse it, `filtered` if it leaves it out; None if it would be applied.
        fields: its fields as the current declaration decodes them; None if it does not.
        key: the message key.
        value: the value.
    """

    partition: str
    offset: int
    path: Sequence[int]
    checkpoint: str
    timestamp: str
    reason: str
    today: str | None
    fields: Mapping[str, Any] | None
    key: ShownText | None
    value: ShownText | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivePreview:
    """The effect of a redrive.

    Attributes:
        uid: the operator.
        timeline: the timeline whose next checkpoint redrives the letters.
        letters: number of letters.
        reasons: their number by the reason of the refusal.
        applied: how many the current declaration would apply.
        refused: number of the others, by the reason of today.
        arrival: what makes the answer of the operator depend on when records arrive.
        request: number of the request; None for a dry run.
    """

    uid: str
    timeline: str
    letters: int
    reasons: Mapping[str, int]
    applied: int
    refused: Mapping[str, int]
    arrival: Sequence[str]
    request: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLetter(ShownDeadLetter):
    """A dead letter of the live timeline; `checkpoint` is the name of the checkpoint that rejected it."""

    checkpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLetterPage:
    """Dead letters of one operator that were not redriven, newest first; `matching` counts all of them."""

    uid: str
    matching: int
    rows: Sequence[LiveLetter]
