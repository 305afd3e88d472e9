"""What became of consumer-group offsets: one record per checkpoint and input, for metrics only (J10, J14)."""

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.object_keys import report_key
from tidemark.model.checkpoint.store_objects import OffsetReport


def reported(
    coordinator: CheckpointCoordinator, checkpoint: Checkpoint, target: tuple[str, str], failure: str | None
) -> None:
    """Keeps what came of a report; of a repeated one the first stays.

    Args:
        coordinator: of the pipeline.
        checkpoint: whose ends were reported.
        target: the input and its consumer group.
        failure: why Kafka did not take them; None where it did.
    """
    name, group = target
    record = OffsetReport(
        input=name,
        group=group,
        checkpoint=checkpoint.id,
        failure=failure,
        at_ms=coordinator.clock.now_ms(),
        write_id=coordinator.write_ids(),
    )
    coordinator.objects.put(report_key(name, checkpoint.id), record)


def reports(coordinator: CheckpointCoordinator) -> list[OffsetReport]:
    """Every report that was kept, in order of inputs and checkpoints."""
    found = (coordinator.objects.read(OffsetReport, key) for key in sorted(coordinator.objects.list("reports/")))
    return [report for report in found if report is not None]
