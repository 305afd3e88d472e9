"""Verifies restore points: all of them on request, or one before a restore or fork relies on it."""

from tidemark.context import Context
from tidemark.coordinator.recovery.integrity import KnownRecords, Tell, Verifier, tell_nobody
from tidemark.coordinator.recovery.restore_points import RestorePoints
from tidemark.errors import NotFoundError
from tidemark.glance import glance_at
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.retention.findings import Verified


def verify(
    context: Context, name: str, at: int | str | None = None, *, content: bool = False, on_progress: Tell = tell_nobody
) -> Verified:
    """Checks every restore point of a pipeline, or one.

    Args:
        context: of this process.
        name: the pipeline.
        at: only this checkpoint, by its id, or this savepoint, by its name.
        content: compare the content of every data file, not only its size.
        on_progress: called with the progress.

    Raises:
        NotFoundError: no such pipeline, checkpoint or savepoint, or no checkpoint yet.
        CorruptObjectError: the record of the checkpoint's id is damaged, so that the manifest cannot be found.
        StoreError: the store could not be read.
    """
    looked = glance_at(context, remember=False)
    verifier = open_verifier(looked, looked.require_pipeline(name), content=content)
    if at is not None:
        points = verifier.points
        return verifier.verify_one(points.savepoint(at) if isinstance(at, str) else points.checkpoint(at), on_progress)
    verified = verifier.verify_all(on_progress)
    if not verified.points and not verified.damages:
        raise NotFoundError(f"{name} has no checkpoints yet", next=f"tidemark run {name}")
    return verified


def verify_checkpoint(context: Context, checkpoint: Checkpoint) -> None:
    """Refuses a checkpoint that is not whole; call it before a restore or a fork starts.

    Raises:
        DamagedError: lists each damaged file and every restore point that it breaks.
        StoreError: the store could not be read.
    """
    open_verifier(context, checkpoint.plan.pipeline).verify_checkpoint(checkpoint)


def open_verifier(context: Context, name: str, *, content: bool = False) -> Verifier:
    """Opens the verifier of a pipeline's restore points."""
    checks = context.table_checks(content=content)
    points = RestorePoints(pipeline=name, objects=context.coordinator(name).objects)
    in_bucket = context.warehouse.bucket is not None
    known = KnownRecords(context.cache, f"{name}.records.json") if in_bucket and not content else None
    return Verifier(points=points, check=checks, inspected=lambda: checks.inspected, known=known)
