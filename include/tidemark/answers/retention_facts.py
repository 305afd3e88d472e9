"""Retention, storage, and erasure: files that go, and the reasons that keep the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.answers.checkpoint_facts import OffsetSpan


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
