"""Kafka in dicts: partitions with sparse offsets, timestamps, trimming, recreation and open transactions."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidemark.declare.pipeline import TopicPattern
from tidemark.errors import NotFoundError, UsageError
from tidemark.model.core.log_records import BoundedRead, LogRecord, ReadBounds, RecordCollector, Wanted
from tidemark.model.core.offsets import OffsetRange, TopicPartition
from tidemark.ports import PartitionLog


@dataclass
class _Partition:
    records: list[LogRecord] = field(default_factory=list)
    earliest: int = 0
    end: int = 0
    stable_end: int | None = None


@dataclass
class _Topic:
    id: str
    partitions: list[_Partition]


class MemoryLog:
    """The twin of the Kafka log. Its methods include the accidents that happen to a real one."""

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}
        self._groups: dict[str, dict[TopicPartition, int]] = {}
        self._created = 0

    def create(self, topic: str, partitions: int = 1) -> None:
        """Creates a topic, or recreates it empty under a new topic id."""
        self._created += 1
        # Like an id of Kafka, which is Base64, it has a slash.
        self._topics[topic] = _Topic(f"{topic}/{self._created}", [_Partition() for _ in range(partitions)])

    def delete(self, topic: str) -> None:
        """Deletes a topic."""
        del self._topics[topic]

    def add_partitions(self, topic: str, count: int = 1) -> None:
        """Adds empty partitions."""
        self._topics[topic].partitions.extend(_Partition() for _ in range(count))

    def append(
        self,
        tp: TopicPartition,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp_ms: int = 0,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> int:
        """Appends a record and returns its offset."""
        found = self._partition(tp)
        made = LogRecord(offset=found.end, timestamp_ms=timestamp_ms, key=key, value=value, headers=tuple(headers))
        found.records.append(made)
        found.end += 1
        return found.end - 1

    def skip(self, tp: TopicPartition, count: int = 1) -> None:
        """Skips offsets without adding records, as transaction markers and compaction do."""
        self._partition(tp).end += count

    def hold_stable_end(self, tp: TopicPartition, offset: int | None) -> None:
        """Opens a transaction at an offset, which becomes the last stable offset; None ends the transaction."""
        self._partition(tp).stable_end = offset

    def trim(self, tp: TopicPartition, before: int) -> None:
        """Deletes records below an offset, as retention does."""
        found = self._partition(tp)
        found.records = [r for r in found.records if r.offset >= before]
        found.earliest, found.end = before, max(found.end, before)

    def truncate(self, tp: TopicPartition, end: int) -> None:
        """Drops the records from an offset on, as an unclean leader election does."""
        found = self._partition(tp)
        found.records = [r for r in found.records if r.offset < end]
        found.end = end

    def records(self, tp: TopicPartition, within: OffsetRange) -> Sequence[LogRecord]:
        """Returns the records of a range."""
        return [r for r in self._partition(tp).records if within.start <= r.offset < within.end]

    def read(
        self, ranges: Mapping[TopicPartition, OffsetRange], isolation: str, bounds: ReadBounds, wanted: Wanted
    ) -> BoundedRead:
        """See `ports.records.RecordReader`; no time passes here."""
        collector = RecordCollector(bounds, wanted)
        held = self.partitions(frozenset(ranges), isolation)
        for tp, within in sorted(ranges.items()):
            end = min(within.end, held[tp].end)
            for record in (r for r in self.records(tp, within) if r.offset < end):
                stopped = collector.take(tp, record)
                if stopped is not None:
                    return collector.done(stopped, (tp, record.offset + 1))
        return collector.done()

    def partitions(self, topics: object, isolation: str) -> Mapping[TopicPartition, PartitionLog]:
        """See `ports.Log`."""
        return {tp: self._bounds(tp, isolation) for tp in self._subscribed(topics)}

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        """See `ports.Log`."""
        return {name: self._topics[name].id for name in topics if name in self._topics}

    def offsets_at(self, when_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """See `ports.Log`."""
        return {tp: self._first_at(tp, when) for tp, when in when_ms.items()}

    def group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See `ports.Log`."""
        committed = self._groups.get(group, {})
        return {tp: committed[tp] for tp in partitions if tp in committed}

    def report_group_offsets(self, group: str, ends: Mapping[TopicPartition, int]) -> None:
        """See `ports.Log`."""
        self._groups.setdefault(group, {}).update(ends)

    def _subscribed(self, topics: object) -> list[TopicPartition]:
        if isinstance(topics, TopicPattern):
            return self._all(t for t in self._topics if re.fullmatch(topics.regex, t))
        if isinstance(topics, str):
            return self._all([topics])
        if isinstance(topics, frozenset):
            wanted = {tp for tp in topics if isinstance(tp, TopicPartition)}
            there = set(self._all({tp.topic for tp in wanted}))
            if wanted - there:
                raise _missing(", ".join(str(tp) for tp in sorted(wanted - there)))
            return sorted(wanted)
        if isinstance(topics, Sequence):
            return self._all(topics)
        raise UsageError(f"cannot subscribe to {topics!r}", next="give topics in a form that KafkaSource accepts.")

    def _all(self, topics: Iterable[str]) -> list[TopicPartition]:
        found = []
        for name in topics:
            if name not in self._topics:
                raise _missing(name)
            found += [TopicPartition(name, n) for n in range(len(self._topics[name].partitions))]
        return found

    def _partition(self, tp: TopicPartition) -> _Partition:
        return self._topics[tp.topic].partitions[tp.partition]

    def _bounds(self, tp: TopicPartition, isolation: str) -> PartitionLog:
        found = self._partition(tp)
        held = found.stable_end if isolation == "read_committed" else None
        return PartitionLog(earliest=found.earliest, end=found.end if held is None else min(held, found.end))

    def _first_at(self, tp: TopicPartition, when_ms: int) -> int | None:
        return next((r.offset for r in self._partition(tp).records if r.timestamp_ms >= when_ms), None)


def _missing(what: str) -> NotFoundError:
    return NotFoundError(f"no such topic or partition: {what}", next="create it, or correct the source's topics.")
