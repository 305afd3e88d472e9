"""Emitted rows with the id that a receiver knows them by, and the messages that Kafka gets of them (J2, J16)."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidemark.errors import RecordRefusedError, UsageError
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.sinks import ROW_ID, SinkTable
from tidemark.model.core.names import parse_id


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittedRow:
    """A row on its way to a sink; `id` is equal whenever it is written again by the same plan.

    Attributes:
        id: see `record_id`.
        fields: what was emitted, by name.
    """

    id: str
    fields: Mapping[str, object]


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


def emitted_rows(
    plan: CheckpointPlan, table: SinkTable, rows: Iterable[Mapping[str, object]], skipped: Collection[str] = ()
) -> Iterator[EmittedRow]:
    """The rows of a sink, in their order, as it gets them.

    Args:
        plan: of the checkpoint that emitted them.
        table: the sink.
        rows: emitted fields, and the columns of `ROW_ID`.
        skipped: ids of rows that are left out.
    """
    for row in rows:
        record = record_id(plan, row)
        if record not in skipped:
            yield EmittedRow(id=record, fields={column: row[column] for column, _ in table.columns})


def commit_id(plan: CheckpointPlan) -> str:
    """What a sink may know a checkpoint by: `<pipeline>/<timeline>/chk-<N>`, the beginning of its rows' ids."""
    return f"{plan.pipeline}/{plan.slot.timeline}/{plan.name}"


def record_id(plan: CheckpointPlan, row: Mapping[str, object]) -> str:
    """The deduplication id of an emitted record: pipeline/timeline/chk/uid/topic-partition-offset-n."""
    uid, *place = (row[column] for column, _ in ROW_ID)
    return f"{commit_id(plan)}/{uid}/{'-'.join(map(str, place))}"


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
