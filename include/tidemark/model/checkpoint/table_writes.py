"""What is written and asked for: files before their commit, commits as values, a request for a checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidemark.model.checkpoint.manifest import Commit
from tidemark.model.checkpoint.operator_lists import OperatorState
from tidemark.model.checkpoint.segments import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A Parquet file of an attempt: path relative to the table, size in bytes, rows by its footer."""

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
    """A file that a version of a table names, with its partition values."""

    file: WrittenFile
    level: int
    checkpoint: int

    @property
    def path(self) -> str:
        """Relative to the table."""
        return self.file.path


@dataclass(frozen=True, slots=True, kw_only=True)
class UidCounts:
    """Records of one operator in the batch: `read == applied + dead_lettered`; and how many a process emitted.

    `operator_state` is what the function of a process left in the operator's lists; None where it was not called, or
    none are declared.
    """

    applied: int
    dead_lettered: int
    emitted: int = 0
    operator_state: OperatorState | None = None

    @property
    def read(self) -> int:
        """Records that the operator was given."""
        return self.applied + self.dead_lettered

    def after(self, *, failed: int, emitted: int, operator_state: OperatorState | None) -> "UidCounts":
        """Of a process, once its function was called: some of the records failed."""
        return UidCounts(
            applied=self.applied - failed,
            dead_lettered=self.dead_lettered + failed,
            emitted=emitted,
            operator_state=operator_state,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """One transaction of design section 5, as a value.

    Attributes:
        table: path relative to the warehouse.
        parent: the segment of this table that the input handle names; None = the table holds nothing of ours yet.
        files: what to add, all under partition (`level`, `checkpoint`).
        rows: what the write reported; compared with the footers before the commit.
        level: `_level` of the added files.
        checkpoint: `_checkpoint` of the added files.
        after: lower bound of the segment that results.
        schema: Arrow-independent description: (column, SQL type) in order, without partition columns; empty = that of
            the table, which is there.
        write_id: random, lands in commitInfo.
        metadata: plan id, attempt, pipeline, timeline, uid; lands in commitInfo.
        app: application transaction (id, version), a record only.
        drop: paths of live files of the parent segment that this commit replaces (compaction); empty for a run.
        replacing: files to add under levels and checkpoints of their own, in place of some that go (erasure).
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
    """A commit that carries our write id, and the segment that it left behind."""

    commit: Commit
    segment: Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What a caller wants of the next checkpoint.

    Attributes:
        origin: who asks: a DAG run id, or "cli".
        interval_end: end of the data interval, or None.
        interval_start: its start, or None.
        until_interval_end: cap ends at the first record whose timestamp reaches `interval_end`.
        max_records: per partition; None = no bound.
        accept_loss: record gaps instead of stopping.
        allow_non_restored_state: drop the state of operators that the pipeline does not declare any more.
        accept_time: take the logical time, however far it is from all that is known.
        replay_to: on a fork, repeat what was recorded up to this checkpoint id instead of reading on (Q7); the bound of
            `max_records` is then that of one step, of several checkpoints or a single one.
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
