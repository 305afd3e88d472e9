"""Redriven dead letters as values: the rows that a request asks for, and that a plan freezes (adr/0040)."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

from tidemark.errors import StoreError
from tidemark.model.checkpoint.codec import ADDED
from tidemark.model.core.offsets import OffsetCoverage, OffsetRange, Path, TopicPartition

LetterPlace = tuple[str, int, int, Path]
"""Topic, partition, offset and path of a record that is a dead letter."""

# Stands between the id of a topic and the numbers of a path. Kafka's ids are Base64, so they may have a slash.
_AFTER = ":"


class LetterRow(NamedTuple):
    """A dead letter of one operator. A record that was refused twice has two, of different checkpoints.

    The table is no part of it: a compaction on a fork, or after a rename, moves the row to another one.

    Attributes:
        checkpoint: id of the checkpoint that wrote the row.
        topic: topic of the record.
        topic_id: Kafka's id of the topic when that checkpoint read it.
        partition: partition of the record.
        offset: offset of the record.
        path: path of the record; empty if its operator reads it from Kafka.
    """

    checkpoint: int
    topic: str
    topic_id: str
    partition: int
    offset: int
    path: Path = ()

    @property
    def record(self) -> tuple[str, str, int, int, Path]:
        """The record: topic, topic id, partition, offset and path; equal on every timeline."""
        return (self.topic, self.topic_id, self.partition, self.offset, self.path)

    @property
    def place(self) -> LetterPlace:
        """Where its table has the record."""
        return (self.topic, self.partition, self.offset, self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRows:
    """Dead letters of one operator, checkpoint, partition and path.

    Attributes:
        checkpoint: id of the checkpoint that wrote the rows.
        topic_id: Kafka's id of the topic when that checkpoint read it.
        partition: topic and partition of the records.
        offsets: the offsets, as disjoint ranges in ascending order; every offset in them has a row.
        path: the path of the records.
    """

    checkpoint: int
    topic_id: str
    partition: TopicPartition
    offsets: tuple[OffsetRange, ...]
    path: Path = field(default=(), metadata=ADDED)

    def __iter__(self) -> Iterator[LetterRow]:
        of = self.partition
        for within in self.offsets:
            for offset in range(within.start, within.end):
                yield LetterRow(self.checkpoint, of.topic, self.topic_id, of.partition, offset, self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """The dead letters that a checkpoint redrives for one operator.

    Attributes:
        uid: the operator.
        requests: numbers of the requests that asked for them; empty if the plan repeats a recorded checkpoint.
        rows: the rows.
        sinks: for each operator with a sink that the records reach, the records whose rows the sink has already, from a
            timeline that redrove them before.
    """

    uid: str
    requests: tuple[int, ...]
    rows: tuple[LetterRows, ...]
    sinks: Mapping[str, OffsetCoverage] = field(default_factory=dict, metadata=ADDED)

    @property
    def count(self) -> int:
        """The number of dead letters."""
        return count_rows(self.rows)

    @property
    def coverage(self) -> OffsetCoverage:
        """The records, by the ids of their topics, and by path; `redriven_places` is the inverse."""
        found: dict[TopicPartition, tuple[OffsetRange, ...]] = {}
        for each in self.rows:
            place = TopicPartition(_AFTER.join((each.topic_id, *map(str, each.path))), each.partition.partition)
            found[place] = (*found.get(place, ()), *each.offsets)
        return OffsetCoverage() | OffsetCoverage(found)  # the union orders and joins ranges

    def coverage_at(self, places: Collection[LetterPlace]) -> OffsetCoverage:
        """The records at some places, as `coverage`."""
        rows = (row for row in expand_rows(self.rows) if row.place in places)
        return replace(self, rows=group_rows(rows)).coverage


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRecord:
    """`redrives/<n>.json`: a person asks to redrive dead letters of a timeline.

    Attributes:
        number: ascending from 1, without gaps.
        timeline: the timeline whose next plan redrives them; no other one does.
        uid: the operator.
        rows: the rows.
        out_of_order: whether the operator may give another answer because the records come late.
        owner: the person who asked.
        note: for people.
        origin: "cli", or the DAG run that asked, whose repeated tasks find it.
        at_ms: clock of the writer, for people.
        write_id: id of the writer.
    """

    number: int
    timeline: str
    uid: str
    rows: tuple[LetterRows, ...]
    out_of_order: bool
    owner: str
    note: str
    origin: str
    at_ms: int
    write_id: str

    @property
    def count(self) -> int:
        """The number of dead letters."""
        return count_rows(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveWithdrawal:
    """`redrives/<n>.withdrawn.json`: no plan that is made from now on takes up a request.

    Attributes:
        number: number of the request.
        owner: the person who withdrew it.
        at_ms: clock of the writer, for people.
        write_id: id of the writer.
    """

    number: int
    owner: str
    at_ms: int
    write_id: str


def letter_place(row: Mapping[str, Any]) -> LetterPlace:
    """Returns the place of a row of a dead-letter table."""
    return row["topic"], row["partition"], row["offset"], tuple(row["path"] or ())


def missing_letters(redrive: Redrive, found: int) -> StoreError:
    """Returns the error for a table that has not exactly the frozen rows."""
    return StoreError(
        f"{redrive.uid}: {redrive.count} dead letters were to be redriven, its table has {found} of them",
        safe="every completed checkpoint is intact; nothing was published.",
        next="run the pipeline again; if it fails again, withdraw the request with tidemark dead-letters withdraw,"
        " and give the plan up with tidemark checkpoint abort.",
    )


def count_rows(rows: Iterable[LetterRows]) -> int:
    """Returns the number of dead letters."""
    return sum(within.span for each in rows for within in each.offsets)


def expand_rows(rows: Iterable[LetterRows]) -> set[LetterRow]:
    """Returns the single rows.

    Example:
        >>> place = TopicPartition("flights", 0)
        >>> held = LetterRows(checkpoint=3, topic_id="x", partition=place, offsets=(OffsetRange(4, 6),))
        >>> sorted(row.offset for row in expand_rows([held]))
        [4, 5]
    """
    return {row for each in rows for row in each}


def group_rows(rows: Iterable[LetterRow]) -> tuple[LetterRows, ...]:
    """Returns rows in their stored form, in one order whatever the order of `rows`; the inverse of `expand_rows`."""

    def place(row: LetterRow) -> tuple[int, str, TopicPartition, Path]:
        return row.checkpoint, row.topic_id, TopicPartition(row.topic, row.partition), row.path

    return tuple(
        LetterRows(
            checkpoint=checkpoint,
            topic_id=topic_id,
            partition=partition,
            offsets=tuple(_ranges(row.offset for row in found)),
            path=path,
        )
        for (checkpoint, topic_id, partition, path), found in groupby(
            sorted(set(rows), key=lambda row: (*place(row), row.offset)), key=place
        )
    )


def redriven_places(records: OffsetCoverage, topic_ids: Mapping[str, str]) -> Iterator[LetterPlace]:
    """Yields the places of redriven records, as `Redrive.coverage` names them; those of other topics are left out."""
    names = {number: topic for topic, number in topic_ids.items()}
    for tp, ranges in records.by_id.items():
        topic_id, *path = tp.topic.split(_AFTER)
        if topic_id in names:
            for within in ranges:
                for offset in range(within.start, within.end):
                    yield names[topic_id], tp.partition, offset, tuple(map(int, path))


def without_paths(records: OffsetCoverage) -> OffsetCoverage:
    """Returns the records of Kafka behind redriven records."""
    found = OffsetCoverage()
    for tp, ranges in records.by_id.items():
        found |= OffsetCoverage({TopicPartition(tp.topic.partition(_AFTER)[0], tp.partition): ranges})
    return found


def _ranges(ascending: Iterable[int]) -> Iterator[OffsetRange]:
    start = end = -1
    for offset in ascending:
        if offset != end:
            if end > start:
                yield OffsetRange(start, end)
            start = offset
        end = offset + 1
    if end > start:
        yield OffsetRange(start, end)
