"""Lines of the history as JSON, under the names of Flink's REST interface (K7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.model.checkpoint.checkpoint_facts import iso
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.web.history import CheckpointStatus, HistoryEntry, quantiles

Json = dict[str, Any]
MEASURES = {
    "checkpointed_size": "run_bytes",
    "state_size": "full_bytes",
    "end_to_end_duration": "duration_ms",
    "work_duration": "work_ms",
    "processed_data": "record_bytes",
    "records": "records",
}
"""Flink's name of what is summed up → the field of a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """Which lines of a history.

    Attributes:
        status: one of `CheckpointStatus`; None = any.
        timeline: its name; None = any.
        pinned: only checkpoints that a savepoint pins.
        text: a part of an id, an origin or the name of a savepoint; empty = any.
        limit: at most so many, after the first `offset`.
    """

    status: CheckpointStatus | None = None
    timeline: str | None = None
    pinned: bool = False
    text: str = ""
    limit: int = 25
    offset: int = 0

    def takes(self, entry: HistoryEntry, pins: Sequence[str]) -> bool:
        """Whether a line is wanted."""
        if self.status not in (None, entry.status) or self.timeline not in (None, entry.slot.timeline):
            return False
        if self.pinned and not pins:
            return False
        wanted = self.text.casefold()
        return not wanted or any(wanted in text.casefold() for text in (entry.name, entry.origin, *pins))


def line(entry: HistoryEntry, pins: Sequence[str], *, discarded: bool) -> Json:
    """One checkpoint of the history.

    Args:
        entry: what is known of it.
        pins: names of the savepoints that pin it.
        discarded: whether it is released.
    """
    done = entry.status is CheckpointStatus.COMPLETED
    reason, message, after = entry.failure
    return {
        "id": entry.id,
        "status": entry.status.value,
        "is_savepoint": bool(pins),
        "checkpoint_type": "SAVEPOINT" if pins else "CHECKPOINT",
        "trigger_timestamp": entry.trigger_ms,
        "checkpointed_size": entry.run_bytes,
        "state_size": entry.full_bytes,
        "end_to_end_duration": entry.duration_ms,
        "latest_ack_timestamp": entry.ack_ms,
        "processed_data": entry.record_bytes,
        "num_subtasks": len(entry.uids),
        "num_acknowledged_subtasks": len(entry.uids) if done else 0,
        "external_path": entry.key if done else None,
        "discarded": discarded,
        "failure_timestamp": entry.failed_ms,
        "failure_message": message or None,
        "failure_reason": reason or None,
        "failure_next": after or None,
        "savepoints": list(pins),
        **_ours(entry),
    }


def _ours(entry: HistoryEntry) -> Json:
    """What Flink has no name for."""
    return {
        "name": entry.name,
        "timeline": entry.slot.timeline,
        "sequence": entry.slot.sequence,
        "parent": entry.parent,
        "attempt": entry.attempt,
        "origin": entry.origin,
        "logical_time": None if entry.logical_time_ms is None else iso(entry.logical_time_ms),
        "work_duration": entry.work_ms,
        "records": entry.records,
        "dead_letters": entry.dead_letters,
        "dead_letters_at_most": entry.at_most,
        "keys": entry.keys,
        "emitted": entry.emitted,
        "offsets": {topic: {"partitions": n, "span": span} for topic, (n, span) in entry.offsets.items()},
        "pending_records": sum(entry.pending.values()),
        "gate": None if entry.gate is None else {"held": entry.gate[0], "expectations": entry.gate[1]},
        "replays": list(entry.replays),
    }


def point(entry: HistoryEntry) -> Json:
    """One point of the charts."""
    return {
        "id": entry.id,
        "trigger_timestamp": entry.trigger_ms,
        "end_to_end_duration": entry.duration_ms,
        "work_duration": entry.work_ms,
        "checkpointed_size": entry.run_bytes,
        "state_size": entry.full_bytes,
        "records": entry.records,
        "dead_letters": entry.dead_letters,
        "dead_letters_at_most": entry.at_most,
        "offsets": dict(entry.spans),
        "pending_records": sum(entry.pending.values()),
        "pending": dict(entry.pending),
    }


def summary(completed: tuple[HistoryEntry, ...]) -> Json:
    """Least, greatest, average and percentiles of every measure, over completed checkpoints that are not empty.

    Returns:
        The measures; `measured` of so many checkpoints, and how many were left out because they are `empty`.
    """
    found = [e for e in completed if not e.is_empty]
    measures = {name: quantiles(getattr(e, field) for e in found) for name, field in MEASURES.items()}
    return {**measures, "measured": len(found), "empty": len(completed) - len(found)}


def counts(entry: HistoryEntry) -> bool:
    """Whether a failure counts against `tolerable_failed_checkpoints` (E8); a reason of a later release does."""
    return entry.failure[0] not in FailureReason.__members__ or FailureReason(entry.failure[0]).counts
