"""The source offsets that a sink or a block-list covers, per topic id: a recreated topic starts without coverage.

An offset has no meaning without its topic: if a topic is deleted and created again under the same name, Kafka starts at
0 and assigns another id. So coverage is stored per (topic id, partition), and names of topics matter only when coverage
is compared with the ranges of a plan.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemark.model.core.offsets import OffsetRange, TopicPartition

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

    def ends(self, topic_ids: Mapping[str, str]) -> dict[TopicPartition, int]:
        """Returns the offset at which coverage ends, per partition of some topics."""
        names = {number: topic for topic, number in topic_ids.items()}
        return {
            TopicPartition(names[tp.topic], tp.partition): ranges[-1].end
            for tp, ranges in self.by_id.items()
            if tp.topic in names
        }

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
