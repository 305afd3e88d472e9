"""Offsets: half-open ranges per topic-partition, and the rules for contiguous ranges.

As in Kafka, a range is `[start, end)`, and `end` is the next offset to read. Offsets are sparse (transaction markers,
aborted and compacted records), so a range does not say how many records it contains.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tidemark.errors import UsageError

Path = tuple[int, ...]
"""How a record was emitted: its number among the records that each operator of a chain emitted for the one before.

A record of Kafka has the empty path. Paths of one record compare in the order in which the records were emitted.
"""
PER_RECORD = 2**20
"""The stored place of an emitted value is `offset * PER_RECORD + last number of its path % PER_RECORD` (adr/0025)."""


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic; written `topic-partition` as Kafka's own tools do."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> "TopicPartition":
        """The inverse of `str`.

        UsageError: no partition number follows the last dash. UsageError: no partition number behind the last dash.
        """
        topic, dash, partition = text.rpartition("-")
        if not dash or not topic or not partition.isdecimal():
            raise UsageError(f"not a topic-partition: {text!r}", next="write TOPIC-PARTITION, as in flights-0.")
        return cls(topic, int(partition))


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets `[start, end)` of one partition; empty if they are equal."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise UsageError(f"not an offset range: [{self.start}, {self.end})", next="give 0 <= start <= end.")

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"

    @property
    def is_empty(self) -> bool:
        """Whether the range contains no offset."""
        return self.start == self.end

    @property
    def span(self) -> int:
        """`end - start`: an upper bound of the number of records, never their count."""
        return self.end - self.start

    def follows(self, earlier: "OffsetRange") -> bool:
        """Whether this range starts exactly where `earlier` ends."""
        return self.start == earlier.end

    def overlaps(self, other: "OffsetRange") -> bool:
        """Whether both contain a common offset."""
        return max(self.start, other.start) < min(self.end, other.end)


@dataclass(frozen=True, slots=True)
class BarrierOffsets:
    """The end offset of every partition of every source, frozen before anything is read."""

    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetRanges(Mapping[TopicPartition, OffsetRange]):
    """The ranges of one checkpoint; every partition is listed, even if its range is empty."""

    by_partition: Mapping[TopicPartition, OffsetRange]

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_partition", dict(sorted(self.by_partition.items())))

    def __getitem__(self, key: TopicPartition) -> OffsetRange:
        return self.by_partition[key]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.by_partition)

    def __len__(self) -> int:
        return len(self.by_partition)

    @classmethod
    def between(cls, starts: Mapping[TopicPartition, int], barrier: BarrierOffsets) -> "OffsetRanges":
        """Returns the ranges from `starts` to `barrier`; both must list the same partitions.

        Raises:
            UsageError: the partitions differ, or a range would end before it starts.
        """
        if set(starts) != set(barrier.ends):
            missing = sorted(str(tp) for tp in set(starts) ^ set(barrier.ends))
            raise UsageError(f"starts and barrier differ in {', '.join(missing)}", next="list every partition in both.")
        return cls({tp: OffsetRange(start, barrier.ends[tp]) for tp, start in starts.items()})

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The barrier that closes these ranges."""
        return {tp: r.end for tp, r in self.items()}

    @property
    def span(self) -> int:
        """Sum of the spans: an upper bound of the records."""
        return sum(r.span for r in self.values())

    @property
    def is_empty(self) -> bool:
        """Whether no partition has an offset to read."""
        return all(r.is_empty for r in self.values())

    def breaks_from(self, parent: "OffsetRanges | None") -> list[str]:
        """Returns why `self` is not the direct successor of `parent`; empty = contiguous.

        A partition that the parent does not list is new and may start anywhere; one that only the parent lists is a
        break. The caller decides about recorded gaps.
        """
        if parent is None:
            return []
        breaks = [f"{tp} of the parent is missing" for tp in parent if tp not in self]
        for tp, after in self.items():
            if tp in parent and not after.follows(parent[tp]):
                breaks.append(f"{tp} starts at {after.start}, the parent ends at {parent[tp].end}")
        return breaks


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLog:
    """The readable offsets of one partition, `[earliest, end)`.

    `end` is the last stable offset for read_committed, the high watermark for read_uncommitted.
    """

    earliest: int
    end: int


# The source offsets that a sink or a block-list covers, per topic id: a recreated topic starts without coverage.
#
# An offset has no meaning without its topic: if a topic is deleted and created again under the same name, Kafka starts
# at 0 and assigns another id. So coverage is stored per (topic id, partition), and names of topics matter only when
# coverage is compared with the ranges of a plan.
Ranges = tuple[OffsetRange, ...]
"""Disjoint ranges of one partition: ascending, not empty, not adjacent."""


