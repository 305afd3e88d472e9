"""Decodes dead letters by the current declaration of their operator, one by one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemark.context import Context
from tidemark.coordinator.records.schema_book import StoredSchemas
from tidemark.declare.arrival import current_uid, input_name
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import UsageError
from tidemark.formats.emitted_records import EMITTED_FORMAT
from tidemark.formats.envelope import decode_record
from tidemark.formats.json import decode_key, decode_row_key
from tidemark.formats.record_format import BadRecord, RecordFormat
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.log_records import LogRecord
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.core.types import FieldType
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.readers.expression_values import judge_records, value_at

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class LetterDecoder:
    """The current declaration of an operator, which decodes letters one by one."""

    format: RecordFormat
    record: FieldType
    event_time: str | None
    schema: OperatorSchema
    latest: datetime

    @classmethod
    def of(cls, context: Context, pipeline: Pipeline, uid: str) -> "LetterDecoder | None":
        """None if the operator reads no input. Values are decoded by stored schemas; a redrive asks the registry."""
        current = current_uid(pipeline, uid)
        if current is None:
            return None
        try:
            name = input_name(pipeline, current)
        except UsageError:
            return None
        source, stored = pipeline.inputs.get(name), StoredSchemas(context.coordinator(pipeline.name).objects)
        return cls(
            format=EMITTED_FORMAT if source is None else stored.bind(source.format),
            record=pipeline.input_record(name),
            event_time=None if source is None else source.event_time,
            schema=pipeline.schemas()[current],
            latest=_EPOCH + timedelta(milliseconds=context.clock.now_ms()) + pipeline.max_future,
        )

    def judge(self, raw: Mapping[str, Any]) -> tuple[str | None, dict[str, Any] | None]:
        """Returns why a record would be refused, or None, and its fields. Only a checkpoint knows joined keys."""
        try:
            tp = TopicPartition(raw["topic"], raw["partition"])
            fields = decode_record(self.format, self.record, tp, _log_record(raw))
        except BadRecord as error:
            is_delete = str(error) == Reason.NULL_VALUE.value
            return (self._judge_delete(raw) if is_delete else str(error)), None
        at = raw["timestamp"] if self.event_time is None else value_at(fields, self.event_time)
        if at > self.latest:
            return Reason.IN_THE_FUTURE.value, fields
        if self.schema.has_row_keys:
            return self._judge_key(raw), fields
        where, joined_by = self.schema.where, self.schema.joined_by
        own = replace(
            self.schema,
            keys=tuple(k for k in self.schema.keys if not joined_by(k.paths)),
            where=None if where is None or joined_by(where.paths) else where,
        )
        ((is_taken, key),) = judge_records(own, [fields])
        if not is_taken:
            return "filtered", fields
        return Reason.NULL_KEY.value if None in key else None, fields

    def _judge_delete(self, raw: Mapping[str, Any]) -> str | None:
        if not self.schema.deletes:
            return "filtered" if self.schema.changes else Reason.NULL_VALUE.value
        return self._judge_key(raw)

    def _judge_key(self, raw: Mapping[str, Any]) -> str | None:
        """Returns why the message key is no key of the operator, or None."""
        columns = [(k.name, k.type) for k in self.schema.keys]
        try:
            if self.schema.has_row_keys:
                decode_row_key(self.format.row_key(raw["key"]), columns)
            else:
                decode_key(raw["key"], columns)
        except BadRecord as error:
            return str(error)
        return None


def _log_record(raw: Mapping[str, Any]) -> LogRecord:
    """The record as the topic had it."""
    headers = tuple((h["key"], h["value"]) for h in raw["headers"] or ())
    at = (raw["timestamp"] - _EPOCH) // timedelta(milliseconds=1)
    return LogRecord(offset=raw["offset"], timestamp_ms=at, key=raw["key"], value=raw["value"], headers=headers)
