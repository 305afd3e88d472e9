"""Emitted records as they are sent to Kafka: key, JSON value, and the id that a receiver knows them by (J2, J16)."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidemark.errors import RecordRefusedError, UsageError
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.sinks import ROW_ID, SinkTable
from tidemark.model.core.json_text import json_record, key_bytes
from tidemark.model.core.names import parse_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A record to send; `id` is equal whenever it is sent again by the same plan.

    Attributes:
        key: the message key, if any.
        value: the record as JSON.
        id: see `record_id`.
        sink: name of the sink that it goes to, for messages to people.
    """

    key: bytes | None
    value: bytes
    id: str
    sink: str = ""

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlace:
    """What the id of an emitted record says.

    Attributes:
        pipeline: its name.
        timeline: of the checkpoint.
        checkpoint: id of the checkpoint that emitted the record.
        uid: the operator that emitted it.
        topic: of the record that it was emitted for.
        partition: of that record.
        offset: of that record.
        number: counts what was emitted for that record, from 0.
    """

    pipeline: str
    timeline: str
    checkpoint: int
    uid: str
    topic: str
    partition: int
    offset: int
    number: int

    @staticmethod
    def parse(record: str) -> "RecordPlace":
        """Reads an id.

        Raises:
            UsageError: it is none.
        """
        try:
            pipeline, timeline, checkpoint, uid, place = record.split("/")
            topic, partition, offset, number = place.rsplit("-", 3)
            return RecordPlace(
                pipeline=pipeline,
                timeline=timeline,
                checkpoint=parse_id(checkpoint),
                uid=uid,
                topic=topic,
                partition=int(partition),
                offset=int(offset),
                number=int(number),
            )
        except ValueError as error:
            raise UsageError(
                f"not the id of an emitted record: {record!r}",
                next="give it as in the header tidemark-id: PIPELINE/TIMELINE/chk-N/UID/TOPIC-PARTITION-OFFSET-NUMBER.",
            ) from error


def messages_of(
    plan: CheckpointPlan, table: SinkTable, rows: Iterable[Mapping[str, object]], skipped: Collection[str] = ()
) -> Iterator[Message]:
    """What is sent for the rows of a sink, in their order.

    Args:
        plan: of the checkpoint that emitted them.
        table: the sink.
        rows: emitted fields, and the columns of `ROW_ID`.
        skipped: ids of records that are not sent.
    """
    for row in rows:
        record = record_id(plan, row)
        if record in skipped:
            continue
        fields = {column: row[column] for column, _ in table.columns}
        key = None if table.key_by is None else key_bytes(fields[table.key_by])
        yield Message(key=key, value=json_record(fields), id=record, sink=table.name)


def record_id(plan: CheckpointPlan, row: Mapping[str, object]) -> str:
    """The deduplication id of an emitted record: pipeline/timeline/chk/uid/topic-partition-offset-n."""
    uid, *place = (row[column] for column, _ in ROW_ID)
    return f"{plan.pipeline}/{plan.slot.timeline}/{plan.name}/{uid}/{'-'.join(map(str, place))}"


def refused(message: Message, topic: str, why: str, safe: str) -> RecordRefusedError:
    """The error for a record that Kafka refuses. It names the record and its size, never its content.

    Args:
        message: the record.
        topic: where it was sent to.
        why: Kafka's words.
        safe: what is intact.
    """
    pipeline, sink = message.id.split("/")[0], message.sink or "SINK"
    error = RecordRefusedError(
        f"topic {topic} refuses record {message.id} ({message.size:,} bytes): {why}",
        safe=safe,
        next=f"raise max.message.bytes of topic {topic}, or mend what else it refuses, and run the pipeline again;"
        f" to leave the record out: tidemark sink skip {pipeline} {sink} {message.id}",
    )
    error.sink, error.record, error.size, error.why = message.sink, message.id, message.size, why
    return error
