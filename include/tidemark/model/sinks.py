"""Where emitted records go: a Delta table of their own per sink and timeline, named by manifests as state is (J1)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidemark.model.codec import ADDED
from tidemark.model.offsets import TopicPartition
from tidemark.model.segments import StateHandle

Columns = tuple[tuple[str, str], ...]
"""(column, SQL type), in order."""
SinkKind = Literal["delta", "kafka", "topic"]
ROW_ID: tuple[tuple[str, str], ...] = (
    ("_uid", "STRING"),
    ("_topic", "STRING"),
    ("_partition", "INT"),
    ("_offset", "BIGINT"),
    ("_n", "BIGINT"),
)
"""Columns that identify an emitted record, behind its fields: by whom, for which record, its number there (J16)."""
_FOLDERS: dict[str, str] = {"delta": "sinks", "kafka": "outbox", "topic": "outbox"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTable:
    """The table of one sink on one timeline.

    Attributes:
        name: of the sink.
        kind: `delta`, a table to read; `kafka`, an outbox that is sent after the manifest; or `topic`, which keeps
            nothing: the attempt sends to the topic itself, before it is sealed (D9).
        path: the table that rows go to now, relative to the warehouse; a `topic` has one only by name.
        columns: (column, SQL type) of the emitted fields, in order.
        topic: of a Kafka sink; None for a `topic` of a timeline that is not live: a fork never sends (J2).
        key_by: of a Kafka sink: the field that becomes the message key.
        handle: what lies in it; in a plan as the parent left it.
        older: per path of a table that was begun with other columns those that are still read (C9).
        emitted_until: per partition the offset below which what is emitted is there already, or was sent: a restored
            timeline whose sinks did not go back with the state skips it, so that nothing is doubled (I8).
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

    @property
    def stored(self) -> Columns:
        """All columns of the table, before its partition columns."""
        return (*self.columns, *ROW_ID)

    def columns_of(self, path: str) -> Columns:
        """Emitted fields, as far as they are read, in one of its tables."""
        return self.older.get(path, self.columns)

    def lacks(self, topic: str, partition: int, offset: int) -> bool:
        """Whether what is emitted for a record is yet to be written."""
        return offset >= self.emitted_until.get(TopicPartition(topic, partition), 0)

    @property
    def keeps_rows(self) -> bool:
        """Whether emitted rows are written to its table."""
        return self.kind != "topic"


def sink_path(pipeline: str, kind: SinkKind, name: str, timeline: str) -> str:
    """The table of a sink, relative to the warehouse (design section 6)."""
    return f"{pipeline}/{_FOLDERS[kind]}/{name}/{timeline}"
