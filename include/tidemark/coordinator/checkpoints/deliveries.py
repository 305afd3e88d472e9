"""What is still to be sent to Kafka: checkpoints of the live timeline whose outbox rows no delivery record covers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.model.checkpoint import Checkpoint
from tidemark.model.keys import delivery_key, greatest
from tidemark.model.offsets import TopicPartition
from tidemark.model.records import DeliveryRecord
from tidemark.model.sinks import SinkTable

Ends = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """The outbox rows of one checkpoint for one Kafka sink.

    Attributes:
        checkpoint: it.
        table: the sink's outbox as of the checkpoint.
        records: how many rows.
        sent: what was emitted for records below these offsets is not sent: see `Closing.sent`.
    """

    checkpoint: Checkpoint
    table: SinkTable
    records: int
    sent: Ends = field(default_factory=dict)

    def is_due(self, row: Mapping[str, object]) -> bool:
        """Whether a row is to be sent."""
        at = TopicPartition(str(row["_topic"]), int(str(row["_partition"])))
        return int(str(row["_offset"])) >= self.sent.get(at, 0)


def undelivered(coordinator: CheckpointCoordinator) -> Sequence[Undelivered]:
    """What is to be sent, oldest checkpoint first.

    Records of deliveries are written in order, so the search ends, per sink, at the newest that is delivered; those of
    a promoted fork may be older than that, so it ends at the first of them that is delivered itself. A listing that is
    behind makes records be sent twice, with the same ids. A sink that attempts send to has an outbox only if it had
    another guarantee before: what that holds is sent too.
    """
    newest: dict[str, int] = {}
    ended: set[str] = set()
    found: list[Undelivered] = []
    promoted = {c.successor: c.sent for c in coordinator.timelines.closings() if c.why == "promote"}
    for checkpoint in coordinator.checkpoints():
        of_fork = promoted.get(checkpoint.plan.slot.timeline)
        tables = {uid: t for uid, t in checkpoint.sinks.items() if t.kind == "kafka" or _had_outbox(t)}
        for uid, table in tables.items():
            if table.name not in newest:
                newest[table.name] = _newest(coordinator, table.name)
            is_older = checkpoint.id <= newest[table.name]
            if is_older and (of_fork is None or _is_delivered(coordinator, table.name, checkpoint)):
                ended.add(table.name)
            ack = checkpoint.ack(uid)
            if table.name not in ended and table.keeps_rows and ack is not None and ack.emitted:
                sent = (of_fork or {}).get(table.name, {})
                found.append(Undelivered(checkpoint=checkpoint, table=table, records=ack.emitted, sent=sent))
        if of_fork is None:
            ended |= {t.name for t in tables.values() if _last(checkpoint, t) <= newest[t.name]}
        if all(t.name in ended for t in tables.values()):
            break
    return found[::-1]


def delivered(coordinator: CheckpointCoordinator, done: Undelivered) -> None:
    """Records that all of it was acknowledged; a second record of the same loses, and says the same."""
    record = DeliveryRecord(
        sink=done.table.name,
        checkpoint=done.checkpoint.id,
        records=done.records,
        at_ms=coordinator.clock.now_ms(),
        write_id=coordinator.write_ids(),
    )
    coordinator.objects.put(delivery_key(done.table.name, done.checkpoint.id), record)


def sent_until(coordinator: CheckpointCoordinator, sink: str) -> Ends:
    """Where the offsets end whose records a sink of the live timeline has sent; empty where it has sent nothing."""
    newest = _newest(coordinator, sink)
    return next((c.plan.ranges.ends for c in coordinator.checkpoints() if c.id <= newest), {})


def _had_outbox(table: SinkTable) -> bool:
    return table.kind == "topic" and bool(table.handle)


def _last(checkpoint: Checkpoint, table: SinkTable) -> int:
    """The last checkpoint, up to this one, that may have left rows in an outbox."""
    return checkpoint.id if table.keeps_rows else table.handle.through


def _newest(coordinator: CheckpointCoordinator, sink: str) -> int:
    return greatest(coordinator.objects.list(f"deliveries/{sink}/"))


def _is_delivered(coordinator: CheckpointCoordinator, sink: str, checkpoint: Checkpoint) -> bool:
    return coordinator.objects.read(DeliveryRecord, delivery_key(sink, checkpoint.id)) is not None
