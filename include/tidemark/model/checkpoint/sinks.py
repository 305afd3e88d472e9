"""Where emitted records go: a Delta table of their own per sink and timeline, named by manifests as state is (J1)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark.model.checkpoint.codec import ADDED
from tidemark.model.checkpoint.offset_coverage import OffsetCoverage, Ranges
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from tidemark.sinks.sink import Sink, SinkTraits

Columns = tuple[tuple[str, str], ...]
"""(column, SQL type), in order."""
ROW_ID: tuple[tuple[str, str], ...] = (
    ("_uid", "STRING"),
    ("_topic", "STRING"),
    ("_partition", "INT"),
    ("_offset", "BIGINT"),
    ("_n", "BIGINT"),
)
"""Columns that identify an emitted record, behind its fields: by whom, for which record, its number there (J16)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTable:
    """The table of one sink on one timeline.

    Attributes:
        name: of the sink.
        kind: which sink of `sinks.known_sinks` it is; what follows from that is asked of `traits`.
        path: the table that rows go to now, relative to the warehouse; a sink that keeps none has one only by name.
        columns: (column, SQL type) of the emitted fields, in order.
        topic: of a Kafka sink; None where 0.1 planned one on a fork, which sent nothing.
        key_by: of a Kafka sink: the field that becomes the message key.
        handle: what lies in it; in a plan as the parent left it.
        older: per path of a table that was begun with other columns those that are still read (C9).
        emitted_until: written by 0.1 in place of `covered`: per partition the offset below which rows are skipped.
        covered: the source offsets whose rows are there already, or were sent, before the plan that holds it: an
            operator emits nothing for them, so that nothing is doubled (I8). A timeline that was restored with its
            sinks kept starts with what the closed one had. Of an outbox it holds what other timelines sent; what its
            own checkpoints sent is in their delivery records. None in objects of 0.1.
        options: what other sinks than those to Delta and Kafka store (`Sink.stored`).
    """

    name: str
    kind: str
    path: str
    columns: Columns
    topic: str | None = None
    key_by: str | None = None
    handle: StateHandle = field(default=StateHandle())
    older: Mapping[str, Columns] = field(default_factory=dict, metadata=ADDED)
    emitted_until: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=ADDED)
    covered: OffsetCoverage | None = field(default=None, metadata=ADDED)
    options: Mapping[str, str] = field(default_factory=dict, metadata=ADDED)

    @property
    def sink(self) -> "Sink | None":
        """The sink that rows are written to; None for one of 0.1 that nothing is written to."""
        # Most commands ask for none, and a sink is made of the table that asks.
        from tidemark.sinks.known_sinks import sink_class

        return sink_class(self.kind).thaw(self)

    @property
    def traits(self) -> "SinkTraits":
        """How rows reach it."""
        from tidemark.sinks.known_sinks import traits_of

        return traits_of(self.kind)

    @property
    def stored(self) -> Columns:
        """All columns of the table, before its partition columns."""
        return (*self.columns, *ROW_ID)

    def columns_of(self, path: str) -> Columns:
        """Emitted fields, as far as they are read, in one of its tables."""
        return self.older.get(path, self.columns)

    def coverage(self, topic_ids: Mapping[str, str]) -> OffsetCoverage:
        """What is covered; `topic_ids` are those of the object that holds the table, for one that 0.1 wrote."""
        return OffsetCoverage.below(self.emitted_until, topic_ids) if self.covered is None else self.covered

    def skipped(
        self, ranges: Mapping[TopicPartition, OffsetRange], topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, Ranges]:
        """The offsets of a plan whose rows are not emitted, because they are covered."""
        return self.coverage(topic_ids).within(ranges, topic_ids)

    def lacks(self, topic: str, partition: int, offset: int, topic_ids: Mapping[str, str]) -> bool:
        """Whether what is emitted for a record is yet to be written; `topic_ids` are those of the plan."""
        return not self.coverage(topic_ids).covers(TopicPartition(topic, partition), offset, topic_ids)

    @property
    def is_sent(self) -> bool:
        """Whether attempts write its rows to the sink themselves; not on a fork of 0.1, which has no topic."""
        return not self.keeps_rows and self.sink is not None

    @property
    def destination(self) -> str:
        """Where rows end up that leave the warehouse, for messages to people."""
        return f"sink {self.name}" if self.sink is None else self.sink.destination

    @property
    def keeps_rows(self) -> bool:
        """Whether emitted rows are written to its table."""
        return self.traits.keeps_rows

    @property
    def is_transactional(self) -> bool:
        """Whether readers read its table, so that nothing leaves it."""
        return self.traits.is_transactional

    @property
    def needs_delivery(self) -> bool:
        """Whether its table is an outbox."""
        return self.traits.needs_delivery

    @property
    def goes_back_on_restore(self) -> bool:
        """Whether a restore may take rows back."""
        return self.traits.goes_back_on_restore


def sink_path(pipeline: str, folder: str, name: str, timeline: str) -> str:
    """The table of a sink, relative to the warehouse (design section 6)."""
    return f"{pipeline}/{folder}/{name}/{timeline}"
