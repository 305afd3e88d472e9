"""The verb that sends what waits in the outboxes of Kafka sinks, once the checkpoints that left it are complete."""

from dataclasses import replace

import structlog

from tidemark.coordinator.checkpoints.deliveries import Undelivered, delivered, undelivered
from tidemark.errors import TidemarkError
from tidemark.model.messages import messages_of
from tidemark.wiring.announcing import Announcing

_log = structlog.get_logger("tidemark")


class Deliveries(Announcing):
    """Sends what is due."""

    def deliver(self, name: str) -> int:
        """Sends what waits in the outboxes of the live timeline, oldest checkpoint first; returns how many records.

        A failure undoes nothing: it is logged, and the next call begins with what is left (J2).
        """
        coordinator, sent = self.coordinator(name), 0
        try:
            for due in undelivered(coordinator):
                records = self._send(due)
                delivered(coordinator, replace(due, records=records))
                sent += records
        except TidemarkError as error:
            _log.warning("records_not_delivered", pipeline=name, why=error.what, next=error.next)
        return sent

    def _send(self, due: Undelivered) -> int:
        from tidemark.adapters.kafka_outbox import KafkaOutbox
        from tidemark.adapters.sink_reader import outbox_rows

        assert due.table.topic is not None  # noqa: S101  (an outbox has a topic)
        held = outbox_rows(self.root, due.table, due.checkpoint.id)
        rows = (row for row in held if due.is_due(row))
        messages = messages_of(due.checkpoint.plan, due.table, rows)
        to = KafkaOutbox(self.settings.kafka_address, self.settings.kafka_client_options)
        return to.send(due.table.topic, messages)
