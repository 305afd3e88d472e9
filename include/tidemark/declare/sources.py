"""Where records come from: Kafka topics, and tables that operators look into."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from tidemark.errors import DeclarationError
from tidemark.formats.json import Json
from tidemark.formats.record_format import RecordFormat
from tidemark.model.core.names import checked_name
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.core.types import FieldType, record_type
from tidemark.model.schema.binding import bind_key, bind_latest
from tidemark.model.schema.operator_schema import OperatorSchema

Start = Literal["earliest", "latest", "committed"] | datetime | Mapping[TopicPartition, int]
"""Where a pipeline's first checkpoint starts (J6); a datetime is the first record at or after it, else the end."""


@dataclass(frozen=True)
class TopicPattern:
    """Every topic whose whole name matches a regular expression of Python's `re` (J5)."""

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
    """A bounded read of Kafka topics.

    Attributes:
        topics: one topic, several, a `TopicPattern`, or an explicit set of `TopicPartition`s (J5).
        record: dataclass that a value is decoded to.
        event_time: the datetime field of the record that is its event time; None = the Kafka timestamp.
        start: where the first checkpoint starts; later ones start where their parent ended (I6).
        isolation: Kafka's isolation level; stored in every manifest (J11).
        group: consumer group whose offsets are set after completion, for lag monitoring only (J10), and read
            once by `start="committed"`.
        format: what the bytes of a value mean: `formats.Json()`, `formats.Text()`, or a format of your own.
    """

    topics: str | Sequence[str] | TopicPattern | frozenset[TopicPartition]
    record: type
    event_time: str | None = None
    start: Start = "earliest"
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    group: str | None = None
    format: RecordFormat = field(default=Json(), kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.topics, TopicPattern | str | frozenset):
            object.__setattr__(self, "topics", tuple(self.topics))
        for name in self.names:
            checked_name("topic", name)
        if not self.names and not isinstance(self.topics, TopicPattern):
            raise DeclarationError("a source without topics", next="name at least one topic.")
        if not isinstance(self.format, RecordFormat):
            raise DeclarationError(f"format={self.format!r} is no format", next="give an instance: formats.Text().")
        if self.event_time is not None:
            found = self.schema.at(self.event_time)
            if found is None or found.kind != "timestamp" or found.nullable:
                raise DeclarationError(
                    f"event_time={self.event_time!r} is not a datetime field of {self.record.__name__}",
                    next="name a field declared `datetime` (not optional), or leave event_time out.",
                )

    @property
    def schema(self) -> FieldType:
        """The struct that a value is decoded to."""
        return self.format.bind(self.record)

    @property
    def names(self) -> tuple[str, ...]:
        """The topics, as named; none for a pattern, because what it matches is known to Kafka only."""
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


@dataclass(frozen=True)
class DeltaTable:
    """A Delta table of somebody else's, copied into a table of ours when it changes.

    Attributes:
        path: folder or URL of the table; absolute, because each step of a checkpoint may start in another folder.
        record: dataclass of the columns that are used.
    """

    path: str
    record: type

    def __post_init__(self) -> None:
        if not self.path:
            raise DeclarationError("a DeltaTable without a path", next="name the table's folder.")
        if "://" not in self.path and not self.path.startswith("/"):
            raise DeclarationError(f"a DeltaTable at a relative path: {self.path}", next="give all of it, or a URL.")
        record_type(self.record)

    @property
    def schema(self) -> FieldType:
        """The struct that a row is read as."""
        return record_type(self.record)


@dataclass(frozen=True)
class Broadcast:
    """A small table that every key of a `Process` may look into, or a `Fold` may join: Flink's broadcast state (A11).

    Rows of a checkpoint's range are applied before its keyed records, so that all keys see one version: that of the
    barrier. For equal keys the row latest in (topic, partition, offset) counts, or in event time where the source
    declares one; a record without a value deletes the key that its message key names. Broadcast records do not move
    the watermark.

    Attributes:
        uid: names the state, as an operator's uid does.
        source: what it is read from.
        key_by: record field, or several, that make the key.
        max_keys: a state with more keys is a `StateOverflowError`: every worker holds all of it.
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
        self.bind()

    def bind(self) -> OperatorSchema:
        """The stored schema: the keys, and the latest of every other field of the record.

        Raises:
            DeclarationError: a key is no field of the record itself, or all fields are keys.
        """
        record = self.source.schema
        keys = tuple(bind_key(self.uid, source, record) for source in self.key_by)
        rest = [name for name, _ in record.fields if name not in self.key_by]
        if any("." in source for source in self.key_by) or not rest:
            raise DeclarationError(
                f"{self.uid}: key_by={self.key_by!r}", next="key by fields of the record itself, not by all of them."
            )
        kept = tuple(bind_latest(name, record) for name in rest)
        return OperatorSchema(self.uid, keys, kept, deletes=True)