@dataclass(frozen=True, slots=True)
class OffsetCoverage:
    """A set of offsets of several topics.

    Attributes:
        by_id: covered ranges per partition, with the *id* of its topic in place of the name.

    >>> from tidemark.model.core.offsets import OffsetRange, TopicPartition
    >>> p = TopicPartition("payments", 0)
    >>> first = OffsetCoverage.of({p: OffsetRange(0, 5)}, {"payments": "id-1"})
    >>> recreated = OffsetCoverage.of({p: OffsetRange(0, 2)}, {"payments": "id-2"})
    >>> (first | recreated).within({p: OffsetRange(0, 9)}, {"payments": "id-2"})
    {TopicPartition(topic='payments', partition=0): (OffsetRange(start=0, end=2),)}
    """

    by_id: Mapping[TopicPartition, Ranges] = field(default_factory=dict)

    @classmethod
    def of(cls, ranges: Mapping[TopicPartition, OffsetRange], topic_ids: Mapping[str, str]) -> "OffsetCoverage":
        """Returns the coverage of some ranges.

        Args:
            ranges: ranges per partition, by the name of its topic.
            topic_ids: Kafka's id of each topic; a partition of a topic without an id is left out.
        """
        return cls(
            {
                TopicPartition(topic_ids[tp.topic], tp.partition): (r,)
                for tp, r in sorted(ranges.items())
                if tp.topic in topic_ids and not r.is_empty
            }
        )

    @classmethod
    def below(cls, ends: Mapping[TopicPartition, int], topic_ids: Mapping[str, str]) -> "OffsetCoverage":
        """Returns the coverage of all offsets below some ends."""
        return cls.of({tp: OffsetRange(0, end) for tp, end in ends.items()}, topic_ids)

    @property
    def is_empty(self) -> bool:
        """Whether no offset is covered."""
        return not self.by_id

    def __or__(self, other: "OffsetCoverage") -> "OffsetCoverage":
        both = sorted({*self.by_id, *other.by_id})
        return OffsetCoverage({tp: _joined((*self._of(tp), *other._of(tp))) for tp in both})

    def __and__(self, other: "OffsetCoverage") -> "OffsetCoverage":
        found = {tp: _shared(self._of(tp), other._of(tp)) for tp in sorted(self.by_id)}
        return OffsetCoverage({tp: ranges for tp, ranges in found.items() if ranges})

    def __sub__(self, other: "OffsetCoverage") -> "OffsetCoverage":
        found = {tp: _without(self._of(tp), other._of(tp)) for tp in sorted(self.by_id)}
        return OffsetCoverage({tp: ranges for tp, ranges in found.items() if ranges})

    def contains(self, other: "OffsetCoverage") -> bool:
        """Whether this covers every offset that the other one covers."""
        return (other - self).is_empty

    def within(
        self, ranges: Mapping[TopicPartition, OffsetRange], topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, Ranges]:
        """Returns the covered offsets of some ranges, by topic name; partitions without any are left out."""
        found = {
            tp: _shared((r,), self._of(TopicPartition(topic_ids.get(tp.topic, ""), tp.partition)))
            for tp, r in ranges.items()
        }
        return {tp: covered for tp, covered in found.items() if covered}

    def covers(self, tp: TopicPartition, offset: int, topic_ids: Mapping[str, str]) -> bool:
        """Whether one offset is covered."""
        mine = self._of(TopicPartition(topic_ids.get(tp.topic, ""), tp.partition))
        return any(r.start <= offset < r.end for r in mine)

    def by_name(self, topic_ids: Mapping[str, str]) -> dict[TopicPartition, Ranges]:
        """Returns the covered ranges per partition of some topics, by the names of these topics."""
        names = {number: topic for topic, number in topic_ids.items()}
        return {
            TopicPartition(names[tp.topic], tp.partition): ranges
            for tp, ranges in self.by_id.items()
            if tp.topic in names
        }

    def ends(self, topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
        """Returns the offset at which coverage ends, per partition of some topics."""
        return {tp: ranges[-1].end for tp, ranges in self.by_name(topic_ids).items()}

    def _of(self, tp: TopicPartition) -> Ranges:
        return self.by_id.get(tp, ())


def _joined(ranges: Iterable[OffsetRange]) -> Ranges:
    found: list[OffsetRange] = []
    for r in sorted(ranges):
        if found and r.start <= found[-1].end:
            found[-1] = OffsetRange(found[-1].start, max(found[-1].end, r.end))
        else:
            found.append(r)
    return tuple(found)


def _shared(some: Iterable[OffsetRange], others: Ranges) -> Ranges:
    return tuple(
        OffsetRange(max(one.start, other.start), min(one.end, other.end))
        for one in some
        for other in others
        if one.overlaps(other)
    )


def _without(some: Ranges, others: Ranges) -> Ranges:
    left: list[OffsetRange] = []
    for one in some:
        start = one.start
        for other in others:
            if other.end <= start or other.start >= one.end:
                continue
            if other.start > start:
                left.append(OffsetRange(start, other.start))
            start = max(start, other.end)
        if start < one.end:
            left.append(OffsetRange(start, one.end))
    return tuple(left)
