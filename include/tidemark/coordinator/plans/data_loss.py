"""Records that were lost before they were read: found, reported exactly, and skipped only on request.

Records are lost in four ways: the topic was deleted, recreated (another topic id), trimmed (retention), or its log
became shorter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemark.errors import DataLostError
from tidemark.model.checkpoint.plan import Gap
from tidemark.model.core.offsets import OffsetRange, TopicPartition
from tidemark.ports import PartitionLog

SAFE = "every completed checkpoint and older restore point is intact; nothing was written."


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A partition that cannot continue where it should: the gap, and where it can continue (None = nowhere)."""

    gap: Gap
    resume_at: int | None


def refuse_deleted(topics: Iterable[str], topic_ids: Mapping[str, str]) -> None:
    """Refuses topics that the parent read and that no longer exist.

    Raises:
        DataLostError: lists the topics; no option accepts this loss, because there is no log to continue with.
    """
    gone = sorted(t for t in topics if t not in topic_ids)
    if gone:
        raise DataLostError(
            f"data lost: topic {', '.join(gone)} was deleted",
            safe=SAFE,
            next="create the topic again and repeat with --accept-loss, or remove it from the source.",
        )


def find_loss(tp: TopicPartition, start: int, log: PartitionLog | None) -> Loss | None:
    """Finds the loss in one partition of a topic whose id has not changed.

    Args:
        tp: the partition.
        start: where the next range should start.
        log: bounds of the partition; None if it no longer exists.
    """
    if log is None:
        return Loss(gap=Gap(partition=tp, lost=OffsetRange(start, start), why="the partition is gone"), resume_at=None)
    if log.earliest > start:
        why = "were deleted before they were read"
        return Loss(gap=Gap(partition=tp, lost=OffsetRange(start, log.earliest), why=why), resume_at=log.earliest)
    if log.end < start:
        # Continuing at the end applies nothing twice: everything before it was read already.
        why = "were read, but the log is shorter now"
        return Loss(gap=Gap(partition=tp, lost=OffsetRange(log.end, start), why=why), resume_at=log.end)
    return None


def recreated(tp: TopicPartition, start: int, ids: tuple[str, str], log: PartitionLog | None) -> Loss:
    """The loss in one partition of a topic that was deleted and created again.

    Args:
        tp: the partition.
        start: where the next range of the old topic should have started.
        ids: the earlier and the current topic id.
        log: bounds in the new topic; None if it has no such partition.
    """
    why = f"and later ones of topic id {ids[0]} are gone: the topic was recreated as {ids[1]}"
    resume_at = None if log is None else log.earliest
    return Loss(gap=Gap(partition=tp, lost=OffsetRange(start, start), why=why), resume_at=resume_at)


def still_parked(
    parked: Mapping[TopicPartition, int], then: Mapping[str, str], now: Mapping[str, str]
) -> tuple[dict[TopicPartition, int], list[Loss]]:
    """Separates the partitions that no source reads any more from those whose topic was recreated, which are losses.

    An offset in the old topic means nothing in the new one: a source that names the partition again reads all of it.

    Args:
        parked: end offset of each of these partitions.
        then: topic ids of the parent, to which those offsets belong.
        now: ids of the topics that the plan reads.
    """
    gone = {tp: end for tp, end in parked.items() if now.get(tp.topic, then[tp.topic]) != then[tp.topic]}
    losses = [recreated(tp, end, (then[tp.topic], now[tp.topic]), None) for tp, end in gone.items()]
    return {tp: end for tp, end in parked.items() if tp not in gone}, losses


def refuse(losses: Iterable[Loss]) -> None:
    """Refuses losses that the request does not accept.

    Raises:
        DataLostError: lists every exact gap.
    """
    gaps = told(losses)
    if gaps:
        raise DataLostError(
            f"data lost: {gaps}",
            safe=SAFE,
            next="lengthen the topic's retention; to continue with a recorded gap, repeat with --accept-loss.",
        )


def told(losses: Iterable[Loss]) -> str:
    """Lists losses in words, each with its topic, partition and exact offsets; empty if there are none."""
    return "; ".join(
        f"topic {x.gap.partition.topic}, partition {x.gap.partition.partition}, {_offsets(x.gap)}" for x in losses
    )


def _offsets(gap: Gap) -> str:
    where = f"offset {gap.lost.start}" if gap.lost.is_empty else f"offsets {gap.lost}"
    return f"{where} {gap.why}"
