"""Delta commits as values: the request, and the result."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.model.checkpoint.segments import LiveFile, Segment, WrittenFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One Delta commit that a checkpoint relies on.

    Attributes:
        path: table, relative to the warehouse.
        version: Delta version.
        write_id: id in the commit's metadata.
        sha256: hash of the commit's JSON file, by which `verify` detects later damage.
    """

    path: str
    version: int
    write_id: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """One Delta transaction, as a value.

    Attributes:
        table: path relative to the warehouse.
        parent: the segment of this table in the input handle; None = the table contains nothing of the timeline yet.
        files: files to add, all under partition (`level`, `checkpoint`).
        rows: rows that the write reported; compared with the footers before the commit.
        level: `_level` of the added files.
        checkpoint: `_checkpoint` of the added files.
        after: lower bound of the resulting segment.
        schema: Arrow-independent description: (column, SQL type) in order, without partition columns; empty = the
            schema of the existing table.
        write_id: random; stored in commitInfo.
        metadata: plan id, attempt, pipeline, timeline, uid; stored in commitInfo.
        app: application transaction (id, version), for the record only.
        drop: paths of live files of the parent segment that this commit replaces (compaction); empty for a run.
        replacing: files to add with their own levels and checkpoints, in place of dropped ones (erasure).
    """

    table: str
    parent: Segment | None
    files: tuple[WrittenFile, ...]
    rows: int
    level: int
    checkpoint: int
    after: int
    schema: tuple[tuple[str, str], ...]
    write_id: str
    metadata: Mapping[str, str]
    app: tuple[str, int]
    drop: tuple[str, ...] = field(default=())
    replacing: tuple[LiveFile, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A commit with the requester's write id, and the resulting segment."""

    commit: Commit
    segment: Segment
