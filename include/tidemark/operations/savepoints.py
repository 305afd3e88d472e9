"""Savepoints: opens, resolves and describes them. Nothing here loads Spark, Arrow or the Kafka client."""

from typing import TYPE_CHECKING

from tidemark.context import Context
from tidemark.errors import NotFoundError, TidemarkError, UsageError
from tidemark.model.core.names import parse_id
from tidemark.model.retention.savepoint import SavepointRecord

if TYPE_CHECKING:
    from tidemark.answers.timeline_facts import SavepointFacts
    from tidemark.coordinator.recovery.savepoints import Savepoints


def open_savepoints(context: Context, name: str) -> "Savepoints":
    """Opens the savepoints of a pipeline, whether it is running, paused, or its file is broken.

    Raises:
        NotFoundError: no such pipeline.
    """
    # Most commands that could take a savepoint take none.
    from tidemark.coordinator.recovery.savepoints import Savepoints

    return Savepoints(context.coordinator(context.require_pipeline(name)))


def resolve_checkpoint_id(
    context: Context, name: str, checkpoint: int | None = None, savepoint: str | None = None
) -> int | None:
    """Returns the id that a checkpoint or a savepoint names; None if neither is given.

    Raises:
        UsageError: both are given.
        NotFoundError: no such savepoint, or it is disposed.
    """
    if savepoint is None:
        return checkpoint
    if checkpoint is not None:
        raise UsageError("both a checkpoint and a savepoint", next="give one of them.")
    return open_savepoints(context, name).get(savepoint).checkpoint


def find_checkpoint_id(context: Context, name: str, text: str) -> int:
    """The id that a text names: `chk-17`, `17`, or a savepoint, which can never read as an id.

    Raises:
        NotFoundError: no such savepoint, or it is disposed.
    """
    if text.removeprefix("chk-").isdecimal():
        return parse_id(text)
    return open_savepoints(context, name).get(text).checkpoint


def describe_disposal(context: Context, name: str, savepoint: str) -> dict[str, object]:
    """The savepoint that a disposal ends, its checkpoint, and the savepoints that pin this one too; JSON values.

    Raises:
        NotFoundError: the name was never used.
    """
    opened = open_savepoints(context, name)
    found = opened.find(savepoint)
    if found is None:
        raise NotFoundError(f"{name} has no savepoint {savepoint!r}", next=f"tidemark savepoint list {name}")
    others = [other for other in opened.pins().get(found.checkpoint, ()) if other != savepoint]
    return {"name": savepoint, "checkpoint": found.checkpoint_name, "also_pinned_by": others}


def describe_savepoint(context: Context, name: str, record: SavepointRecord) -> "SavepointFacts":
    """A savepoint with the size and time of the checkpoint that it pins.

    `full_bytes` and `logical_time` are None if the manifest cannot be read, so that a list does not fail.
    """
    from tidemark.answers.checkpoint_facts import iso, iso_or_none
    from tidemark.answers.timeline_facts import SavepointFacts

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
