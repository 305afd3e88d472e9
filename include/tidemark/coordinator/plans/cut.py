"""Where a bounded checkpoint ends: near one time of the records, so that no partition runs ahead of others (adr/0032).

Kafka answers one question about time for all partitions at once: the first offset with a timestamp at or after t. The
cut is found by bisection over t, so it takes a few dozen requests and reads no record. A cut that would read nothing,
because more records than the bound share one millisecond, is filled up in proportion.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemark.model.core.log_records import ReadBounds
from tidemark.model.core.offsets import OffsetRange, TopicPartition
from tidemark.ports import SourceLog

Ranges = Mapping[TopicPartition, OffsetRange]
Ends = dict[TopicPartition, int]

_START = -1
"""A time before all records: the cut is the start."""
_FIRST = ReadBounds(matches=1, records=1, seconds=20.0)
_SAMPLE = ReadBounds(matches=100, records=100, seconds=20.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How much one checkpoint may read, over all partitions that are cut.

    Attributes:
        records: offsets; None = no limit.
        size: bytes of keys and values; None = no limit.
        record_bytes: mean bytes of a record, at least 1: `size` is soft, because a plan reads no record.
        reduced_to: offsets that the plan before was reduced to, because more was too much; None = not reduced.
        halvings: how often the plan was too much at this place.
    """

    records: int | None = None
    size: int | None = None
    record_bytes: float = 1.0
    reduced_to: int | None = None
    halvings: int = 0

    @property
    def offsets(self) -> int:
        """The limit in offsets, at least 1."""
        limits = [most for most in (self.records, self.reduced_to) if most is not None]
        if self.size is not None:
            limits.append(int(self.size / max(1.0, self.record_bytes)))
        return max(1, min(limits) >> self.halvings)

    @property
    def is_reduced(self) -> bool:
        """Whether earlier plans were too much, so that this one reads less than is declared."""
        return self.halvings > 0 or self.reduced_to is not None


def mean_bytes(subscriptions: Iterable[object], log: SourceLog, isolation: str) -> float:
    """Returns the mean bytes of the first records in each partition; 1.0 if there are none.

    Args:
        subscriptions: values of `KafkaSource.topics`.
        log: Kafka; 100 records of each partition are read at most.
        isolation: Kafka's isolation level.

    Raises:
        NotFoundError, BrokerError: as the log raises.
    """
    sizes: list[int] = []
    for topics in subscriptions:
        for tp, held in log.partitions(topics, isolation).items():
            found = log.read({tp: OffsetRange(held.earliest, held.end)}, isolation, _SAMPLE, lambda _, __: True)
            sizes += [record.size for _, record in found.records]
    return max(1.0, sum(sizes) / len(sizes)) if sizes else 1.0


def cut(ranges: Ranges, bound: Bound, log: SourceLog, *, future_ms: int, isolation: str) -> Ends:
    """Returns the end of each range: all together read at most the bound, holes not counted, and at least one offset.

    Args:
        ranges: from the start offsets to the ends of the run.
        bound: how much they may read.
        log: Kafka.
        future_ms: a later timestamp than this cannot be right.
        isolation: Kafka's isolation level.

    Raises:
        NotFoundError: a partition does not exist.
        BrokerError: Kafka did not answer.
    """
    left = {tp: r for tp, r in ranges.items() if not r.is_empty}
    whole = {tp: r.end for tp, r in ranges.items()}
    if sum(r.span for r in left.values()) <= bound.offsets:
        return whole
    later, timed = log.offsets_at(dict.fromkeys(left, future_ms + 1)), log.offsets_at(dict.fromkeys(left, 0))
    ahead = {tp for tp, r in left.items() if (at := later.get(tp)) is not None and at <= r.start}
    hidden = frozenset(tp for tp in left if tp in ahead or timed.get(tp) is None)
    found = _Cut(ranges=left, limit=bound.offsets, log=log, future_ms=future_ms, isolation=isolation, hidden=hidden)
    return whole | found.ends()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """One cut. `hidden` are partitions whose next record no time finds: it has none, or lies behind a future one."""

    ranges: Ranges
    limit: int
    log: SourceLog
    future_ms: int
    isolation: str
    hidden: frozenset[TopicPartition]

    def ends(self) -> Ends:
        """The ends of ranges that together exceed the limit."""
        fits, exceeds = {tp: r.start for tp, r in self.ranges.items()}, {tp: r.end for tp, r in self.ranges.items()}
        low, high = _START, self.future_ms + 2
        while high - low > 1:
            middle = (low + high) // 2
            found = self._at(middle)
            if self._fits(found):
                low, fits = middle, found
            else:
                high, exceeds = middle, found
        return fits if self._moved(fits) else self._fill(exceeds)

    def _at(self, when_ms: int) -> Ends:
        """The cut at a time; the partitions whose times are hidden keep to the share that the others have reached."""
        by_time = {tp: r for tp, r in self.ranges.items() if tp not in self.hidden}
        ends = {tp: r.start for tp, r in self.ranges.items()}
        answers = self.log.offsets_at(dict.fromkeys(by_time, when_ms)) if by_time else {}
        for tp, within in by_time.items():
            at = answers.get(tp)
            ends[tp] = within.end if at is None else min(max(at, within.start), within.end)
        moved, of = self._moved(ends), sum(r.span for r in by_time.values())
        for tp in self.hidden:
            ends[tp] += self.ranges[tp].span * moved // max(1, of)
        return ends

    def _fill(self, next_ends: Ends) -> Ends:
        """Ends between the starts and a cut that exceeds the limit, in proportion to what each has up to that cut.

        Offsets before the first visible record of a range are a hole of compaction or of transactions: they cost
        nothing, so they are passed, and do not count.
        """
        first = {tp: self._first_visible(tp, next_ends[tp]) for tp in self.ranges}
        spans = {tp: next_ends[tp] - first[tp] for tp in self.ranges}
        total = sum(spans.values())
        if total == 0:  # nothing but holes: the checkpoint reads what comes behind them
            rest = {tp: OffsetRange(next_ends[tp], r.end) for tp, r in self.ranges.items()}
            bound = Bound(records=self.limit)
            return cut(rest, bound, self.log, future_ms=self.future_ms, isolation=self.isolation)
        if total <= self.limit:
            return next_ends
        shares = {tp: divmod(spans[tp] * self.limit, total) for tp in sorted(self.ranges)}
        left = self.limit - sum(share for share, _ in shares.values())
        rounded_up = sorted(shares, key=lambda tp: shares[tp][1], reverse=True)[:left]
        return {tp: first[tp] + share + (tp in rounded_up) for tp, (share, _) in shares.items()}

    def _first_visible(self, tp: TopicPartition, end: int) -> int:
        within = OffsetRange(self.ranges[tp].start, end)
        if within.is_empty:
            return end
        found = self.log.read({tp: within}, self.isolation, _FIRST, lambda _, __: True)
        if found.records:
            return found.records[0][1].offset
        return end if found.next is None else within.start

    def _moved(self, ends: Mapping[TopicPartition, int]) -> int:
        return sum(end - self.ranges[tp].start for tp, end in ends.items())

    def _fits(self, ends: Mapping[TopicPartition, int]) -> bool:
        return self._moved(ends) <= self.limit
