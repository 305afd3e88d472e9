"""One checkpoint with its operators, and how a pipeline is set."""

from pydantic import BaseModel

from tidemark_ui.models.overview import Line


class Externalization(BaseModel):
    """Manifests stay when a pipeline is stopped."""

    enabled: bool
    delete_on_cancellation: bool


class FieldConfig(BaseModel):
    """A field of state."""

    name: str
    kind: str
    ttl: str | None


class OperatorConfig(BaseModel):
    """An operator as the newest manifest has it."""

    uid: str
    kind: str
    keys: list[str]
    fields: list[FieldConfig]
    clock: str
    key_groups: int
    sink: str | None
    sink_columns: list[str]


class Config(BaseModel):
    """Flink's configuration of checkpoints, as far as it applies; `interval` is the schedule, spans are in ms."""

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
    sources: dict[str, list[str]]
    operators: list[OperatorConfig]


class Segment(BaseModel):
    """A part of a handle: rows of checkpoints in (after, through] of one table at one version."""

    path: str
    table: str
    version: int
    after: int
    through: int
    rows: int
    bytes: int
    files: int


class SinkFacts(BaseModel):
    """A sink after a checkpoint."""

    name: str
    segments: list[Segment]


class Spread(BaseModel):
    """Rows per file of a run: a file is what one task of Spark wrote, so the spread is its skew."""

    files: int
    min: int
    avg: float
    max: int


class Compaction(BaseModel):
    """A compaction that a checkpoint adopted: what it read and wrote."""

    record: str
    checkpoint: str
    written_bytes: int | None
    bytes_before: int
    bytes_after: int
    rows_before: int
    rows_after: int


class Task(BaseModel):
    """What an operator acknowledged, and how its state lies on disk; timings in milliseconds."""

    uid: str
    kind: str
    checkpointed_size: int
    state_size: int
    work_duration: int
    rows: int
    files: int
    levels: int
    segments: list[Segment]
    keys: int
    read: int
    applied: int
    dead_lettered: int
    dead_letter_rows: int
    emitted: int
    sink: SinkFacts | None
    operator_state: dict[str, int]
    timings: dict[str, int]
    live_runs: int | None
    deepest_level: int | None
    run_rows: Spread | None
    compaction: Compaction | None


class Range(BaseModel):
    """Offsets `[start, end)` of a partition; `pending` is what the log held beyond them."""

    partition: str
    topic: str
    start: int
    end: int
    pending: int
    watermark: str | None
    topic_id: str | None


class Expectation(BaseModel):
    """What the gate said of one expectation."""

    frame: str
    type: str
    success: bool
    severity: str
    detail: str


class Interval(BaseModel):
    """A data interval."""

    start: str
    end: str


class Progress(BaseModel):
    """How far a checkpoint under way is: `planned`, `running` or `sealed`; `elapsed` in ms since it was planned.

    `acknowledged` are the operators whose run the newest attempt has committed, or all once it is sealed.
    """

    step: str
    attempt: int
    elapsed: int
    acknowledged: list[str]


class Details(Line):
    """One checkpoint, whole; `previous` and `next` are ids of its neighbours."""

    slot: str
    ranges: list[Range]
    interval: Interval | None
    isolation: str
    fingerprint: str
    adopted: dict[str, str]
    losses: list[str]
    left_behind: dict[str, int]
    previous: int | None
    next: int | None
    progress: Progress | None
    watermark: str | None = None
    covered_until: str | None = None
    expectations: list[Expectation]
    timings: dict[str, int]
    tasks: list[Task]
