"""Where ranges end under `until="interval_end"`: before the first record whose timestamp reaches the interval's end.

Kafka answers one question about time: the first offset of the whole log whose timestamp is at or after t. One record
stamped far in the future therefore hides every later record: each later interval gets that record's offset, whether
it was read long ago or not. Such a record ends no range. Behind it the records are read, for their timestamps only,
as often as it takes until Kafka's retention deletes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.errors import BrokerError
from tidemark.model.core.log_records import LogRecord, ReadBounds
from tidemark.model.core.offsets import OffsetRange, TopicPartition
from tidemark.ports import SourceLog

_BOUNDS = ReadBounds(matches=1, records=1_000_000, size=256 * 1024 * 1024, seconds=20.0)
"""Of one partition. A range ends where they end the read: the next plan goes on there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalEnd:
    """The end of an interval, as a bound on the timestamps of records.

    Attributes:
        at_ms: a record with this timestamp or a later one belongs to a later interval.
        future_ms: later than this is no honest timestamp: the record is read now, and belongs to no interval.
        isolation: Kafka's.
        max_records: offsets per partition that the plan takes at most; no record behind them is looked at.
    """

    at_ms: int
    future_ms: int
    isolation: str
    max_records: int | None = None

    def reached(
        self, ranges: Mapping[TopicPartition, OffsetRange], log: SourceLog
    ) -> tuple[dict[TopicPartition, int], bool]:
        """Where the interval ends in each range; and False where it may go on behind that.

        Args:
            ranges: from the starts to what the log holds.
            log: Kafka.

        Raises:
            NotFoundError: a partition does not exist.
            BrokerError: no answer.
        """
        at = log.offsets_at(dict.fromkeys(ranges, self.at_ms))
        caps = {tp: cap for tp, r in ranges.items() if (cap := at.get(tp)) is not None and cap < r.end}
        # A cap below the start (older records arrived late) is an empty range, never a backward one.
        ends = {tp: max(r.start, caps.get(tp, r.end)) for tp, r in ranges.items()}
        later = log.offsets_at(dict.fromkeys(caps, self.future_ms + 1)) if caps else {}
        whole = True
        for tp, cap in caps.items():
            if later.get(tp) == cap:  # the record that caps is from the future
                ends[tp], complete = self._behind(tp, ends[tp], ranges[tp], log)
                whole = whole and complete
        return ends, whole

    def _behind(self, tp: TopicPartition, hidden: int, within: OffsetRange, log: SourceLog) -> tuple[int, bool]:
        """The first record of a later interval among those that are hidden; else where the look ended."""
        end = within.end if self.max_records is None else min(within.end, within.start + self.max_records)
        if hidden >= end:
            return hidden, hidden >= within.end

        def is_later(_: TopicPartition, record: LogRecord) -> bool:
            return self.at_ms <= record.timestamp_ms <= self.future_ms

        found = log.read({tp: OffsetRange(hidden, end)}, self.isolation, _BOUNDS, is_later)
        if found.records:
            return found.records[0][1].offset, True
        if found.next is None:
            return end, end == within.end
        if found.next[1] <= hidden:
            raise BrokerError(
                f"no record of {tp} at offset {hidden} or behind it within {_BOUNDS.seconds:.0f} s",
                safe="nothing was planned; every completed checkpoint is intact.",
                next="look at the broker, then run the same command again.",
            )
        return found.next[1], False
