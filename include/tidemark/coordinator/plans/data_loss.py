"""Records that are gone before they were read: found, named exactly, and recorded only on request (I2).

Four ways: the topic was deleted, recreated (another topic id), trimmed (retention), or its log became shorter.
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
    """One partition that cannot go on where it should: the gap, and where it could go on (None = it is gone)."""

    gap: Gap
    resume_at: int | None


def refuse_deleted(topics: Iterable[str], topic_ids: Mapping[str, str]) -> None:
    """Raises for topics that the parent read and that are gone.

    Raises:
        DataLostError: naming them; no flag helps, because there is nothing to go on with.
    """
    gone = sorted(t for t in topics if t not in topic_ids)
    if gone:
        raise DataLostError(
            f"data lost: topic {', '.join(gone)} was deleted",
            safe=SAFE,
            next="create the topic again and repeat with --accept-loss, or take it out of the source.",
        )


def find_loss(tp: TopicPartition, start: int, log: PartitionLog | None) -> Loss | None:
    """What is lost of one partition whose topic still has the id that it had.

    Args:
        tp: the partition.
        start: where the next range should start.
        log: its bounds; None where the partition is gone.
    """
    if log is None:
        return Loss(gap=Gap(partition=tp, lost=OffsetRange(start, start), why="the partition is gone"), resume_at=None)
    if log.earliest > start:
        why = "were deleted before they were read"
        return Loss(gap=Gap(partition=tp, lost=OffsetRange(start, log.earliest), why=why), resume_at=log.earliest)
    if log.end < start:
        # Going on at the end applies nothing twice: what lies before it was read already.
        why = "were read, but the log is shorter now"
        return Loss(gap=Gap(partition=tp, lost=OffsetRange(log.end, start), why=why), resume_at=log.end)
    return None


def recreated(tp: TopicPartition, start: int, ids: tuple[str, str], log: PartitionLog | None) -> Loss:
    """The loss of one partition of a topic that was deleted and made again.

    Args:
        tp: the partition.
        start: where the next range of the old topic should have started.
        ids: topic id then and now.
        log: bounds in the new topic; None where it has no such partition.
    """
    why = f"and later ones of topic id {ids[0]} are gone: the topic was recreated as {ids[1]}"
    resume_at = None if log is None else log.earliest
    return Loss(gap=Gap(partition=tp, lost=OffsetRange(start, start), why=why), resume_at=resume_at)


def still_parked(
    parked: Mapping[TopicPartition, int], then: Mapping[str, str], now: Mapping[str, str]
) -> tuple[dict[TopicPartition, int], list[Loss]]:
    """Partitions that no source reads any more, without those whose topic was recreated, and these as losses.

    An offset of the old topic is no place in the new one: a source that names the partition again reads all of it.

    Args:
        parked: where each of them stands.
        then: topic ids of the parent, in which those offsets are counted.
        now: ids of the topics that the plan reads.
    """
    gone = {tp: end for tp, end in parked.items() if now.get(tp.topic, then[tp.topic]) != then[tp.topic]}
    losses = [recreated(tp, end, (then[tp.topic], now[tp.topic]), None) for tp, end in gone.items()]
    return {tp: end for tp, end in parked.items() if tp not in gone}, losses


def refuse(losses: Iterable[Loss]) -> None:
    """Raises for losses that nobody accepted.

    Raises:
        DataLostError: with every exact gap.
    """
    gaps = told(losses)
    if gaps:
        raise DataLostError(
            f"data lost: {gaps}",
            safe=SAFE,
            next="lengthen the topic's retention; to go on with a recorded gap, repeat with --accept-loss.",
        )


def told(losses: Iterable[Loss]) -> str:
    """Losses in words, each with its topic, partition and exact offsets; empty where there are none."""
    return "; ".join(
        f"topic {x.gap.partition.topic}, partition {x.gap.partition.partition}, {_offsets(x.gap)}" for x in losses
    )


def _offsets(gap: Gap) -> str:
    where = f"offset {gap.lost.start}" if gap.lost.is_empty else f"offsets {gap.lost}"
    return f"{where} {gap.why}"
