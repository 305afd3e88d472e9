"""Where records come from: Kafka topics, and tables that operators look into."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from typing import Literal

from tidemark.declare.operators import bind_key, bind_latest
from tidemark.declare.watermark import Watermark
from tidemark.errors import DeclarationError
from tidemark.formats.envelope import bind_record, pin_envelope
from tidemark.formats.json import Json
from tidemark.formats.record_format import RecordFormat
from tidemark.model.core.names import checked_name
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.core.origins import Origin
from tidemark.model.core.types import FieldType, record_type
from tidemark.model.schema.operator_schema import OperatorSchema

Start = Literal["earliest", "latest", "committed"] | datetime | Mapping[TopicPartition, int]
"""Where the first checkpoint starts; a datetime means the first record at or after it, or the end if there is none."""


@dataclass(frozen=True)
class TopicPattern:
    r"""Matches every topic whose whole name matches a regular expression in the syntax of Python's `re`.

    >>> from dataclasses import dataclass
    >>> from tidemark import KafkaSource, TopicPattern
    >>> @dataclass(frozen=True)
    ... class Order:
    ...     amount: int
    >>> source = KafkaSource(TopicPattern(r"orders\.(eu|us)"), Order)
    >>> source.names_topic("orders.eu"), source.names_topic("orders.eu.retry")
    (True, False)
    """

    regex: str

    def __post_init__(self) -> None:
        try:
            re.compile(self.regex)
        except (re.error, OverflowError, RecursionError, TypeError) as error:
            raise DeclarationError(
                f"not a regular expression: {self.regex!r} ({error})", next="correct the TopicPattern."
            ) from error
        if not self.regex:
            raise DeclarationError(
                "an empty TopicPattern matches no topic", next="name the topics, or match them all: '.*'."
            )


@dataclass(frozen=True)
class KafkaSource:
    """Reads a bounded range of records from Kafka topics.

    >>> from dataclasses import dataclass
    >>> from datetime import datetime
    >>> from tidemark import KafkaSource
    >>> @dataclass(frozen=True)
    ... class Flight:
    ...     origin: str
    ...     departure: datetime
    >>> KafkaSource("flights", Flight, event_time="departure").names
    ('flights',)

    Attributes:
        topics: one topic, several topics, a `TopicPattern`, or a set of `TopicPartition`s.
        record: dataclass to which values are decoded; it may have Kafka's own fields, such as `kafka.timestamp()`.
        event_time: the datetime field of the record with the event time; None = the Kafka timestamp.
        start: where the first checkpoint starts; every later one starts where its parent ended.
        isolation: the Kafka isolation level; stored in every manifest.
        group: consumer group whose offsets Tidemark sets after each checkpoint, for lag monitoring only; it reads them
            once, for `start="committed"`.
        format: the format of values: `formats.Json()`, `formats.Text()`, or your own.
        watermark: how late its records may come; None = the source has no clock.
    """

    topics: str | Sequence[str] | TopicPattern | frozenset[TopicPartition]
    record: type
    event_time: str | None = None
    start: Start = "earliest"
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    group: str | None = None
    format: RecordFormat = field(default=Json(), kw_only=True)
    watermark: Watermark | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.topics, TopicPattern | str | frozenset):
            object.__setattr__(self, "topics", tuple(self.topics))
        for name in self.names:
            checked_name("topic", name)
        if not self.names and not isinstance(self.topics, TopicPattern):
            raise DeclarationError("a source without topics", next="name at least one topic.")
        if not isinstance(self.format, RecordFormat):
            raise DeclarationError(f"format={self.format!r} is not a format", next="give an instance: formats.Text().")
        if self.watermark is not None and not isinstance(self.watermark, Watermark):
            raise DeclarationError(
                f"watermark={self.watermark!r} is not a watermark", next='give a Watermark(delay="5m").'
            )
        if self.event_time is not None:
            found = self.schema.at(self.event_time)
            if found is None or found.kind != "timestamp" or found.nullable:
                raise DeclarationError(
                    f"event_time={self.event_time!r} is not a datetime field of {self.record.__name__}",
                    next="name a field declared `datetime` (not optional), or leave event_time out.",
                )

    @property
    def schema(self) -> FieldType:
        """The struct of its records: what the format decodes, and Kafka's own fields."""
        return bind_record(self.format, self.record) if self._has_origins else self.format.bind(self.record)

    @property
    def event_time_type(self) -> FieldType:
        """The struct that has only the event time, where records have it; without fields for Kafka's timestamp."""
        found = None if self.event_time is None else self.schema.field_at(self.event_time)
        if found is None or self.event_time is None:
            return FieldType("struct")
        for step in reversed(self.event_time.split(".")):
            found = FieldType("struct", fields=((step, found),))
        return found

    @property
    def pinned(self) -> dict[str, str]:
        """What a plan pins of its format and of its record's envelope; nothing for JSON without Kafka's own fields."""
        return {**self.format.freeze(), **(pin_envelope(self.schema) if self._has_origins else {})}

    @property
    def _has_origins(self) -> bool:
        return is_dataclass(self.record) and any(isinstance(f.default, Origin) for f in fields(self.record))

    @property
    def names(self) -> tuple[str, ...]:
        """The declared topics; empty for a pattern, because only Kafka knows the matching topics."""
        if isinstance(self.topics, TopicPattern):
            return ()
        if isinstance(self.topics, frozenset):
            return tuple(sorted({tp.topic for tp in self.topics}))
        return (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)

    def reads(self, tp: TopicPartition) -> bool:
        """Whether the source reads a partition."""
        if isinstance(self.topics, frozenset):
            return tp in self.topics
        return self.names_topic(tp.topic)

    def names_topic(self, topic: str) -> bool:
        """Whether the source reads any partition of a topic."""
        if isinstance(self.topics, TopicPattern):
            return re.fullmatch(self.topics.regex, topic) is not None
        return topic in self.names


