"""The overview of a pipeline: counts, summaries, history, health, and the points of the charts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.answers.pipeline_verdict import PipelineVerdict, ScheduleFacts, ScopeFacts
from tidemark.answers.run_facts import RunFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFacts:
    """A pipeline that you can choose; the fields of its DAG are null if Airflow knows none.

    `verdict` is null unless it was asked for.
    """

    name: str
    dag_id: str | None
    is_paused: bool | None
    next_run: str | None
    interval: str | None
    may_trigger: bool
    may_see_payloads: bool
    schedule: ScheduleFacts | None
    verdict: PipelineVerdict | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountsByStatus:
    """How many of the checkpoints read so far have each status."""

    total: int
    in_progress: int
    completed: int
    failed: int
    restored: int
    damaged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSummary:
    """One measure over all completed checkpoints that are not empty."""

    min: float
    max: float
    avg: float
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySummary:
    """Sizes in bytes and durations in milliseconds, over `measured` checkpoints; `empty` ones are left out."""

    checkpointed_size: MeasureSummary
    state_size: MeasureSummary
    end_to_end_duration: MeasureSummary
    work_duration: MeasureSummary
    processed_data: MeasureSummary
    records: MeasureSummary
    measured: int
    empty: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpan:
    """How many partitions of a topic have a range, and how many offsets the ranges span."""

    partitions: int
    span: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCount:
    """How many of all expectations held."""

    held: int
    expectations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataInterval:
    """A data interval."""

    start: str
    end: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointLine:
    """A checkpoint of the history: Flink's fields, then Tidemark's. Times are milliseconds since the epoch."""

    id: int
    status: str
    is_savepoint: bool
    checkpoint_type: str
    trigger_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    latest_ack_timestamp: int | None
    work_duration: int
    processed_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int
    external_path: str | None
    discarded: bool
    failure_timestamp: int | None
    failure_message: str | None
    failure_reason: str | None
    failure_next: str | None
    savepoints: Sequence[str]
    name: str
    timeline: str
    sequence: int
    parent: int | None
    attempt: int
    origin: str
    logical_time: str | None
    interval: DataInterval | None
    records: int
    dead_letters: int
    dead_letters_at_most: bool
    keys: int
    emitted: int
    offsets: Mapping[str, TopicSpan]
    pending_records: int
    gate: GateCount | None
    replays: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestRestore:
    """The newest restore: the checkpoint that it started from, and the timeline that it created."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str | None
    timeline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestCheckpoints:
    """The newest of each kind."""

    completed: CheckpointLine | None
    savepoint: CheckpointLine | None
    failed: CheckpointLine | None
    restored: LatestRestore | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReason:
    """Why no checkpoint is planned."""

    why: str
    savepoint: str | None
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineHealth:
    """Health of the live timeline: `age`, `deadline` and `now` in milliseconds, `lag` in offsets."""

    live: str | None
    newest: int | None
    age: int | None
    deadline: int | None
    late: bool
    lag: int | None
    failures_in_row: int
    stopped: StopReason | None
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadIds:
    """How many of all ids the server has read; a page polls until it has read all of them."""

    read: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTrouble:
    """Why an answer is incomplete."""

    what: str
    safe: str
    next: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsOverview:
    """The overview of a pipeline. `matching` counts the checkpoints that match the query, `history` is a page of them.

    `trouble` names a damaged object of a timeline or a savepoint; timelines and savepoints are left out then. `run` is
    the progress of a run that continues after the newest checkpoint; None if that one ended it, or was its only one.
    `counts`, `summary` and `latest` are about `scope`; `verdict`, `health` and `run` about the live timeline.
    """

    pipeline: str
    verdict: PipelineVerdict
    scope: ScopeFacts
    counts: CountsByStatus
    summary: HistorySummary
    latest: LatestCheckpoints
    history: Sequence[CheckpointLine]
    matching: int
    health: PipelineHealth
    indexed: ReadIds
    trouble: AnswerTrouble | None
    run: RunFacts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartPoint:
    """A checkpoint in the charts: `offsets` read and `pending` per partition, partitions without any left out.

    `savepoints` pin it, and `compacted` are the operators whose compactions it adopted.
    """

    id: int
    timeline: str
    parent: int | None
    trigger_timestamp: int
    end_to_end_duration: int
    work_duration: int
    checkpointed_size: int
    state_size: int
    records: int
    dead_letters: int
    dead_letters_at_most: bool
    savepoints: Sequence[str]
    compacted: Sequence[str]
    offsets: Mapping[str, int]
    pending_records: int
    pending: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartMark:
    """An event between the checkpoints of a chart: `kind` is `failed`, `restore` or `fork`.

    `label` is the reason of a failure, or the timeline that began at `checkpoint`.
    """

    kind: str
    at: int
    checkpoint: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSeries:
    """The newest of the `of` completed checkpoints of a scope, oldest first, and the events since the first of them."""

    scope: ScopeFacts
    points: Sequence[ChartPoint]
    marks: Sequence[ChartMark]
    of: int
