"""The offset ranges of the next plan: from the parent's ends to a barrier frozen now (design section 7)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidemark.coordinator.losses import Loss, find_loss, recreated, refuse, refuse_deleted
from tidemark.coordinator.parents import Parent
from tidemark.coordinator.starts import first_starts, is_subscribed, to_ms
from tidemark.errors import UsageError
from tidemark.model.offsets import Barrier, OffsetRanges, TopicPartition
from tidemark.model.plan import Gap
from tidemark.pipeline import KafkaSource
from tidemark.ports import Log, PartitionLog, PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRanges:
    """Ranges of every partition, ids of every topic, accepted gaps, and whether nothing was cut by `max_records`."""

    ranges: OffsetRanges
    topic_ids: Mapping[str, str]
    losses: tuple[Gap, ...]
    covers: bool


def plan_ranges(source: KafkaSource, request: PlanRequest, parent: Parent, log: Log) -> PlannedRanges:
    """Freezes the ranges of the next checkpoint.

    Raises:
        UsageError: `max_records` below 1.
        DataLostError: records are gone and the request does not accept it; the message has the exact gaps.
        NotFoundError: a named topic does not exist.
        BrokerError: Kafka did not answer.
    """
    if request.max_records is not None and request.max_records < 1:
        raise UsageError(f"max_records={request.max_records}", next="give at least 1 record per partition.")
    known = {tp: end for tp, end in parent.ends.items() if is_subscribed(source, tp)}
    refuse_deleted({tp.topic for tp in known}, log.topic_ids({tp.topic for tp in known}))
    bounds = _bounds(source, parent, log)
    topic_ids = dict(log.topic_ids({tp.topic for tp in bounds}))
    refuse_deleted({tp.topic for tp in bounds}, topic_ids)
    starts = dict(known) if parent.id is not None else first_starts(source, log, bounds)
    losses = _losses(starts, bounds, parent, topic_ids)
    if not request.accept_loss:
        refuse(losses)
    for loss in losses:
        _move(starts, loss)
    for tp, found in bounds.items():
        starts.setdefault(tp, found.earliest)
    ends, covers = _ends(starts, bounds, request, log)
    # What the source does not name any more keeps its place, so that naming it again goes on there (I2).
    parked = {tp: end for tp, end in parent.ends.items() if tp not in known}
    return PlannedRanges(
        ranges=OffsetRanges.between(parked | starts, Barrier(parked | ends)),
        topic_ids={tp.topic: parent.topic_ids[tp.topic] for tp in parked} | topic_ids,
        losses=tuple(loss.gap for loss in losses),
        covers=covers,
    )


def _bounds(source: KafkaSource, parent: Parent, log: Log) -> Mapping[TopicPartition, PartitionLog]:
    bounds = log.partitions(source.topics, source.isolation)
    if parent.isolation != "read_uncommitted" or source.isolation == "read_uncommitted":
        return bounds
    # The parent read beyond what is committed by now: that is no loss, the next range is empty until the log is there.
    return {tp: replace(b, end=max(b.end, parent.ends.get(tp, 0))) for tp, b in bounds.items()}


def _losses(
    starts: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, PartitionLog],
    parent: Parent,
    topic_ids: Mapping[str, str],
) -> list[Loss]:
    found: list[Loss] = []
    for tp, start in sorted(starts.items()):
        then, now = parent.topic_ids.get(tp.topic), topic_ids.get(tp.topic)
        loss: Loss | None
        if then is not None and now is not None and then != now:
            loss = recreated(tp, start, (then, now), bounds.get(tp))
        else:
            loss = find_loss(tp, start, bounds.get(tp))
        if loss is not None:
            found.append(loss)
    return found


def _move(starts: dict[TopicPartition, int], loss: Loss) -> None:
    if loss.resume_at is None:
        del starts[loss.gap.partition]
    else:
        starts[loss.gap.partition] = loss.resume_at


def _ends(
    starts: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, PartitionLog],
    request: PlanRequest,
    log: Log,
) -> tuple[dict[TopicPartition, int], bool]:
    ends = {tp: bounds[tp].end for tp in starts}
    if request.until_interval_end and request.interval_end is not None:
        when = to_ms(request.interval_end)
        at = log.offsets_at({tp: when for tp in ends})
        reached = {tp: at.get(tp) for tp in ends}
        ends = {tp: end if (cap := reached[tp]) is None else min(end, cap) for tp, end in ends.items()}
    # An interval cap below the start (older records arrived late) is an empty range, never a backward one.
    ends = {tp: max(end, starts[tp]) for tp, end in ends.items()}
    if request.max_records is None:
        return ends, True
    cut = {tp: min(end, starts[tp] + request.max_records) for tp, end in ends.items()}
    return cut, cut == ends
