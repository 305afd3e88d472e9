"""Decodes the records of one input as they are read, and separates good ones from dead letters."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from tidemark.declare.pipeline import Pipeline
from tidemark.formats.json import decode_key
from tidemark.formats.record_format import BadRecord, RecordFormat
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.log_records import LogRecord
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.testing.twin.fold import Decoded, Deleted

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDeadLetter:
    """A record that no operator can apply."""

    tp: TopicPartition
    record: LogRecord
    reason: str


class MemoryInput:
    """The records of one input.

    Attributes:
        good: decoded records.
        raw: the same records as stored in the log, by position.
        letters: records that could not be decoded.
        bytes: key and value bytes of all records.
    """

    def __init__(self, pipeline: Pipeline, plan: CheckpointPlan, name: str, format: RecordFormat) -> None:
        source = pipeline.inputs[name]
        self._event_time = source.event_time
        self._is_broadcast = name not in pipeline.sources
        self._format, self._record = format, source.schema
        self._limit = EPOCH + plan.logical_time_ms * MS + pipeline.max_future
        self.good: list[Decoded] = []
        self.raw: dict[tuple[str, int, int], LogRecord] = {}
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

    def take(self, tp: TopicPartition, records: Sequence[LogRecord]) -> None:
        """Adds records of one partition."""
        for record in records:
            self.bytes += len(record.key or b"") + len(record.value or b"")
            try:
                self.good.append(self._decoded(tp, record))
                self.raw[tp.topic, tp.partition, record.offset] = record
            except BadRecord as error:
                self.letters.append(MemoryDeadLetter(tp=tp, record=record, reason=str(error)))

    def with_redriven(self, other: "MemoryInput") -> "MemoryInput":
        """Returns the records of both."""
        made = copy(self)
        made.good, made.letters = self.good + other.good, self.letters + other.letters
        made.raw = {**other.raw, **self.raw}
        return made

    def _decoded(self, tp: TopicPartition, record: LogRecord) -> Decoded:
        fields = self._format.decode_one(record.value, self._record)
        found = Decoded(
            topic=tp.topic,
            partition=tp.partition,
            offset=record.offset,
            event_time=EPOCH if self._is_broadcast else EPOCH + record.timestamp_ms * MS,
            fields=fields,
        )
        if self._event_time is not None:
            found = replace(found, event_time=found.at(self._event_time))
        if found.event_time > self._limit:
            raise BadRecord(Reason.IN_THE_FUTURE.value)
        return found


def schema_ids(read: Mapping[TopicPartition, Sequence[LogRecord]]) -> set[int]:
    """Returns the ids of the schemas that values name by Confluent's frame; the twin of `engine.read.frames`."""
    values = (record.value or b"" for records in read.values() for record in records)
    return {int.from_bytes(value[1:5]) for value in values if len(value) >= 5 and value[0] == 0}


# Records without a value, which delete the key in their message key; the twin of `engine.deleting`.
def deletes(intake: MemoryInput, schema: OperatorSchema) -> list[Deleted]:
    """Returns the records of an input that an operator treats as deletes."""
    return [d for letter in intake.letters if isinstance(d := _judged(letter, schema), Deleted)]


def list_refused(intake: MemoryInput, schema: OperatorSchema) -> list[MemoryDeadLetter]:
    """Returns the records of an input that could not be decoded and are not deletes for the operator."""
    return [x for letter in intake.letters if isinstance(x := _judged(letter, schema), MemoryDeadLetter)]


def _judged(letter: MemoryDeadLetter, schema: OperatorSchema) -> MemoryDeadLetter | Deleted:
    if not schema.deletes or letter.reason != Reason.NULL_VALUE.value:
        return letter
    tp, record = letter.tp, letter.record
    try:
        key = decode_key(record.key, [(k.name, k.type) for k in schema.keys])
    except BadRecord as error:
        return MemoryDeadLetter(tp=tp, record=record, reason=str(error))
    at = EPOCH + record.timestamp_ms * MS
    return Deleted(topic=tp.topic, partition=tp.partition, offset=record.offset, event_time=at, key=key)
