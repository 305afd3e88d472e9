"""The verb that sends what waits in the outboxes of Kafka sinks, once the checkpoints that left it are complete."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from itertools import islice

import structlog

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.deliveries import Undelivered, delivered, is_live, undelivered
from tidemark.coordinator.records.refusals import Refusals
from tidemark.errors import RecordRefusedError, TidemarkError
from tidemark.model.messages import messages_of, record_id
from tidemark.model.refusals import DeliveryFailure
from tidemark.ports import Sender
from tidemark.wiring.announcing import Announcing

_log = structlog.get_logger("tidemark")


class Deliveries(Announcing):
    """Sends what is due."""

    def deliver(self, name: str) -> int:
        """Sends what waits in the outboxes of the live timeline; returns how many records have left them for good.

        Each sink is sent to by itself, oldest checkpoint first. A sink that fails is left alone until the next call,
        which begins with what is left (J2). Nothing raises: the checkpoints are complete, and stay so.
        """
        sent = 0
        try:
            coordinator = self.coordinator(name)
            failing = set[str]()
            for due in undelivered(coordinator):
                if due.table.name in failing:
                    continue
                if not is_live(coordinator, due):
                    _log.info("delivery_stopped", pipeline=name, why=f"timeline {due.timeline} is not live any more")
                    break
                try:
                    records = self._send(due)
                    delivered(coordinator, replace(due, records=records))
                    sent += records
                except Exception as error:
                    failing.add(due.table.name)
                    self._report(coordinator, due, error)
        except Exception as error:
            told = _typed(error)
            _log.warning(
                "records_not_delivered", pipeline=name, why=told.what, next=told.next, exc_info=told is not error
            )
        return sent

    @cached_property
    def outbox(self) -> Sender:
        """Kafka, for what waits in outboxes."""
        from tidemark.adapters.kafka_outbox import KafkaOutbox

        return KafkaOutbox(self.settings.kafka_address, self.settings.kafka_client_options)

    def _send(self, due: Undelivered) -> int:
        """Sends the rows of a checkpoint that are due, without those that are skipped; returns how many have arrived.

        Where Kafka refused one of them before, all ahead of it has arrived then: sending goes on there.
        """
        plan, sink = due.checkpoint.plan, due.table
        assert sink.topic is not None  # noqa: S101  (an outbox has a topic)
        refusals = Refusals(self.coordinator(plan.pipeline).objects)
        skipped = {held for held in refusals.skipped_ids(sink.name) if f"/{plan.name}/" in held}
        if skipped:
            _log.warning(
                "records_skipped", pipeline=plan.pipeline, sink=sink.name, checkpoint=plan.name, records=len(skipped)
            )
        rows, arrived = self._rows(due), 0
        refused = refusals.refusal(sink.name, plan.id)
        ahead = None if refused is None else self._ahead(due, refused.record)
        if refused is not None and ahead is not None and _hash(ahead) == refused.ahead:
            arrived = sum(record not in skipped for record in ahead)
            rows = islice(rows, len(ahead), None)
        return arrived + self.outbox.send(sink.topic, messages_of(plan, sink, rows, skipped))

    def _rows(self, due: Undelivered) -> Iterator[dict[str, object]]:
        from tidemark.adapters.sink_reader import outbox_rows

        return (row for row in outbox_rows(self.root, due.table, due.checkpoint.id) if due.is_due(row))

    def _ahead(self, due: Undelivered, record: str) -> list[str] | None:
        """Ids of the rows that are due ahead of a record; None where it is not among them."""
        ids: list[str] = []
        for row in self._rows(due):
            found = record_id(due.checkpoint.plan, row)
            if found == record:
                return ids
            ids.append(found)
        return None

    def _report(self, coordinator: CheckpointCoordinator, due: Undelivered, error: Exception) -> None:
        """Logs why a sink could not send, and keeps it for `tidemark sink list`."""
        plan, told = due.checkpoint.plan, _typed(error)
        where = {"pipeline": plan.pipeline, "sink": due.table.name}
        _log.warning(
            "records_not_delivered",
            **where,
            topic=due.table.topic,
            checkpoint=plan.name,
            why=told.what,
            next=told.next,
            exc_info=told is not error,
        )
        record, size, why = (told.record, told.size, told.why) if isinstance(told, RecordRefusedError) else ("", 0, "")
        try:
            ahead = self._ahead(due, record) if record else None
            failure = DeliveryFailure(
                sink=due.table.name,
                topic=due.table.topic or "",
                checkpoint=plan.id,
                what=told.what,
                next=told.next,
                record=record,
                size=size,
                why=why,
                ahead="" if ahead is None else _hash(ahead),
                at_ms=coordinator.clock.now_ms(),
                write_id=coordinator.write_ids(),
            )
            Refusals(coordinator.objects).put_failure(failure)
        except TidemarkError as second:
            _log.warning("delivery_failure_not_kept", **where, why=second.what)


def _typed(error: Exception) -> TidemarkError:
    """An error of ours as it is; a foreign one in our three lines."""
    if isinstance(error, TidemarkError):
        return error
    return TidemarkError(
        f"records were not sent: {type(error).__name__}: {error}",
        safe="the checkpoint is complete; its emitted records stay in the outbox.",
        next="read the traceback in the log; the next run of the pipeline sends them first.",
    )


def _hash(ids: Iterable[str]) -> str:
    return sha256("\n".join(ids).encode()).hexdigest()
