"""Checkpoints that retention has released. Their manifests stay and are listed; everything else is refused."""

from datetime import UTC, datetime
from itertools import islice

from tidemark.coordinator.records.timelines import Timelines
from tidemark.coordinator.records.tombstones import of_checkpoints, read_release
from tidemark.errors import ReleasedError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.retention.savepoint import TombstoneRecord

_SHOWN = 3


def usable(timelines: Timelines, checkpoint: Checkpoint) -> Checkpoint:
    """Returns the checkpoint if its state may still be read, restored and pinned.

    Raises:
        ReleasedError: it was released; the message says when, by which rule, and which newer checkpoints are kept.
    """
    record = read_release(timelines.objects, checkpoint.plan.name)
    if record is not None:
        raise _released(timelines, checkpoint.plan.name, record)
    return checkpoint


def _released(timelines: Timelines, name: str, record: TombstoneRecord) -> ReleasedError:
    pipeline, gone = timelines.objects.pipeline, of_checkpoints(timelines.objects)
    line = timelines.chain(timelines.live())
    kept = list(islice((c.plan.name for c in line if not _is_gone(gone.get(c.plan.name))), _SHOWN))
    at = datetime.fromtimestamp(record.at_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return ReleasedError(
        f"{name} was released at {at}: {record.why}",
        safe="every checkpoint that is kept is intact; nothing was written.",
        next=f"use one that is kept: {', '.join(kept)}    (tidemark checkpoint list {pipeline} shows more).",
    )


def _is_gone(record: TombstoneRecord | None) -> bool:
    return record is not None and record.confirmed
