"""Records of the log, and a read of them that is bounded in records, bytes and time: for people, never for state."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from tidemark.model.core.offsets import TopicPartition

StoppedBy = Literal["end", "matches", "records", "bytes", "time"]
"""What ended a bounded read: the ranges were read to their end, or one of the bounds."""
Place = tuple[TopicPartition, int]
"""A partition, and the offset at which to go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """One record of a partition."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


Wanted = Callable[[TopicPartition, LogRecord], bool]
"""Whether a record is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBounds:
    """How much a bounded read may read.

    Attributes:
        matches: records that are answered.
        records: records that are looked at.
        size: bytes of keys and values that are looked at; the record that exceeds it is still answered.
        seconds: in all.
    """

    matches: int = 20
    records: int = 100_000
    size: int = 16 * 1024 * 1024
    seconds: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedRead:
    """What a bounded read has found, in order of topic, partition and offset.

    Attributes:
        records: those that were looked for.
        looked_at: how many records were read.
        stopped_by: what ended it.
        next: where to go on; None at the end of all ranges.
    """

    records: tuple[tuple[TopicPartition, LogRecord], ...]
    looked_at: int
    stopped_by: StoppedBy
    next: Place | None


@dataclass(slots=True)
class RecordCollector:
    """Takes records one by one until a bound is reached; shared by every implementation of the port.

    Attributes:
        bounds: when to stop.
        wanted: what to keep.
    """

    bounds: ReadBounds
    wanted: Wanted
    kept: list[tuple[TopicPartition, LogRecord]] = field(default_factory=list)
    looked_at: int = 0
    size: int = 0

    def take(self, tp: TopicPartition, record: LogRecord) -> StoppedBy | None:
        """Takes a record; the bound that it has reached, if any."""
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
        """What came of it."""
        return BoundedRead(records=tuple(self.kept), looked_at=self.looked_at, stopped_by=stopped_by, next=at)
