"""Open jobs: a process that reads a checkpoint for a while records when it begins and when it ends."""

from collections.abc import Iterator
from contextlib import contextmanager

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.tombstones import Tombstones
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.store_objects import JobEnd, JobRecord
from tidemark.model.retention.savepoint import TombstoneKind


@contextmanager
def open_job(coordinator: CheckpointCoordinator, kind: str, checkpoint: int) -> Iterator[str]:
    """Keeps a job open while a block runs, and yields its id. The job of a killed process stays open.

    Args:
        coordinator: of the pipeline.
        kind: see `JobRecord`.
        checkpoint: id of the checkpoint that the job reads.

    Raises:
        ConflictError: the checkpoint is about to be deleted, or was released.
        StoreError: the store could not be written.
    """
    objects, write_id = coordinator.objects, coordinator.write_ids()
    job = f"{kind}.{checkpoint}.{write_id}"
    opened = coordinator.clock.now_ms()
    objects.put(
        keys.job_key(job),
        JobRecord(job=job, kind=kind, uid="", checkpoint=checkpoint, opened_at_ms=opened, write_id=write_id),
    )
    done = False
    try:
        refuse_doomed(coordinator, checkpoint)
        yield job
        done = True
    finally:
        objects.put(
            keys.job_end_key(job), JobEnd(job=job, done=done, at_ms=coordinator.clock.now_ms(), write_id=write_id)
        )


def refuse_doomed(coordinator: CheckpointCoordinator, checkpoint: int) -> None:
    """Refuses a checkpoint that is about to be deleted. Called once the job's record, which pins it, is written.

    Raises:
        ConflictError: the checkpoint is about to be deleted, or was released.
    """
    tombstones = Tombstones(objects=coordinator.objects, clock=coordinator.clock, write_ids=coordinator.write_ids)
    tombstones.refuse_doomed(TombstoneKind.CHECKPOINT, f"chk-{checkpoint}")
