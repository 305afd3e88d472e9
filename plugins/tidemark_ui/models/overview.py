"""The page of a pipeline: counts, sums, history, health, points of the charts."""

from pydantic import BaseModel


class PipelineFacts(BaseModel):
    """A pipeline to choose; the DAG's fields are empty where Airflow knows none."""

    name: str
    dag_id: str | None
    is_paused: bool | None
    next_run: str | None
    interval: str | None
    may_trigger: bool


class Counts(BaseModel):
    """How many checkpoints came to what; of all that were read."""

    total: int
    in_progress: int
    completed: int
    failed: int
    restored: int
    damaged: int


class Quantiles(BaseModel):
    """Of one measure, over all completed checkpoints that are not empty."""

    min: float
    max: float
    avg: float
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float


class Summary(BaseModel):
    """Sizes in bytes, durations in milliseconds; `measured` checkpoints, without those that are `empty`."""

    checkpointed_size: Quantiles
    state_size: Quantiles
    end_to_end_duration: Quantiles
    work_duration: Quantiles
    processed_data: Quantiles
    records: Quantiles
    measured: int
    empty: int


class Span(BaseModel):
    """Partitions of a topic, and the offsets that their ranges span."""

    partitions: int
    span: int


class Gate(BaseModel):
    """Expectations that held, of all."""

    held: int
    expectations: int


class Line(BaseModel):
    """A checkpoint of the history: Flink's fields, then ours. Times in milliseconds since the epoch (UTC)."""

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
    savepoints: list[str]
    name: str
    timeline: str
    sequence: int
    parent: int | None
    attempt: int
    origin: str
    logical_time: str | None
    records: int
    dead_letters: int
    dead_letters_at_most: bool
    keys: int
    emitted: int
    offsets: dict[str, Span]
    pending_records: int
    gate: Gate | None
    replays: list[int]


class Restored(BaseModel):
    """The newest restore: the checkpoint it began at, and the timeline that it made."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str | None
    timeline: str


class Latest(BaseModel):
    """The newest of each kind."""

    completed: Line | None
    savepoint: Line | None
    failed: Line | None
    restored: Restored | None


class Stop(BaseModel):
    """Why no plan is made."""

    why: str
    savepoint: str | None
    at: int


class Health(BaseModel):
    """Of the live timeline. `age`, `deadline` and `now` in milliseconds, `lag` in offsets."""

    live: str | None
    newest: int | None
    age: int | None
    deadline: int | None
    late: bool
    lag: int | None
    failures_in_row: int
    stopped: Stop | None
    now: int


class Indexed(BaseModel):
    """How many of the ids were read; a page asks again until it is all."""

    read: int
    of: int


class Trouble(BaseModel):
    """What keeps the answer from being whole."""

    what: str
    safe: str
    next: str


class Overview(BaseModel):
    """The page of a pipeline. `matching` counts the lines that the query takes; `history` is a part of them.

    Where there is `trouble`, an object of a timeline or a savepoint is damaged: these are left out.
    """

    pipeline: str
    counts: Counts
    summary: Summary
    latest: Latest
    history: list[Line]
    matching: int
    health: Health
    indexed: Indexed
    trouble: Trouble | None


class Point(BaseModel):
    """A checkpoint in the charts. `offsets` and `pending`: read and left, per partition that has any."""

    id: int
    trigger_timestamp: int
    end_to_end_duration: int
    work_duration: int
    checkpointed_size: int
    state_size: int
    records: int
    dead_letters: int
    dead_letters_at_most: bool
    offsets: dict[str, int]
    pending_records: int
    pending: dict[str, int]
