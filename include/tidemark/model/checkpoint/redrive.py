"""Redriven dead letters as values: the rows that a request asks for, and that a plan freezes (adr/0040)."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

from tidemark.errors import StoreError
from tidemark.model.checkpoint.codec import ADDED
from tidemark.model.core.offsets import OffsetCoverage, OffsetRange, TopicPartition


class LetterRow(NamedTuple):
    """A dead letter of one operator. A record that was refused twice has two, of different checkpoints.

    The table is no part of it: a compaction on a fork, or after a rename, moves the row to another one.

    Attributes:
        checkpoint: id of the checkpoint that wrote the row.
        topic: topic of the record.
        topic_id: Kafka's id of the topic when that checkpoint read it.
        partition: partition of the record.
        offset: offset of the record.
    """

    checkpoint: int
    topic: str
    topic_id: str
    partition: int
    offset: int

    @property
    def record(self) -> tuple[str, str, int, int]:
        """The record: topic, topic id, partition and offset; equal on every timeline."""
        return (self.topic, self.topic_id, self.partition, self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRows:
    """Dead letters of one operator, checkpoint and partition.

    Attributes:
        checkpoint: id of the checkpoint that wrote the rows.
        topic_id: Kafka's id of the topic when that checkpoint read it.
        partition: topic and partition of the records.
        offsets: the offsets, as disjoint ranges in ascending order; every offset in them has a row.
    """

    checkpoint: int
    topic_id: str
    partition: TopicPartition
    offsets: tuple[OffsetRange, ...]

    def __iter__(self) -> Iterator[LetterRow]:
        of = self.partition
        for within in self.offsets:
            for offset in range(within.start, within.end):
                yield LetterRow(self.checkpoint, of.topic, self.topic_id, of.partition, offset)


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
        """The records, by the ids of their topics."""
        found: dict[TopicPartition, tuple[OffsetRange, ...]] = {}
        for each in self.rows:
            place = TopicPartition(each.topic_id, each.partition.partition)
            found[place] = (*found.get(place, ()), *each.offsets)
        return OffsetCoverage() | OffsetCoverage(found)  # the union orders and joins ranges

    def coverage_at(self, places: Collection[tuple[str, int, int]]) -> OffsetCoverage:
        """The records at some positions (topic, partition, offset), by the ids of their topics."""
        rows = (row for row in expand_rows(self.rows) if (row.topic, row.partition, row.offset) in places)
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

    def place(row: LetterRow) -> tuple[int, str, TopicPartition]:
        return row.checkpoint, row.topic_id, TopicPartition(row.topic, row.partition)

    return tuple(
        LetterRows(
            checkpoint=checkpoint,
            topic_id=topic_id,
            partition=partition,
            offsets=tuple(_ranges(row.offset for row in found)),
        )
        for (checkpoint, topic_id, partition), found in groupby(
            sorted(set(rows), key=lambda row: (*place(row), row.offset)), key=place
        )
    )


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
