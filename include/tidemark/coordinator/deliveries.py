"""What is still to be sent to Kafka: checkpoints of the live timeline whose outbox rows no delivery record covers."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.coordinator.coordinator import CheckpointCoordinator
from tidemark.model.checkpoint import Checkpoint
from tidemark.model.keys import delivery_key
from tidemark.model.records import DeliveryRecord
from tidemark.model.sinks import SinkTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """The outbox rows of one checkpoint for one Kafka sink.

    Attributes:
        checkpoint: it.
        table: the sink's outbox as of the checkpoint.
        records: how many rows.
    """

    checkpoint: Checkpoint
    table: SinkTable
    records: int


def undelivered(coordinator: CheckpointCoordinator) -> Sequence[Undelivered]:
    """What is to be sent, oldest checkpoint first.

    Records of deliveries are written in order, so the search ends, per sink, at the newest that is delivered. A listing
    that is behind makes records be sent twice, with the same ids. A sink that attempts send to has an outbox only if
    it had another guarantee before: what that holds is sent too.
    """
    newest: dict[str, int] = {}
    found: list[Undelivered] = []
    for checkpoint in coordinator.checkpoints():
        tables = {uid: t for uid, t in checkpoint.sinks.items() if t.kind == "kafka" or _had_outbox(t)}
        for uid, table in tables.items():
            if table.name not in newest:
                newest[table.name] = _newest(coordinator, table.name)
            ack = checkpoint.ack(uid)
            if table.keeps_rows and ack is not None and ack.emitted and checkpoint.id > newest[table.name]:
                found.append(Undelivered(checkpoint=checkpoint, table=table, records=ack.emitted))
        if all(_last(checkpoint, t) <= newest[t.name] for t in tables.values()):
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


def _had_outbox(table: SinkTable) -> bool:
    return table.kind == "topic" and bool(table.handle)


def _last(checkpoint: Checkpoint, table: SinkTable) -> int:
    """The last checkpoint, up to this one, that may have left rows in an outbox."""
    return checkpoint.id if table.keeps_rows else table.handle.through


def _newest(coordinator: CheckpointCoordinator, sink: str) -> int:
    listed = coordinator.objects.list(f"deliveries/{sink}/")
    return max((int(k.rpartition("/")[2].removesuffix(".json")) for k in listed), default=0)
