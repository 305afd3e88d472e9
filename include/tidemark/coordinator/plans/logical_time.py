"""A clock that is far ahead must not set logical time: it never goes back on a timeline, and expires state for good."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from tidemark.coordinator.records.timelines import Head
from tidemark.errors import ConflictError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.core.offsets import TopicPartition
from tidemark.ports import Log

LEAP = timedelta(days=90)
"""How far logical time may go beyond the parent checkpoint, its making, and every record, without being confirmed.

A quarter without checkpoints and records is unlikely; a clock that is wrong by less expires what a restore of the
parent brings back.
"""
_MS = timedelta(milliseconds=1)


def refuse_leap(pipeline: str, logical_ms: int, head: Head, partitions: Iterable[TopicPartition], log: Log) -> None:
    """Returns where logical time is near the parent's, near the time at which that was made, or near a record's.

    Kafka is asked only where the parent does not vouch for the time. A first checkpoint has no state to lose.

    Args:
        pipeline: its name.
        logical_ms: the next plan's.
        head: what it builds on.
        partitions: what is read.
        log: Kafka.

    Raises:
        ConflictError: nothing is near.
        NotFoundError, BrokerError: as the log raises.
    """
    known, since = _known_ms(head), logical_ms - LEAP // _MS
    if known is None or known >= since:
        return
    at = log.offsets_at(dict.fromkeys(partitions, since))
    if any(offset is not None for offset in at.values()):
        return
    raise ConflictError(
        f"logical time would be {_iso(logical_ms)}: {timedelta(milliseconds=logical_ms - known).days} days after the"
        f" newest checkpoint was made, and no record is newer than {_iso(since)}",
        safe="nothing was planned; logical time never goes back, so a clock that is ahead would expire state for good.",
        next=f"correct the clock, or the interval; if the time is right: tidemark run {pipeline} --accept-time",
    )


def _known_ms(head: Head) -> int | None:
    entry = head.entry
    if isinstance(entry, Checkpoint):
        return max(entry.plan.logical_time_ms, entry.plan.planned_at_ms)
    return max(entry.logical_time_ms, entry.at_ms) if isinstance(entry, Genesis) else None


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, tz=UTC).isoformat(timespec="seconds")
