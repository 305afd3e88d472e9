"""What checkpoints have to do with each other: lineage, timelines, savepoints."""

from pydantic import BaseModel

Plain = str | int | float | bool | None


class Node(BaseModel):
    """A node of the lineage; `column` from 0, left to right."""

    id: str
    kind: str
    column: int
    label: str
    second: str = ""
    facts: dict[str, Plain]
    asset: str | None = None
    task: str | None = None
    checkpoint: int | None = None
    run: str | None = None
    status: str | None = None


class Edge(BaseModel):
    """From a node's id to another's."""

    begin: str
    end: str


class Graph(BaseModel):
    """The lineage of a checkpoint."""

    id: int
    name: str
    status: str
    run: str
    nodes: list[Node]
    edges: list[Edge]


class OnTimeline(BaseModel):
    """A savepoint in the tree."""

    name: str
    checkpoint: int


class Timeline(BaseModel):
    """A timeline: what it began with, how far it is, what became of it."""

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
    left_behind: dict[str, int]
    renamed: dict[str, str]
    note: str | None
    savepoints: list[OnTimeline]


class Savepoint(BaseModel):
    """A savepoint; times as ISO 8601 in UTC."""

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


class Disposal(BaseModel):
    """What a disposal comes to."""

    name: str
    checkpoint: str
    also_pinned_by: list[str]
    needed_by: list[str]
    disposed: bool = False


class Range(BaseModel):
    """Offsets of a partition; `end` is the first that is not among them."""

    start: int
    end: int


class RestorePlan(BaseModel):
    """What a restore would come to."""

    checkpoint: str
    savepoint: str | None
    drained: bool
    closes: str
    left: list[str]
    read_again: dict[str, Range]


class BackfillPlan(BaseModel):
    """What a backfill would repeat: checkpoints, oldest first, their records, and how long they worked (ms)."""

    checkpoint: str
    savepoint: str | None
    repeats: list[str]
    to: str
    records: int
    work_duration: int


class Keeper(BaseModel):
    """What keeps files; `alone_bytes` are of those that nothing else keeps."""

    why: str
    files: int
    bytes: int
    alone_bytes: int


class DamagedManifest(BaseModel):
    """A manifest that cannot be read; of the timelines that it blocks nothing goes."""

    checkpoint: str
    key: str
    why: str
    blocks: list[str]


class RetentionPlan(BaseModel):
    """What retention would do now; `due` is free for longer than the grace time (ms), and would go."""

    rule: str | None
    released: list[str]
    disposed: list[str]
    free_files: int
    free_bytes: int
    due_files: int
    due_bytes: int
    grace_ms: int
    kept_files: int
    kept_bytes: int
    unknown_files: int
    log_files: int
    log_bytes: int
    kept_by: list[Keeper]
    damaged: list[DamagedManifest]


class MadeByRun(BaseModel):
    """What a DAG run made of one pipeline."""

    pipeline: str
    checkpoints: list[int]
    timelines: list[str]
    savepoints: list[str]
