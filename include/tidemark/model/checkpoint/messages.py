"""Emitted rows with the id by which receivers recognize them, and the messages that are sent to Kafka."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.errors import RecordRefusedError, UsageError
from tidemark.model.checkpoint.sinks import ROW_ID, SinkTable
from tidemark.model.core.names import parse_id
from tidemark.model.core.offsets import Path

if TYPE_CHECKING:
    from tidemark.model.checkpoint.plan import CheckpointPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittedRow:
    """A row on its way to a sink; `id` is the same whenever the same plan writes it again.

    Attributes:
        id: see `record_id`.
        fields: the emitted fields, by name.
    """

    id: str
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A record to send; `id` is the same whenever the same plan sends it again.

    Attributes:
        key: the message key, if any.
        value: the record as JSON.
        id: see `record_id`.
        sink: name of its sink, for messages to people.
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
    """The parts of an emitted record's id.

    Attributes:
        pipeline: name of the pipeline.
        timeline: timeline of the checkpoint.
        checkpoint: id of the checkpoint that emitted the record.
        uid: the operator that emitted it.
        topic: topic of the record that it was emitted for.
        partition: partition of that record.
        offset: offset of that record.
        path: its numbers among the records that the operators emitted for that record, from 0; one for each operator
            that the record passed.
    """

    pipeline: str
    timeline: str
    checkpoint: int
    uid: str
    topic: str
    partition: int
    offset: int
    path: Path

    @staticmethod
    def parse(record: str) -> "RecordPlace":
        """Parses an id.

        Raises:
            UsageError: the text is not an id.
        """
        try:
            pipeline, timeline, checkpoint, uid, place = record.split("/")
            topic, partition, offset, path = place.rsplit("-", 3)
            return RecordPlace(
                pipeline=pipeline,
                timeline=timeline,
                checkpoint=parse_id(checkpoint),
                uid=uid,
                topic=topic,
                partition=int(partition),
                offset=int(offset),
                path=tuple(map(int, path.split("."))),
            )
        except ValueError as error:
            raise UsageError(
                f"not the id of an emitted record: {record!r}",
                next="give it as in the header tidemark-id: PIPELINE/TIMELINE/chk-N/UID/TOPIC-PARTITION-OFFSET-PATH.",
            ) from error


def emitted_rows(
    plan: "CheckpointPlan", table: SinkTable, rows: Iterable[Mapping[str, object]], skipped: Collection[str] = ()
) -> Iterator[EmittedRow]:
    """Returns the rows of a sink in order, as it receives them.

    Args:
        plan: plan of the checkpoint that emitted them.
        table: the sink.
        rows: emitted fields, and the columns of `ROW_ID`.
        skipped: ids of rows to leave out.
    """
    for row in rows:
        record = record_id(plan, row)
        if record not in skipped:
            yield EmittedRow(id=record, fields={column: row[column] for column, _ in table.columns})


def commit_id(plan: "CheckpointPlan") -> str:
    """Returns the id of a checkpoint for sinks: `<pipeline>/<timeline>/chk-<N>`, the prefix of its rows' ids."""
    return f"{plan.pipeline}/{plan.slot.timeline}/{plan.name}"


def record_id(plan: "CheckpointPlan", row: Mapping[str, object]) -> str:
    """Returns the deduplication id of an emitted record: pipeline/timeline/chk/uid/topic-partition-offset-path."""
    uid, *place, path = (row[column] for column, _ in ROW_ID)
    assert isinstance(path, Sequence)  # noqa: S101  (for the type checker)
    return f"{commit_id(plan)}/{uid}/{'-'.join(map(str, place))}-{'.'.join(map(str, path))}"


def record_refused(message: Message, topic: str, why: str, safe: str) -> RecordRefusedError:
    """Returns the error for a record that Kafka refuses; it names the record and its size, never its content.

    Args:
        message: the record.
        topic: its target topic.
        why: the message from Kafka.
        safe: the intact parts.
    """
    pipeline, sink = message.id.split("/")[0], message.sink or "SINK"
    error = RecordRefusedError(
        f"topic {topic} refuses record {message.id} ({message.size:,} bytes): {why}",
        safe=safe,
        next=f"raise max.message.bytes of topic {topic}, or fix the other reason, and run the pipeline again;"
        f" to leave the record out: tidemark sink skip {pipeline} {sink} {message.id}",
    )
    error.sink, error.record, error.size, error.why = message.sink, message.id, message.size, why
    return error
