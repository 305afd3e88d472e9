"""Values for writing: files before their commit, commits as values, and the request for a checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidemark.model.checkpoint.manifest import Commit
from tidemark.model.checkpoint.operator_lists import OperatorState
from tidemark.model.checkpoint.segments import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A Parquet file of an attempt: path relative to the table, size in bytes, rows according to its footer."""

    path: str
    size: int
    rows: int
    stats: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRun:
    """Files of one run or one compaction output, before their commit. `rows` is what the write reported."""

    rows: int
    files: tuple[WrittenFile, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(f.size for f in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A file in a version of a table, with its partition values."""

    file: WrittenFile
    level: int
    checkpoint: int

    @property
    def path(self) -> str:
        """Relative to the table."""
        return self.file.path


@dataclass(frozen=True, slots=True, kw_only=True)
class UidCounts:
    """Records of one operator in the batch, `read == applied + dead_lettered`, and the number that a process emitted.

    `operator_state` holds the lists that the function of a process left; None if it was not called or declares no
    lists.
    """

    applied: int
    dead_lettered: int
    emitted: int = 0
    operator_state: OperatorState | None = None

    @property
    def read(self) -> int:
        """Records that the operator got."""
        return self.applied + self.dead_lettered

    def after(self, *, failed: int, emitted: int, operator_state: OperatorState | None) -> "UidCounts":
        """Of a process, after its function was called: some of the records failed."""
        return UidCounts(
            applied=self.applied - failed,
            dead_lettered=self.dead_lettered + failed,
            emitted=emitted,
            operator_state=operator_state,
        )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The options of the next checkpoint.

    Attributes:
        origin: the requester: a DAG run id, or "cli".
        interval_end: end of the data interval, or None.
        interval_start: its start, or None.
        until_interval_end: cap ends at the first record whose timestamp reaches `interval_end`.
        max_records: maximum per partition; None = no bound.
        accept_loss: record gaps instead of stopping.
        allow_non_restored_state: drop the state of operators that the pipeline no longer declares.
        accept_time: accept the logical time, however far it is from all known times.
        replay_to: on a fork, repeat recorded checkpoints up to this id instead of reading new records; `max_records`
            then bounds one step, which repeats one or several checkpoints.
    """

    origin: str
    interval_start: datetime | None = None
    interval_end: datetime | None = None
    until_interval_end: bool = False
    max_records: int | None = None
    accept_loss: bool = False
    allow_non_restored_state: bool = False
    accept_time: bool = False
    replay_to: int | None = None
