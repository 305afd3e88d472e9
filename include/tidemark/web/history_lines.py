"""Entries of the history as answers, under the names of Flink's REST interface."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.answers.checkpoint_facts import iso_or_none
from tidemark.answers.checkpoint_overview import ChartPoint, CheckpointLine, GateCount, HistorySummary, TopicSpan
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.web.history import CheckpointStatus, HistoryEntry, quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """Selects checkpoints of a history.

    Attributes:
        status: one of `CheckpointStatus`; None = any.
        timeline: its name; None = any.
        pinned: only checkpoints that a savepoint pins.
        text: a part of an id, an origin or the name of a savepoint; empty = any.
        limit: the length of a page, which begins after the first `offset` checkpoints.
    """

    status: CheckpointStatus | None = None
    timeline: str | None = None
    pinned: bool = False
    text: str = ""
    limit: int = 25
    offset: int = 0

    def takes(self, entry: HistoryEntry, pins: Sequence[str]) -> bool:
        """Whether a checkpoint matches."""
        if self.status not in (None, entry.status) or self.timeline not in (None, entry.slot.timeline):
            return False
        if self.pinned and not pins:
            return False
        wanted = self.text.casefold()
        return not wanted or any(wanted in text.casefold() for text in (entry.name, entry.origin, *pins))


def line_of(entry: HistoryEntry, pins: Sequence[str], *, discarded: bool) -> CheckpointLine:
    """A checkpoint of the history.

    Args:
        entry: the checkpoint as it was read.
        pins: names of the savepoints that pin it.
        discarded: whether retention has released it.
    """
    done = entry.status is CheckpointStatus.COMPLETED
    reason, message, after = entry.failure
    return CheckpointLine(
        id=entry.id,
        status=entry.status.value,
        is_savepoint=bool(pins),
        checkpoint_type="SAVEPOINT" if pins else "CHECKPOINT",
        trigger_timestamp=entry.trigger_ms,
        checkpointed_size=entry.run_bytes,
        state_size=entry.full_bytes,
        end_to_end_duration=entry.duration_ms,
        latest_ack_timestamp=entry.ack_ms,
        work_duration=entry.work_ms,
        processed_data=entry.record_bytes,
        num_subtasks=len(entry.uids),
        num_acknowledged_subtasks=len(entry.uids) if done else 0,
        external_path=entry.key if done else None,
        discarded=discarded,
        failure_timestamp=entry.failed_ms,
        failure_message=message or None,
        failure_reason=reason or None,
        failure_next=after or None,
        savepoints=list(pins),
        name=entry.name,
        timeline=entry.slot.timeline,
        sequence=entry.slot.sequence,
        parent=entry.parent,
        attempt=entry.attempt,
        origin=entry.origin,
        logical_time=iso_or_none(entry.logical_time_ms),
        records=entry.records,
        dead_letters=entry.dead_letters,
        dead_letters_at_most=entry.at_most,
        keys=entry.keys,
        emitted=entry.emitted,
        offsets={topic: TopicSpan(partitions=n, span=span) for topic, (n, span) in entry.offsets.items()},
        pending_records=sum(entry.pending.values()),
        gate=None if entry.gate is None else GateCount(held=entry.gate[0], expectations=entry.gate[1]),
        replays=list(entry.replays),
    )


def point_of(entry: HistoryEntry) -> ChartPoint:
    """A checkpoint as a point of the charts."""
    return ChartPoint(
        id=entry.id,
        trigger_timestamp=entry.trigger_ms,
        end_to_end_duration=entry.duration_ms,
        work_duration=entry.work_ms,
        checkpointed_size=entry.run_bytes,
        state_size=entry.full_bytes,
        records=entry.records,
        dead_letters=entry.dead_letters,
        dead_letters_at_most=entry.at_most,
        offsets=dict(entry.spans),
        pending_records=sum(entry.pending.values()),
        pending=dict(entry.pending),
    )


def summarize(completed: tuple[HistoryEntry, ...]) -> HistorySummary:
    """Minimum, maximum, average and percentiles of every measure, over completed checkpoints that are not empty."""
    found = [e for e in completed if not e.is_empty]
    return HistorySummary(
        checkpointed_size=quantiles(e.run_bytes for e in found),
        state_size=quantiles(e.full_bytes for e in found),
        end_to_end_duration=quantiles(e.duration_ms for e in found),
        work_duration=quantiles(e.work_ms for e in found),
        processed_data=quantiles(e.record_bytes for e in found),
        records=quantiles(e.records for e in found),
        measured=len(found),
        empty=len(completed) - len(found),
    )


def counts_as_failure(entry: HistoryEntry) -> bool:
    """Whether a failure counts against `tolerable_failed_checkpoints`; reasons of later releases do."""
    return entry.failure[0] not in FailureReason.__members__ or FailureReason(entry.failure[0]).counts
