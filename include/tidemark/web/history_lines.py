"""Entries of the history as answers, under the names of Flink's REST interface."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from tidemark.answers.checkpoint_facts import iso, iso_or_none
from tidemark.answers.checkpoint_overview import (
    ChartPoint,
    CheckpointLine,
    DataInterval,
    GateCount,
    HistorySummary,
    TopicSpan,
)
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.web.history import CheckpointStatus, HistoryEntry, quantiles

HistorySort = Literal[
    "id", "-id", "trigger_timestamp", "-trigger_timestamp", "records", "-records", "dead_letters", "-dead_letters",
    "checkpointed_size", "-checkpointed_size", "state_size", "-state_size", "end_to_end_duration",
    "-end_to_end_duration", "pending_records", "-pending_records",
]  # fmt: skip
"""A field of `CheckpointLine`, smallest first; with `-` largest first."""
_PLANNED: Mapping[str, Callable[[HistoryEntry], int]] = {
    "id": lambda e: e.id,
    "trigger_timestamp": lambda e: e.trigger_ms,
    "pending_records": lambda e: sum(e.pending.values()),
}
_MEASURED: Mapping[str, Callable[[HistoryEntry], int]] = {
    "records": lambda e: e.records,
    "dead_letters": lambda e: e.dead_letters,
    "checkpointed_size": lambda e: e.run_bytes,
    "state_size": lambda e: e.full_bytes,
    "end_to_end_duration": lambda e: e.duration_ms,
}
"""Only completed checkpoints have these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """Selects checkpoints of a history.

    Attributes:
        status: one of `CheckpointStatus`; None = any.
        timeline: its name; None = any.
        pinned: only checkpoints that a savepoint pins.
        text: a part of an id, an origin, the name of a savepoint, or the reason or message of a failure; empty = any.
        since: triggered at this time or later; without a zone it is UTC.
        until: triggered before this time.
        sort: the order; checkpoints without the measure come last, equal ones newest first.
        limit: the length of a page, which begins after the first `offset` checkpoints.
    """

    status: CheckpointStatus | None = None
    timeline: str | None = None
    pinned: bool = False
    text: str = ""
    since: datetime | None = None
    until: datetime | None = None
    sort: HistorySort = "-id"
    limit: int = 25
    offset: int = 0

    def select(self, entries: Iterable[HistoryEntry], pins: Mapping[int, Sequence[str]]) -> list[HistoryEntry]:
        """The checkpoints that match, on all pages, in order.

        Args:
            entries: a history, newest first.
            pins: names of savepoints by the ids of the checkpoints that they pin.
        """
        since = 0 if self.since is None else _ms(self.since)
        until = None if self.until is None else _ms(self.until)
        found = [
            e
            for e in entries
            if since <= e.trigger_ms and (until is None or e.trigger_ms < until) and self._takes(e, pins.get(e.id, ()))
        ]
        return _sorted(found, self.sort)

    def _takes(self, entry: HistoryEntry, pins: Sequence[str]) -> bool:
        if self.status not in (None, entry.status) or self.timeline not in (None, entry.slot.timeline):
            return False
        if self.pinned and not pins:
            return False
        if not self.text:
            return True
        wanted = self.text.casefold()
        return any(wanted in text.casefold() for text in (entry.name, entry.origin, *entry.failure[:2], *pins))


def _ms(at: datetime) -> int:
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _sorted(found: list[HistoryEntry], by: HistorySort) -> list[HistoryEntry]:
    name = by.removeprefix("-")
    if name in _PLANNED:
        return sorted(found, key=_PLANNED[name], reverse=by.startswith("-"))
    done = [e for e in found if e.status is CheckpointStatus.COMPLETED]
    rest = [e for e in found if e.status is not CheckpointStatus.COMPLETED]
    return [*sorted(done, key=_MEASURED[name], reverse=by.startswith("-")), *rest]


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
        interval=_interval(entry.interval_ms),
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


def _interval(bounds: tuple[int, int] | None) -> DataInterval | None:
    return None if bounds is None else DataInterval(start=iso(bounds[0]), end=iso(bounds[1]))


def point_of(entry: HistoryEntry, pins: Sequence[str] = ()) -> ChartPoint:
    """A checkpoint as a point of the charts, with the savepoints that pin it."""
    return ChartPoint(
        id=entry.id,
        timeline=entry.slot.timeline,
        parent=entry.parent,
        trigger_timestamp=entry.trigger_ms,
        end_to_end_duration=entry.duration_ms,
        work_duration=entry.work_ms,
        checkpointed_size=entry.run_bytes,
        state_size=entry.full_bytes,
        records=entry.records,
        dead_letters=entry.dead_letters,
        dead_letters_at_most=entry.at_most,
        savepoints=list(pins),
        compacted=list(entry.compacted),
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
