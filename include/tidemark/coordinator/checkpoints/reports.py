"""Reports of consumer-group offsets: one record per checkpoint and input, for monitoring only."""

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.object_keys import report_key
from tidemark.model.checkpoint.store_objects import OffsetReport


def record_report(
    coordinator: CheckpointCoordinator, checkpoint: Checkpoint, target: tuple[str, str], failure: str | None
) -> None:
    """Records the result of reporting offsets; if it is reported again, the first record stays.

    Args:
        coordinator: of the pipeline.
        checkpoint: the checkpoint whose end offsets were reported.
        target: the input and its consumer group.
        failure: why Kafka did not accept the offsets; None if it did.
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
    """All recorded reports, sorted by input and checkpoint."""
    found = (coordinator.objects.read(OffsetReport, key) for key in sorted(coordinator.objects.list("reports/")))
    return [report for report in found if report is not None]
