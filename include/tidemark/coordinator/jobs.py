"""Open jobs: what reads a checkpoint for a while says so first, and says when it is over (design section 6)."""

from collections.abc import Iterator
from contextlib import contextmanager

from tidemark.coordinator.coordinator import CheckpointCoordinator
from tidemark.model import keys
from tidemark.model.records import JobEnd, JobRecord


@contextmanager
def open_job(coordinator: CheckpointCoordinator, kind: str, checkpoint: int) -> Iterator[str]:
    """Keeps a job open for the duration of a block; gives its id. One that was killed stays open.

    Args:
        coordinator: of the pipeline.
        kind: see `JobRecord`.
        checkpoint: its id.

    Raises:
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
        yield job
        done = True
    finally:
        objects.put(
            keys.job_end_key(job), JobEnd(job=job, done=done, at_ms=coordinator.clock.now_ms(), write_id=write_id)
        )
