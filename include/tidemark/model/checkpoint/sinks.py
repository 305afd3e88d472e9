"""Where emitted records go: a Delta table per sink and timeline, named by manifests as state is."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.model.checkpoint.codec import ADDED
from tidemark.model.checkpoint.segments import StateHandle, current_rows_path
from tidemark.model.checkpoint.sink_traits import SinkTraits, traits_of
from tidemark.model.core.offsets import OffsetCoverage, TopicPartition

Columns = tuple[tuple[str, str], ...]
"""(column, SQL type), in order."""
PATH, FIRST_PATH = "_path", "_n"
"""The column of a row's path, and that of 0.1, which had one number."""
ROW_ID: tuple[tuple[str, str], ...] = (
    ("_uid", "STRING"),
    ("_topic", "STRING"),
    ("_partition", "INT"),
    ("_offset", "BIGINT"),
    (PATH, "ARRAY<BIGINT>"),
)
"""Columns after the fields that identify an emitted record: its operator, the source record, and its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTable:
    """The table of one sink on one timeline.

    Attributes:
        name: name of the sink.
        kind: kind of the sink in `sinks.known_sinks`; use `traits` to ask what follows from it.
        path: the current table, relative to the warehouse; for a sink without rows it is only a name.
        columns: (column, SQL type) of the emitted fields, in order.
        topic: of a Kafka sink; None if release 0.1 planned one on a fork, which sent nothing.
        key_by: of a Kafka sink: the field that becomes the message key.
        handle: contents of the table; in a plan as the parent left it.
        older: the columns that are still read, per path of a table that was begun with other columns.
        emitted_until: written by release 0.1 in place of `covered`: per partition the offset below which rows are
            skipped.
        covered: the source offsets whose rows are already there, or were sent, before the plan that holds this table,
            and the checkpoints that redrove records (`checkpoint.emitted`). An operator emits nothing for them, so that
            nothing is duplicated. A timeline restored with its sinks kept starts with
            the coverage of the closed one. For an outbox it contains what other timelines sent; delivery records
            contain what its own checkpoints sent. None in objects of release 0.1.
        options: the stored options of sinks other than Delta and Kafka (`Sink.stored`).
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
    def traits(self) -> SinkTraits:
        """How rows reach the sink."""
        return traits_of(self.kind)

    @property
    def stored(self) -> Columns:
        """All columns of the table, before its partition columns."""
        return (*self.columns, *ROW_ID)

    def columns_of(self, path: str) -> Columns:
        """Returns the emitted fields in one of its tables, as far as they are read."""
        return self.older.get(path, self.columns)

    def coverage(self, topic_ids: Mapping[str, str]) -> OffsetCoverage:
        """Returns the coverage; `topic_ids` are those of the object with the table, for a table of release 0.1."""
        return OffsetCoverage.below(self.emitted_until, topic_ids) if self.covered is None else self.covered

    @property
    def is_sent(self) -> bool:
        """Whether attempts write its rows to the sink themselves; false on a fork of 0.1, which has no topic."""
        return not self.keeps_rows and not (self.traits.needs_topic and self.topic is None)

    @property
    def keeps_rows(self) -> bool:
        """Whether emitted rows are written to its table."""
        return self.traits.keeps_rows

    @property
    def is_transactional(self) -> bool:
        """Whether readers read its table, so that nothing is sent from it."""
        return self.traits.is_transactional

    @property
    def needs_delivery(self) -> bool:
        """Whether its table is an outbox."""
        return self.traits.needs_delivery

    @property
    def goes_back_on_restore(self) -> bool:
        """Whether a restore may remove rows."""
        return self.traits.goes_back_on_restore


def sink_path(pipeline: str, folder: str, name: str, timeline: str) -> str:
    """Returns the table of a sink, relative to the warehouse."""
    return current_rows_path(f"{pipeline}/{folder}/{name}/{timeline}")
