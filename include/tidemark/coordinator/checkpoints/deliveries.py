"""Deliveries that are due: checkpoints of the live timeline whose outbox rows have no delivery record."""

from collections.abc import Sequence
from dataclasses import replace

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.plans.sent_offsets import SentRecords, Undelivered
from tidemark.model.checkpoint.object_keys import delivery_key
from tidemark.model.checkpoint.store_objects import Closing, DeliveryRecord

__all__ = ["Undelivered", "delivered", "is_live", "undelivered"]


def undelivered(coordinator: CheckpointCoordinator) -> Sequence[Undelivered]:
    """Lists undelivered checkpoints, oldest first; sinks that the pipeline no longer declares are included.

    A sink that attempts send to has an outbox only if it had another guarantee before, or if its timeline was a fork.
    The rows of such an outbox are sent too.
    """
    timelines = coordinator.timelines
    head = timelines.live_head()
    if head.entry is None or isinstance(head.entry, Closing):
        return []
    sent = SentRecords(timelines)
    found = sent.undelivered(head.entry, timelines.chain(head.timeline), lambda: sent.of(head.timeline))
    return [replace(due, timeline=head.timeline) for due in found if not due.is_gone]


def is_live(coordinator: CheckpointCoordinator, due: Undelivered) -> bool:
    """Whether the timeline of a delivery is still live; asked before each checkpoint is sent.

    A restore or a promote may have ended the timeline in the meantime. Its successor then decides which rows are due,
    and sends them.
    """
    return coordinator.timelines.live() == due.timeline


def delivered(coordinator: CheckpointCoordinator, done: Undelivered) -> None:
    """Records that Kafka acknowledged all of it; a second, equal record loses the put without harm."""
    record = DeliveryRecord(
        sink=done.table.name,
        checkpoint=done.checkpoint.id,
        records=done.records,
        at_ms=coordinator.clock.now_ms(),
        write_id=coordinator.write_ids(),
        sent=done.sent,
    )
    coordinator.objects.put(delivery_key(done.table.name, done.checkpoint.id), record)
