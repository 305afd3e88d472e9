"""Timelines, savepoints, and what restores, forks, promotes, backfills and stops report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tidemark.answers.checkpoint_facts import LossFacts, OffsetSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineFacts:
    """A timeline: its fate, the checkpoint that it began at, and its newest checkpoint."""

    timeline: str
    fate: str
    is_live: bool
    parent: str | None
    began_at: str | None
    why: str | None
    savepoint: str | None
    began: str | None
    checkpoints: int
    newest: str | None
    successor: str | None
    left_behind: Mapping[str, int]
    renamed: Mapping[str, str]
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedCheckpoint:
    """A savepoint in the tree of timelines, and the id of the checkpoint that it pins."""

    name: str
    checkpoint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineNode(TimelineFacts):
    """A timeline in the tree, with the savepoints that pin its checkpoints.

    `newest_released`: retention has released its newest checkpoint, so it can be neither restored nor compared.
    """

    savepoints: Sequence[PinnedCheckpoint]
    newest_released: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointFacts:
    """A savepoint; times are ISO 8601 in UTC.

    `logical_time` and `full_bytes` are null if the manifest of the pinned checkpoint cannot be read.
    """

    name: str
    pipeline: str
    checkpoint: str
    timeline: str
    logical_time: str | None
    full_bytes: int | None
    owner: str
    note: str
    created_at: str
    expires_at: str | None
    expired: bool
    drained: bool
    revision: int
    changed_at: str
    disposed: bool
    claimed_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DisposalPreview:
    """A disposal: the other savepoints that pin the checkpoint, and the reasons that forbid it."""

    name: str
    checkpoint: str
    also_pinned_by: Sequence[str]
    needed_by: Sequence[str]
    disposed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPreview:
    """A sink before a restore: the rows that it got since the checkpoint, and whether they can be taken back.

    `rows_since` is null if Tidemark does not keep the rows, as for a topic.
    """

    name: str
    rows_since: int | None
    goes_back: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePreview:
    """A restore as manifests alone describe it.

    Attributes:
        checkpoint: the checkpoint that the new live timeline begins at.
        timeline, logical_time: of that checkpoint.
        savepoint: the savepoint that was asked for.
        drained: the pipeline was stopped with that savepoint for good.
        closes: the timeline that is live now.
        left: checkpoints that leave the live timeline, newest first; they stay restorable.
        records, work_duration: sums over these checkpoints.
        reread: offsets that are read again; `reread_duration` is their share of the work.
        read_again: these offsets per partition.
        sinks: the sinks of the live timeline.
    """

    checkpoint: str
    timeline: str
    logical_time: str
    savepoint: str | None
    drained: bool
    closes: str
    left: Sequence[str]
    records: int
    work_duration: int
    reread: int
    reread_duration: int
    read_again: Mapping[str, OffsetSpan]
    sinks: Sequence[SinkPreview]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreFacts:
    """A restore, checked against the declaration and Kafka: `lost` are offsets that Kafka has no more.

    `repeats` are checkpoints that the next run repeats one by one, because sinks keep their closed windows. `sinks`
    says per sink what happens to its rows, `left_behind` counts the rows of operators that are gone.
    """

    checkpoint: str
    savepoint: str | None
    closes: str
    left: Sequence[str]
    read_again: Mapping[str, OffsetSpan]
    repeats: Sequence[str]
    lost: Sequence[LossFacts]
    sinks: Mapping[str, str]
    left_behind: Mapping[str, int]
    renamed: Mapping[str, str]
    claim: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkFacts:
    """A fork: the checkpoint that it begins at, and the rows of operators that are gone."""

    timeline: str
    checkpoint: str
    savepoint: str | None
    note: str | None
    left_behind: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteFacts:
    """A promote: the timeline that it closes, and the checkpoints of that timeline, replaced or left behind."""

    timeline: str
    closes: str
    replaced: Sequence[str]
    left: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseFacts:
    """The end of a timeline: the savepoints that pin its checkpoints, the forks that begin at them.

    `gives_back` names a savepoint that the timeline had claimed, and that is free again.
    """

    timeline: str
    checkpoints: Sequence[str]
    pinned_by_savepoints: Sequence[str]
    begun_there: Sequence[str]
    gives_back: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPreview:
    """A backfill as manifests alone describe it: repeated checkpoints, oldest first, their records and work (ms)."""

    checkpoint: str
    savepoint: str | None
    repeats: Sequence[str]
    to: str
    records: int
    work_duration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillStep:
    """A completed step of a backfill, and the checkpoints that it repeats."""

    checkpoint: str
    repeats: Sequence[str]
    records: int
    dead_letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillFacts:
    """A backfill: steps done and left; `unsent` lists per sink the checkpoints whose records were not delivered."""

    fork: str
    from_: str
    to: str
    begun: bool
    done: Sequence[BackfillStep]
    left: Sequence[Sequence[str]]
    promoted: bool
    unsent: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDifference:
    """In how many keys a field differs."""

    keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberDifference(FieldDifference):
    """As `FieldDifference`, of a field that is a number: the sum of all differences, and the largest one."""

    sum: int | float | Decimal
    largest: int | float | Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDifference:
    """How the state of an operator differs between a live checkpoint and the one that repeats it on a fork."""

    uid: str
    live: str
    fork: str
    inserted: int
    deleted: int
    changed: int
    equal: int
    fields: Mapping[str, FieldDifference]
    added: Sequence[str]
    removed: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkDifference:
    """How the rows that a fork has emitted to a sink differ from those of the live timeline, counted by their ids.

    `examples` are the first rows that differ: `change` (inserted, deleted or changed), `before` and `after`.
    """

    uid: str
    sink: str
    inserted: int
    deleted: int
    changed: int
    equal: int
    examples: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopFacts:
    """A stop: the savepoint and its checkpoint, and checkpoints that were in progress or completed meanwhile.

    `drain` is the checkpoint that has closed all windows; null if the pipeline was not drained or has no windows.
    """

    pipeline: str
    stopped: bool
    why: str
    savepoint: str | None
    checkpoint: str | None
    drained: bool
    in_progress: str | None
    followed_by: str | None
    drain: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineFacts:
    """Whether a pipeline is late; `age` and `deadline` repeat the milliseconds in words.

    `due_ms` is the start of the first scheduled run after the newest checkpoint, if no deadline is set.
    """

    pipeline: str
    late: bool
    stopped: bool
    newest: str | None
    failures_in_row: int
    age_ms: int | None
    deadline_ms: int | None
    due_ms: int | None
    late_since_ms: int | None
    age: str | None
    deadline: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProducts:
    """The checkpoints, timelines and savepoints of one pipeline that a DAG run created."""

    pipeline: str
    checkpoints: Sequence[int]
    timelines: Sequence[str]
    savepoints: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedColumn:
    """A column and its type in DuckDB's SQL."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryableState:
    """The state of one operator, as a transform sees it.

    Attributes:
        uid: the operator.
        kind: `fold` or `process`.
        rows, bytes: stored at the restore point; 0 if it has no such operator.
        key_groups: number of key groups; that of the newest plan if the restore point has no such operator.
        keys: the key columns.
        reads: columns that a query reads from it; empty if the restore point has no such operator.
        returns: columns that a query for it must return, as the newest plan declares them.
        is_declared: whether the newest plan has the operator; otherwise a query can only read it.
        refused: why its state cannot be written; null if it can.
    """

    uid: str
    kind: str
    rows: int
    bytes: int
    key_groups: int
    keys: Sequence[str]
    reads: Sequence[TypedColumn]
    returns: Sequence[TypedColumn]
    is_declared: bool
    refused: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryableStates:
    """The states of a restore point, which a transform or a patch begins with.

    Attributes:
        checkpoint: the checkpoint.
        timeline, logical_time: of that checkpoint.
        savepoint: the savepoint that was asked for.
        drained: the pipeline was stopped with that savepoint for good.
        newest: the newest plan, whose declaration decides which columns a query must return.
        states: the operators with state, of the restore point and of the newest plan.
    """

    checkpoint: str
    timeline: str
    logical_time: str
    savepoint: str | None
    drained: bool
    newest: str
    states: Sequence[QueryableState]
