"""Retention, storage, and erasure: files that go, and the reasons that keep the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.answers.checkpoint_facts import OffsetSpan
from tidemark.answers.checkpoint_overview import ReadIds


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableManifest:
    """A manifest that cannot be read. Nothing of the timelines that it blocks is released or deleted."""

    checkpoint: str
    key: str
    why: str
    blocks: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonKept:
    """A reason that keeps files; `alone_bytes` counts files that no other reason keeps."""

    why: str
    files: int
    bytes: int
    alone_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFiles:
    """As `ReasonKept`, with the names of the holders."""

    why: str
    held_by: Sequence[str]
    files: int
    bytes: int
    alone_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPreview:
    """The next sweep as the pages show it: counts without names of files. `due` files go at once."""

    rule: str | None
    released: Sequence[str]
    disposed: Sequence[str]
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
    kept_by: Sequence[ReasonKept]
    damaged: Sequence[UnreadableManifest]


@dataclass(frozen=True, slots=True, kw_only=True)
class PinFacts:
    """Why a checkpoint stays whatever the rule says; `until` is when the savepoint that pins it expires."""

    why: str
    until: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarLine:
    """What retention does with one checkpoint.

    Attributes:
        id, checkpoint, timeline, logical_time: of the checkpoint.
        released: the next sweep releases it, because neither a rule nor a pin keeps it.
        rules: how the rule keeps it, in words.
        pins: what else keeps it.
        goes_after: the rule lets go of it after so many more checkpoints at the pace of the last ones, if nothing pins
            it then; null if the rule does not keep it, or keeps it longer than the calendar looks ahead.
    """

    id: int
    checkpoint: str
    timeline: str
    logical_time: str
    released: bool
    rules: Sequence[str]
    pins: Sequence[PinFacts]
    goes_after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionCalendar:
    """The next sweep, checkpoint by checkpoint, from manifests and the rule; no file is looked at.

    Attributes:
        pipeline: the pipeline.
        rule: the rule that is assumed; null keeps everything.
        is_declared: the assumed rule is that of the pipeline's DAG, and no savepoint is assumed to be gone.
        keeps: which checkpoints the rule keeps, in words.
        lets_go: which checkpoints it does not keep, in words.
        checkpoints: those that go, then those that stay, newest first; of `total`, the oldest may be left out.
        released: names of all that the next sweep releases, by id.
        disposed: savepoints that have expired, which the next sweep disposes of.
        horizon: how many further checkpoints `goes_after` looks ahead.
        freed_bytes: bytes of the files that only released checkpoints need; null if sizes were not asked for.
        waiting_files: free files that the last sweep has left for their grace period, which ends at `waiting_until`.
        last_sweep: when that was.
        grace_ms: how long a file must have been free before it is deleted.
        indexed: how many entries of timelines are read; until all are, `checkpoints` and `released` are empty.
        dag_id, is_paused, next_run: the DAG that sweeps; null if Airflow knows none.
    """

    pipeline: str
    rule: str | None
    is_declared: bool
    keeps: Sequence[str]
    lets_go: Sequence[str]
    checkpoints: Sequence[CalendarLine]
    total: int
    released: Sequence[str]
    disposed: Sequence[str]
    horizon: int
    freed_bytes: int | None
    waiting_files: int
    waiting_until: str | None
    last_sweep: str | None
    grace_ms: int
    indexed: ReadIds
    dag_id: str | None = None
    is_paused: bool | None = None
    next_run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeFileFacts:
    """A file that nothing needs; `since` is null until a sweep has seen it."""

    file: str
    bytes: int
    why: str
    since: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionFacts:
    """The next sweep with its files; a file is due once it has been free for the grace time."""

    pipeline: str
    rule: str | None
    released: Sequence[str]
    disposed: Sequence[str]
    ended_jobs: Sequence[str]
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
    kept_by: Sequence[KeptFiles]
    free: Sequence[FreeFileFacts]
    unknown: Sequence[str]
    damaged: Sequence[UnreadableManifest]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFacts:
    """A sweep: checkpoints released, files deleted, files that still wait for their grace time."""

    pipeline: str
    rule: str | None
    released: Sequence[str]
    disposed: Sequence[str]
    ended_jobs: Sequence[str]
    deleted_files: int
    deleted_bytes: int
    waiting_files: int
    waiting_bytes: int
    deleted_log_files: int
    kept_files: int
    kept_bytes: int
    damaged: Sequence[UnreadableManifest]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedSweepFacts(SweepFacts):
    """A sweep, and the check of every restore point that is left."""

    verified: int
    broken: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpFacts:
    """A checkpoint whose manifest is damaged and that is given up.

    Its timeline continues from `goes_on_from`, and `read_again` are the offsets that the next plan reads again.
    """

    checkpoint: str
    key: str
    why: str
    timeline: str
    given_up: bool
    goes_on_from: str | None
    stops_at: str | None
    read_again: Mapping[str, OffsetSpan]
    savepoints: Sequence[str]
    kafka_sinks: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBytes:
    """Bytes that are kept, written by work in progress, free, unknown, or of logs; `files` counts without logs."""

    kept: int
    waiting: int
    free: int
    unknown: int
    log: int
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBytes:
    """Bytes of one operator or sink on one timeline; the fields of `StoredBytes` follow its name."""

    kind: str
    owner: str
    timeline: str
    kept: int
    waiting: int
    free: int
    unknown: int
    log: int
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageFacts:
    """Where the bytes of a pipeline are; `timelines` gives the fate of each timeline."""

    pipeline: str
    rule: str | None
    total: StoredBytes
    tables: Sequence[TableBytes]
    timelines: Mapping[str, str]
    kept_by: Sequence[KeptFiles]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWithKey:
    """A file of state, of dead letters or of a sink that holds an erased key."""

    file: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOfKey:
    """An operator whose key columns include those of the erased key, and how many of its rows hold it."""

    key_by: Sequence[str]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureFacts:
    """An erasure, done or only planned, and the places that it does not reach.

    Attributes:
        erasure: its number; null if nothing was erased.
        restore_points: per restore point the number of files with the key.
        dead_letters, sinks: rows of other operators that belong to the key and stay, per table.
        sinks_to_search, lists, exports: places that were not searched.
        topics: per topic and partition the offset that was read up to.
        publications: per publication its target, whose next step erases the key.
        chained: the same for downstream operators with the same key columns.
        chained_in_part, chained_by_other_keys: downstream operators with other key columns.
        chained_unknown: no file declares the pipeline, so its downstream operators are unknown.
    """

    uid: str
    key: Sequence[str]
    executed: bool
    erasure: int | None
    restore_points: Mapping[str, int]
    files: Sequence[FileWithKey]
    rows: int
    bytes: int
    deleted_files: int | None
    deleted_log_files: int | None
    dead_letters: Mapping[str, int]
    sinks: Mapping[str, int]
    sinks_to_search: Sequence[str]
    topics: Mapping[str, Mapping[str, int]]
    exports: Sequence[str]
    lists: Sequence[str]
    publications: Mapping[str, str]
    chained: "Sequence[ErasureFacts]"
    chained_in_part: Mapping[str, PartOfKey]
    chained_by_other_keys: Mapping[str, Sequence[str]]
    chained_unknown: bool
