"""Savepoints: opens, resolves and describes them. Nothing here loads Spark, Arrow or the Kafka client."""

from tidemark.answers.timeline_facts import SavepointFacts
from tidemark.context import Context
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.errors import TidemarkError, UsageError
from tidemark.model.core.timestamps import iso, iso_or_none
from tidemark.model.retention.savepoint import SavepointRecord


def open_savepoints(context: Context, name: str) -> Savepoints:
    """The savepoints of a pipeline, whether it runs, is paused, or its file is broken (G9).

    Raises:
        NotFoundError: no such pipeline.
    """
    return Savepoints(context.coordinator(context.require_pipeline(name)))


def resolve_checkpoint_id(
    context: Context, name: str, checkpoint: int | None = None, savepoint: str | None = None
) -> int | None:
    """The id that a checkpoint or a savepoint names; None where neither is given.

    Raises:
        UsageError: both.
        NotFoundError: no such savepoint, or it is disposed.
    """
    if savepoint is None:
        return checkpoint
    if checkpoint is not None:
        raise UsageError("both a checkpoint and a savepoint", next="give one of them.")
    return open_savepoints(context, name).get(savepoint).checkpoint


def describe_savepoint(context: Context, name: str, record: SavepointRecord) -> SavepointFacts:
    """A savepoint with the size and time of the checkpoint that it pins.

    A manifest that cannot be read does not fail the list: `full_bytes` and `logical_time` are None then.
    """
    try:
        found = context.coordinator(name).timelines.checkpoint(record.checkpoint)
    except TidemarkError:
        found = None
    return SavepointFacts(
        name=record.name,
        pipeline=name,
        checkpoint=record.checkpoint_name,
        timeline=record.timeline,
        logical_time=None if found is None else iso(found.plan.logical_time_ms),
        full_bytes=None if found is None else sum(handle.bytes for handle in found.handles.values()),
        owner=record.owner,
        note=record.note,
        created_at=iso(record.created_at_ms),
        expires_at=iso_or_none(record.expires_at_ms),
        expired=record.is_expired(context.clock.now_ms()),
        drained=record.drained,
        revision=record.revision,
        changed_at=iso(record.changed_at_ms),
        disposed=record.disposed,
        claimed_by=record.claimed_by,
    )
