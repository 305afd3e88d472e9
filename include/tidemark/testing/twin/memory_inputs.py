"""Decodes the records of one input as they are read, and separates good ones from dead letters."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemark.declare.pipeline import Pipeline
from tidemark.formats.emitted_records import EMITTED_FORMAT
from tidemark.formats.envelope import decode_record, has_headers
from tidemark.formats.json import decode_key, decode_row_key
from tidemark.formats.record_format import BadRecord, RecordFormat
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.redrive import letter_place
from tidemark.model.core.log_records import LogRecord
from tidemark.model.core.offsets import Path, TopicPartition
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.testing.twin.fold import Decoded, Deleted

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecord:
    """A record before it is decoded, with the columns of a dead letter."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    path: Path = ()

    @classmethod
    def of_log(cls, tp: TopicPartition, record: LogRecord) -> "RawRecord":
        """Returns a record of the log."""
        at = EPOCH + record.timestamp_ms * MS
        return cls(
            topic=tp.topic,
            partition=tp.partition,
            offset=record.offset,
            timestamp=at,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )

    @classmethod
    def of_letter(cls, row: Mapping[str, Any]) -> "RawRecord":
        """Returns the record of a dead letter."""
        topic, partition, offset, path = letter_place(row)
        key, value = row["key"], row["value"]
        return cls(
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp=row["timestamp"],
            key=key,
            value=value,
            headers=tuple((h["key"], h["value"]) for h in row["headers"] or ()),
            path=path,
        )

    @classmethod
    def of_emitted(cls, record: Decoded) -> "RawRecord":
        """Returns a record that an operator has emitted."""
        return cls(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp=record.event_time,
            key=None,
            value=EMITTED_FORMAT.encode(record.fields),
            path=record.path,
        )

    @property
    def tp(self) -> TopicPartition:
        """Its partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def logged(self) -> LogRecord:
        """The record as the log has it."""
        at = (self.timestamp - EPOCH) // MS
        return LogRecord(offset=self.offset, timestamp_ms=at, key=self.key, value=self.value, headers=self.headers)

    @property
    def position(self) -> tuple[str, int, int, Path]:
        """Topic, partition, offset and path."""
        return (self.topic, self.partition, self.offset, self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDeadLetter:
    """A record that no operator can apply."""

    record: RawRecord
    reason: str

    def row(self, uid: str) -> dict[str, object]:
        """Returns the row of the dead-letter table of an operator."""
        of = self.record
        return {
            "topic": of.topic,
            "partition": of.partition,
            "offset": of.offset,
            "timestamp": of.timestamp,
            "uid": uid,
            "reason": self.reason,
            "key": of.key,
            "value": of.value,
            "headers": [{"key": name, "value": value} for name, value in of.headers] or None,
            "path": list(of.path) or None,
        }


class MemoryInput:
    """The records of one input.

    Attributes:
        good: decoded records.
        raw: the same records as stored in the log, by position.
        letters: records that could not be decoded.
        bytes: key and value bytes of all records.
    """

    def __init__(self, pipeline: Pipeline, plan: CheckpointPlan, name: str, format: RecordFormat) -> None:
        """Begins without records; `name` is an input, or the operator that emits the records."""
        source = pipeline.inputs.get(name)
        self._event_time = None if source is None else source.event_time
        self._is_broadcast = source is not None and name not in pipeline.sources
        self._format, self._record = format, pipeline.input_record(name)
        self._limit = None if source is None else EPOCH + plan.logical_time_ms * MS + pipeline.max_future
        self.good: list[Decoded] = []
        self.raw: dict[tuple[str, int, int, Path], RawRecord] = {}
        self.letters: list[MemoryDeadLetter] = []
        self.bytes = 0

    @property
    def records(self) -> int:
        """The number of records read."""
        return len(self.good) + len(self.letters)

    @property
    def greatest_ms(self) -> dict[TopicPartition, int]:
        """The greatest event time of a good record per partition; empty for broadcast inputs, as in the engine."""
        found: dict[TopicPartition, int] = {}
        for r in () if self._is_broadcast else self.good:
            tp, at = TopicPartition(r.topic, r.partition), (r.event_time - EPOCH) // MS
            found[tp] = max(at, found.get(tp, at))
        return found

    def take(self, records: Iterable[RawRecord]) -> None:
        """Adds records; like Spark it reads their headers only if a field is one."""
        with_headers = has_headers(self._record)
        for record in records if with_headers else (replace(r, headers=()) for r in records):
            self.bytes += len(record.key or b"") + len(record.value or b"")
            try:
                self.good.append(self._decoded(record))
                self.raw[record.position] = record
            except BadRecord as error:
                self.letters.append(MemoryDeadLetter(record=record, reason=str(error)))

    def row_key(self, record: RawRecord, schema: OperatorSchema) -> tuple[Any, ...]:
        """Returns the key of a change.

        Raises:
            BadRecord: the message key names none.
        """
        return decode_row_key(self._format.row_key(record.key), [(k.name, k.type) for k in schema.keys])

    def row_key_or_none(self, record: RawRecord, schema: OperatorSchema) -> tuple[Any, ...]:
        """Returns the key of a change; nulls if the message key names none, or does not decide."""
        try:
            return self.row_key(record, schema) if schema.has_row_keys else (None,) * len(schema.keys)
        except BadRecord:
            return (None,) * len(schema.keys)

    def joined(self, other: "MemoryInput") -> "MemoryInput":
        """Returns the records of both."""
        made = copy(self)
        made.good, made.letters = self.good + other.good, self.letters + other.letters
        made.raw = {**other.raw, **self.raw}
        return made

    def _decoded(self, record: RawRecord) -> Decoded:
        found = Decoded(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            path=record.path,
            event_time=EPOCH if self._is_broadcast else record.timestamp,
            fields=decode_record(self._format, self._record, record.tp, record.logged),
        )
        if self._event_time is not None:
            found = replace(found, event_time=found.at(self._event_time))
        if self._limit is not None and found.event_time > self._limit:
            raise BadRecord(Reason.IN_THE_FUTURE.value)
        return found


def schema_ids(read: Sequence[RawRecord], *, keys: bool = False) -> set[int]:
    """Returns the ids of the schemas that values name by Confluent's frame; the twin of `engine.read.frames`."""
    values = [record.value or b"" for record in read] + [record.key or b"" for record in read if keys]
    return {int.from_bytes(value[1:5]) for value in values if len(value) >= 5 and value[0] == 0}


