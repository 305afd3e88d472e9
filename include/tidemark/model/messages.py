"""Emitted records as they are sent to Kafka: key, JSON value, and the id that a receiver knows them by (J2, J16)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidemark.model.json_text import json_record, key_bytes
from tidemark.model.plan import CheckpointPlan
from tidemark.model.sinks import ROW_ID, SinkTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A record to send; `id` is equal whenever it is sent again by the same plan."""

    key: bytes | None
    value: bytes
    id: str


def messages_of(plan: CheckpointPlan, table: SinkTable, rows: Iterable[Mapping[str, object]]) -> Iterator[Message]:
    """What is sent for the rows of a sink, in their order.

    Args:
        plan: of the checkpoint that emitted them.
        table: the sink.
        rows: emitted fields, and the columns of `ROW_ID`.
    """
    for row in rows:
        fields = {column: row[column] for column, _ in table.columns}
        key = None if table.key_by is None else key_bytes(fields[table.key_by])
        yield Message(key=key, value=json_record(fields), id=record_id(plan, row))


def record_id(plan: CheckpointPlan, row: Mapping[str, object]) -> str:
    """The deduplication id of an emitted record: pipeline/timeline/chk/uid/topic-partition-offset-n."""
    uid, *place = (row[column] for column, _ in ROW_ID)
    return f"{plan.pipeline}/{plan.slot.timeline}/{plan.name}/{uid}/{'-'.join(map(str, place))}"
