"""One checkpoint with its operators, and the configuration of a pipeline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.answers.checkpoint_facts import SourceWatermark
from tidemark.answers.checkpoint_overview import CheckpointLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Externalization:
    """Whether manifests outlive a stop of the pipeline: they always do."""

    enabled: bool
    delete_on_cancellation: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldConfig:
    """A field of state."""

    name: str
    kind: str
    ttl: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputConfig:
    """An output of an operator after the first one, with its sink: its uid, the sink, and the columns of its rows."""

    uid: str
    sink: str
    sink_columns: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorConfig:
    """An operator as the newest manifest declares it; `more_sinks` are those of its outputs after the first one."""

    uid: str
    kind: str
    keys: Sequence[str]
    fields: Sequence[FieldConfig]
    clock: str
    key_groups: int
    sink: str | None
    sink_columns: Sequence[str]
    more_sinks: Sequence[OutputConfig]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """Flink's configuration of checkpoints, as far as it applies. Spans are in ms.

    The DAG decides `interval` (its schedule), `timeout`, `min_pause`, `tolerable_failed_checkpoints` and `retries`;
    they are null if Airflow knows no such DAG.
    """

    mode: str
    interval: str | None
    timeout: int | None
    min_pause: int | None
    deadline: int | None
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    tolerable_failed_checkpoints: int | None
    retries: int | None
    dag_id: str | None
    is_paused: bool | None
    next_run: str | None
    as_of: str
    isolation: str
    fingerprint: str
    sources: Mapping[str, Sequence[str]]
    operators: Sequence[OperatorConfig]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """A segment of state: the rows of the checkpoints in `(after, through]`, in one version of a table."""

    path: str
    table: str
    version: int
    after: int
    through: int
    rows: int
    bytes: int
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSegments:
    """The table of a sink as of a checkpoint."""

    name: str
    segments: Sequence[SegmentFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsPerFile:
    """Rows per file of a run. Each Spark task writes one file, so the spread shows the skew."""

    files: int
    min: int
    avg: float
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedCompaction:
    """A compaction that a checkpoint adopted: the checkpoint that it read, and the sizes before and after."""

    record: str
    checkpoint: str
    written_bytes: int | None
    bytes_before: int
    bytes_after: int
    rows_before: int
    rows_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLayers:
    """The layers of an operator's state. All fields but `compaction` are null if the tables' logs are gone.

    Attributes:
        live_runs: runs that are not compacted yet.
        deepest_level: 0 if there are only runs.
        run_rows: rows per file of the run that the checkpoint wrote.
        compaction: the one that the checkpoint adopted.
    """

    live_runs: int | None
    deepest_level: int | None
    run_rows: RowsPerFile | None
    compaction: AdoptedCompaction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDetails:
    """The acknowledgement of an operator, and the layout of its state on disk; timings in milliseconds.

    `is_clocked` says whether it has windows or timers; its `frontier` is null before the first move. `late` counts the
    records whose window had closed, `fired` timers.
    """

    uid: str
    kind: str
    checkpointed_size: int
    state_size: int
    work_duration: int
    rows: int
    files: int
    levels: int
    segments: Sequence[SegmentFacts]
    keys: int
    read: int
    applied: int
    filtered: int
    dead_lettered: int
    late: int
    fired: int
    is_clocked: bool
    frontier: str | None
    dead_letter_rows: int
    emitted: int
    sink: SinkSegments | None
    more_sinks: Sequence[SinkSegments]
    operator_state: Mapping[str, int]
    timings: Mapping[str, int]
    live_runs: int | None
    deepest_level: int | None
    run_rows: RowsPerFile | None
    compaction: AdoptedCompaction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """Offsets `[start, end)` of a partition; `pending` counts the offsets that the log held beyond them."""

    partition: str
    topic: str
    start: int
    end: int
    pending: int
    watermark: str | None
    topic_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationResult:
    """The verdict of the gate on one expectation."""

    frame: str
    type: str
    success: bool
    severity: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenProgress:
    """Progress of an open checkpoint: `step` is `planned`, `running` or `sealed`; `elapsed` counts ms since the plan.

    `acknowledged` lists the operators whose run the newest attempt has committed; once it is sealed, all of them.
    """

    step: str
    attempt: int
    elapsed: int
    acknowledged: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """The checkpoint that read the offsets of a failed one: the next plan of the same place in the timeline.

    `same_offsets`: it ends at the same offsets too; otherwise it begins at the same ones.
    """

    id: int
    name: str
    status: str
    same_offsets: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDetails(CheckpointLine):
    """One checkpoint with all details; `previous` and `next` are the ids of its neighbours.

    `successor`: of a failed one, null if its offsets were not planned again.

    `drains`: it closes all windows, for `tidemark stop --drain`.

    `released`: of its parent and of those that it repeats, the ones that retention has released.
    """

    slot: str
    ranges: Sequence[PartitionRange]
    isolation: str
    fingerprint: str
    adopted: Mapping[str, str]
    losses: Sequence[str]
    left_behind: Mapping[str, int]
    previous: int | None
    next: int | None
    progress: OpenProgress | None
    drains: bool
    released: Sequence[int]
    successor: Successor | None = None
    watermark: str | None = None
    source_watermarks: Mapping[str, SourceWatermark]
    covered_until: str | None = None
    expectations: Sequence[ExpectationResult]
    timings: Mapping[str, int]
    tasks: Sequence[OperatorDetails]


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionReason:
    """Dead letters for one reason."""

    reason: str
    letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRejections:
    """Dead letters of one operator, of the records that it read, by reason, the most frequent one first."""

    uid: str
    read: int
    letters: int
    reasons: Sequence[RejectionReason]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejections:
    """Dead letters of a checkpoint by operator and reason. `records`: one that several operators rejected counts once.

    Operators that rejected nothing are left out.
    """

    checkpoint: str
    records: int
    operators: Sequence[OperatorRejections]


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortFacts:
    """A checkpoint in progress: the offsets that its plan reads, the time since its trigger, and whether it ended."""

    checkpoint: str
    timeline: str
    offsets: int
    elapsed: int
    aborted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTimeFacts:
    """What becomes due at a time; `some` are up to three of the keys, and the name of a timer before its key.

    `overdue`: a slower partition or input holds the frontier back, and the furthest ones have passed that time.
    """

    at: str
    count: int
    overdue: bool
    some: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTimes:
    """What waits for the frontier of an operator at a checkpoint.

    Attributes:
        uid: the operator.
        what: `windows` that close, `timers` that fire, or `rows` of an interval join, whose time ends.
        frontier: everything up to it has closed or fired; None = nothing has yet.
        total: the number of all that wait.
        overdue: how many of them are overdue.
        last: the last time at which one is due; null if nothing waits.
        first: the first times.
    """

    uid: str
    what: str
    frontier: str | None
    total: int
    overdue: int
    last: str | None
    first: Sequence[DueTimeFacts]