# Records without a value, which delete the key in their message key; the twin of `engine.deleting`.
def deletes(intake: MemoryInput, schema: OperatorSchema) -> list[Deleted]:
    """Returns the records of an input that an operator treats as deletes."""
    return [d for letter in intake.letters if isinstance(d := _judged(letter, intake, schema), Deleted)]


def list_refused(intake: MemoryInput, schema: OperatorSchema) -> list[MemoryDeadLetter]:
    """Returns the records of an input that could not be decoded and are not deletes for the operator."""
    return [x for letter in intake.letters if isinstance(x := _judged(letter, intake, schema), MemoryDeadLetter)]


def skipped(intake: MemoryInput, schema: OperatorSchema) -> list[Deleted]:
    """Returns the deletes of rows that an operator filters, because it takes none; their keys may be nulls."""
    if not schema.changes or schema.deletes:
        return []
    found = [letter.record for letter in intake.letters if letter.reason == Reason.NULL_VALUE.value]
    return [_deleted(record, intake.row_key_or_none(record, schema)) for record in found]


def _judged(letter: MemoryDeadLetter, intake: MemoryInput, schema: OperatorSchema) -> MemoryDeadLetter | Deleted | None:
    if letter.reason != Reason.NULL_VALUE.value:
        return letter
    if not schema.deletes:
        return None if schema.changes else letter
    record = letter.record
    try:
        if schema.has_row_keys:
            return _deleted(record, intake.row_key(record, schema))
        return _deleted(record, decode_key(record.key, [(k.name, k.type) for k in schema.keys]))
    except BadRecord as error:
        return MemoryDeadLetter(record=record, reason=str(error))


def _deleted(record: RawRecord, key: tuple[Any, ...]) -> Deleted:
    topic, partition, offset, _ = record.position
    return Deleted(topic=topic, partition=partition, offset=offset, event_time=record.timestamp, key=key)