_VERSIONS = ("latest", "first")
"""Kinds of state whose answer is one version of a row."""


def bind_changes(schema: OperatorSchema, source: KafkaSource) -> OperatorSchema:
    """Returns the schema of an operator that reads a source, whose records may be changes of rows.

    Raises:
        DeclarationError: it is a fold of changes that would count versions of rows, or keep rows that are gone.
    """
    if not source.format.has_changes:
        return schema
    found = replace(schema, changes=True)
    if not found.has_row_keys:
        return found
    called, record = type(source.format).__name__, dict(source.schema.fields)
    at = f"{schema.uid}: a Fold of {called} records"
    wrong = [f"{f.name} is a state.{f.state_kind.shown}" for f in schema.fields if f.kind not in _VERSIONS]
    if wrong:
        raise DeclarationError(
            f"{at}: {', '.join(wrong)}, which would count every version of a row",
            next=f"keep state.latest or state.first, or declare a Process, which compares the record with "
            f"{called.lower()}.before().",
        )
    if schema.where is not None:
        raise DeclarationError(
            f"{at}: where=: a row that an update takes out of the condition would stay as it was",
            next="fold all rows, and filter when you read the state; or declare a Process.",
        )
    if any(k.source != k.name or k.name not in record or record[k.name].origin for k in schema.keys):
        raise DeclarationError(
            f"{at}: key_by=: the message key is the key",
            next="name the columns of the primary key, all of them: they are fields of the record.",
        )
    return found


@dataclass(frozen=True)
class DeltaTable:
    """An external Delta table; Tidemark copies it into a table of its own when it changes.

    Attributes:
        path: folder or URL of the table. It must be absolute, because each step of a checkpoint may run in another
            working directory.
        record: dataclass of the columns that you use.
    """

    path: str
    record: type

    def __post_init__(self) -> None:
        if not self.path:
            raise DeclarationError("a DeltaTable without a path", next="name the table's folder.")
        if "://" not in self.path and not self.path.startswith("/"):
            raise DeclarationError(
                f"a DeltaTable at a relative path: {self.path}", next="give an absolute path or a URL."
            )
        record_type(self.record)

    @property
    def schema(self) -> FieldType:
        """The struct to which a row is decoded."""
        return record_type(self.record)


@dataclass(frozen=True)
class Broadcast:
    """A small table that every key of a `Process` may look into, or a `Fold` may join: Flink's broadcast state.

    All keys of a checkpoint see one version, that at the barrier: rows in its range are applied before its keyed
    records. Of several rows with the same key the last one by (topic, partition, offset) counts, or the latest by event
    time if the source declares one. A record without a value deletes the key in its message key. Broadcast records do
    not advance the watermark.

    Attributes:
        uid: names the state, as the uid of an operator does.
        source: the topics or table to read.
        key_by: the record field, or fields, that make the key.
        max_keys: a state with more keys is a `StateOverflowError`, because every worker holds all of it.
    """

    uid: str
    source: KafkaSource | DeltaTable
    key_by: str | Sequence[str]
    max_keys: int = 100_000

    def __post_init__(self) -> None:
        checked_name("uid", self.uid)
        if self.max_keys < 1:
            raise DeclarationError(f"{self.uid}: max_keys={self.max_keys}", next="allow at least one key.")
        keys = (self.key_by,) if isinstance(self.key_by, str) else tuple(self.key_by)
        if not keys or len(set(keys)) != len(keys):
            raise DeclarationError(
                f"{self.uid}: key_by={self.key_by!r}", next="name one record field or several different ones."
            )
        object.__setattr__(self, "key_by", keys)
        if isinstance(self.source, KafkaSource) and self.source.watermark is not None:
            raise DeclarationError(
                f"{self.uid}: a broadcast state has no watermark", next="omit watermark= of its source."
            )
        self.bind()

    def bind(self) -> OperatorSchema:
        """Returns the stored schema: the key columns, and the latest value of every other field of the record.

        Raises:
            DeclarationError: a key is not a field of the record itself, or all fields are keys.
        """
        record = self.source.schema
        keys = tuple(bind_key(self.uid, source, record) for source in self.key_by)
        rest = [name for name, _ in record.fields if name not in self.key_by]
        if any("." in source for source in self.key_by) or not rest:
            raise DeclarationError(
                f"{self.uid}: key_by={self.key_by!r}", next="key by fields of the record itself, not by all of them."
            )
        kept = tuple(bind_latest(name, record) for name in rest)
        schema = OperatorSchema(self.uid, keys, kept, deletes=True)
        return schema if isinstance(self.source, DeltaTable) else bind_changes(schema, self.source)
