"""Records of the log, and reads bounded in records, bytes and time: for people, never for state."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from tidemark.model.core.offsets import TopicPartition

StoppedBy = Literal["end", "matches", "records", "bytes", "time"]
"""Why a bounded read ended: it reached the end of the ranges, or one of the bounds."""
Place = tuple[TopicPartition, int]
"""A partition, and the offset at which to continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """One record of a partition; `headers` in their order, where they were read."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


Wanted = Callable[[TopicPartition, LogRecord], bool]
"""Whether a record matches the search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBounds:
    """Bounds of a read.

    Attributes:
        matches: records to return.
        records: records to examine.
        size: bytes of keys and values to examine; the record that exceeds it is still returned.
        seconds: total time.
    """

    matches: int = 20
    records: int = 100_000
    size: int = 16 * 1024 * 1024
    seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedRead:
    """The result of a bounded read, ordered by topic, partition and offset.

    Attributes:
        records: the matching records.
        looked_at: how many records were examined.
        stopped_by: why the read ended.
        next: where to continue; None at the end of all ranges.
    """

    records: tuple[tuple[TopicPartition, LogRecord], ...]
    looked_at: int
    stopped_by: StoppedBy
    next: Place | None


@dataclass(slots=True)
class RecordCollector:
    """Takes records one by one until a bound is reached; every implementation of the port uses it.

    Attributes:
        bounds: when to stop.
        wanted: which records to keep.
    """

    bounds: ReadBounds
    wanted: Wanted
    kept: list[tuple[TopicPartition, LogRecord]] = field(default_factory=list)
    looked_at: int = 0
    size: int = 0

    def take(self, tp: TopicPartition, record: LogRecord) -> StoppedBy | None:
        """Takes a record; returns the bound that it reaches, if any."""
        self.looked_at += 1
        self.size += record.size
        if self.wanted(tp, record):
            self.kept.append((tp, record))
        if len(self.kept) >= self.bounds.matches:
            return "matches"
        if self.looked_at >= self.bounds.records:
            return "records"
        return "bytes" if self.size >= self.bounds.size else None

    def done(self, stopped_by: StoppedBy = "end", at: Place | None = None) -> BoundedRead:
        """Returns the result."""
        return BoundedRead(records=tuple(self.kept), looked_at=self.looked_at, stopped_by=stopped_by, next=at)
