"""The verb that sends what waits in the outboxes of Kafka sinks, once the checkpoints that left it are complete."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import structlog

from tidemark.coordinator.deliveries import Undelivered, delivered, undelivered
from tidemark.errors import TidemarkError
from tidemark.model.checkpoint import Checkpoint
from tidemark.model.json_text import json_record, key_bytes
from tidemark.model.sinks import ROW_ID
from tidemark.wiring.core import Core

if TYPE_CHECKING:
    from tidemark.adapters.kafka_outbox import Message

_log = structlog.get_logger("tidemark")


class Deliveries(Core):
    """Sends what is due."""

    def deliver(self, name: str) -> int:
        """Sends what waits in the outboxes of the live timeline, oldest checkpoint first; returns how many records.

        A failure undoes nothing: it is logged, and the next call begins with what is left (J2).
        """
        coordinator, sent = self.coordinator(name), 0
        try:
            for due in undelivered(coordinator):
                sent += self._send(name, due)
                delivered(coordinator, due)
        except TidemarkError as error:
            _log.warning("records_not_delivered", pipeline=name, why=error.what, next=error.next)
        return sent

    def _send(self, name: str, due: Undelivered) -> int:
        from tidemark.adapters.kafka_outbox import KafkaOutbox

        assert due.table.topic is not None  # noqa: S101  (an outbox has a topic)
        return KafkaOutbox(self.settings.kafka_address).send(due.table.topic, self._messages(name, due))

    def _messages(self, name: str, due: Undelivered) -> "Iterator[Message]":
        from tidemark.adapters.kafka_outbox import Message
        from tidemark.adapters.sink_reader import outbox_rows

        for row in outbox_rows(str(self.settings.warehouse), due.table, due.checkpoint.id):
            fields = {column: row[column] for column, _ in due.table.columns}
            key = None if due.table.key_by is None else key_bytes(fields[due.table.key_by])
            yield Message(key=key, value=json_record(fields), id=record_id(name, due.checkpoint, row))


def record_id(name: str, checkpoint: Checkpoint, row: dict[str, Any]) -> str:
    """The deduplication id of an emitted record: pipeline/timeline/chk/uid/topic-partition-offset-n."""
    uid, *place = (row[column] for column, _ in ROW_ID)
    return f"{name}/{checkpoint.plan.slot.timeline}/{checkpoint.plan.name}/{uid}/{'-'.join(map(str, place))}"
