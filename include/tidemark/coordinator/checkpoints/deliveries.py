"""What is still to be sent to Kafka: checkpoints of the live timeline whose outbox rows no delivery record covers."""

from collections.abc import Sequence
from dataclasses import replace

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.plans.sent_offsets import SentRecords, Undelivered
from tidemark.model.checkpoint.object_keys import delivery_key
from tidemark.model.checkpoint.store_objects import Closing, DeliveryRecord

__all__ = ["Undelivered", "delivered", "is_live", "undelivered"]


def undelivered(coordinator: CheckpointCoordinator) -> Sequence[Undelivered]:
    """What is to be sent, oldest checkpoint first, also for sinks that the pipeline no longer declares.

    A sink that attempts send to has an outbox only if it had another guarantee before, or was on a fork: what that
    holds is sent too.
    """
    timelines = coordinator.timelines
    head = timelines.live_head()
    if head.entry is None or isinstance(head.entry, Closing):
        return []
    sent = SentRecords(timelines)
    found = sent.undelivered(head.entry, timelines.chain(head.timeline), lambda: sent.of(head.timeline))
    return [replace(due, timeline=head.timeline) for due in found if not due.is_gone]


def is_live(coordinator: CheckpointCoordinator, due: Undelivered) -> bool:
    """Whether the timeline is still live for which something is due; asked before each checkpoint is sent.

    A restore or a promote may have ended it since: then its successor says what is due, and sends it.
    """
    return coordinator.timelines.live() == due.timeline


def delivered(coordinator: CheckpointCoordinator, done: Undelivered) -> None:
    """Records that all of it was acknowledged; a second record of the same loses, and says the same."""
    record = DeliveryRecord(
        sink=done.table.name,
        checkpoint=done.checkpoint.id,
        records=done.records,
        at_ms=coordinator.clock.now_ms(),
        write_id=coordinator.write_ids(),
        sent=done.sent,
    )
    coordinator.objects.put(delivery_key(done.table.name, done.checkpoint.id), record)
