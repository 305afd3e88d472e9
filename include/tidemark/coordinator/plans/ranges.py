"""The offset ranges of the next plan: from the parent's end offsets to a barrier that is frozen now."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from tidemark.coordinator.plans.cut import Bound, cut
from tidemark.coordinator.plans.initial_offsets import first_starts, to_ms
from tidemark.coordinator.plans.inputs import Parent
from tidemark.coordinator.plans.runs import Runs, is_valid
from tidemark.declare.pipeline import KafkaSource, Pipeline, shared_topic
from tidemark.errors import BrokerError, DataLostError, IncompatibleStateError
from tidemark.model.checkpoint.plan import Gap
from tidemark.model.checkpoint.store_objects import RunRecord
from tidemark.model.core.log_records import LogRecord, ReadBounds
from tidemark.model.core.offsets import BarrierOffsets, OffsetRange, OffsetRanges, TopicPartition
from tidemark.ports import Log, PartitionLog, PlanRequest, PutOutcome, SourceLog

# Records that were lost before they were read: found, reported exactly, and skipped only on request.
#
# Records are lost in four ways: the topic was deleted, recreated (another topic id), trimmed (retention), or its log
# became shorter.
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


def refuse_older_positions(
    pipeline: Pipeline, parent: Parent, found: "PlannedRanges", stateful: Collection[str]
) -> None:
    """Refuses to fold changes of a recreated topic into state of the earlier one.

    Versions of a row go by position. Offsets begin again, so an old version would stay the latest.

    Args:
        pipeline: the declaration.
        parent: the parent of the plan.
        found: what the plan reads.
        stateful: uids of the operators that have state.

    Raises:
        IncompatibleStateError: lists the operators and the topics.
    """
    ids = found.topic_ids
    again = {topic for topic, number in parent.topic_ids.items() if ids.get(topic, number) != number}
    if not again:
        return
    schemas = pipeline.schemas()
    wrong = [
        f"{uid} (topic {topic})"
        for name, topics in found.sources.items()
        for uid in pipeline.readers(name)
        for topic in sorted(again.intersection(topics))
        if schemas[uid].has_row_keys and uid in stateful
    ]
    if wrong:
        raise IncompatibleStateError(
            f"a recreated topic begins at offset 0, and versions of rows go by offset: {', '.join(wrong)}",
            safe=SAFE,
            next="give the operator a new uid, which the snapshot in the topic fills; then repeat with --accept-loss.",
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


def recreated_topic_loss(tp: TopicPartition, start: int, ids: tuple[str, str], log: PartitionLog | None) -> Loss:
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
    losses = [recreated_topic_loss(tp, end, (then[tp.topic], now[tp.topic]), None) for tp, end in gone.items()]
    return {tp: end for tp, end in parked.items() if tp not in gone}, losses


def refuse(losses: Iterable[Loss]) -> None:
    """Refuses losses that the request does not accept.

    Raises:
        DataLostError: lists every exact gap.
    """
    gaps = describe_losses(losses)
    if gaps:
        raise DataLostError(
            f"data lost: {gaps}",
            safe=SAFE,
            next="lengthen the topic's retention; to continue with a recorded gap, repeat with --accept-loss.",
        )


def describe_losses(losses: Iterable[Loss]) -> str:
    """Lists losses in words, each with its topic, partition and exact offsets; empty if there are none."""
    return "; ".join(
        f"topic {x.gap.partition.topic}, partition {x.gap.partition.partition}, {_offsets(x.gap)}" for x in losses
    )


def _offsets(gap: Gap) -> str:
    where = f"offset {gap.lost.start}" if gap.lost.is_empty else f"offsets {gap.lost}"
    return f"{where} {gap.why}"


# With `until="interval_end"`, ranges end before the first record whose timestamp reaches the interval's end.
#
# Kafka answers one question about time: the first offset of the whole log whose timestamp is at or after t. A record
# with a timestamp far in the future therefore hides every later record: each later interval gets that record's offset,
# whether it was read long ago or not. Such a record ends no range. The records after it are read, for their
# timestamps only, in every plan until Kafka's retention deletes it.
_BOUNDS = ReadBounds(matches=1, records=1_000_000, size=256 * 1024 * 1024, seconds=20.0)
"""Bounds of reading one partition for timestamps. A range ends where the read stops; the next plan continues there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalEnd:
    """The end of an interval, as a bound on the timestamps of records.

    Attributes:
        at_ms: a record with this timestamp or a later one belongs to a later interval.
        future_ms: a later timestamp than this cannot be right: the record is read now and belongs to no interval.
        isolation: Kafka's isolation level.
    """

    at_ms: int
    future_ms: int
    isolation: str

    def interval_ends(
        self, ranges: Mapping[TopicPartition, OffsetRange], log: SourceLog
    ) -> tuple[dict[TopicPartition, int], bool]:
        """Returns where the interval ends in each range, and False if it may continue beyond that.

        Args:
            ranges: from the start offsets to the end of the log.
            log: Kafka.

        Raises:
            NotFoundError: a partition does not exist.
            BrokerError: no answer.
        """
        at = log.offsets_at(dict.fromkeys(ranges, self.at_ms))
        caps = {tp: cap for tp, r in ranges.items() if (cap := at.get(tp)) is not None and cap < r.end}
        # A cap below the start (older records arrived late) results in an empty range, never in a backward one.
        ends = {tp: max(r.start, caps.get(tp, r.end)) for tp, r in ranges.items()}
        later = log.offsets_at(dict.fromkeys(caps, self.future_ms + 1)) if caps else {}
        whole = True
        for tp, cap in caps.items():
            if later.get(tp) == cap:  # the record at the cap has a timestamp in the future
                ends[tp], complete = self._behind(tp, ends[tp], ranges[tp], log)
                whole = whole and complete
        return ends, whole

    def _behind(self, tp: TopicPartition, hidden: int, within: OffsetRange, log: SourceLog) -> tuple[int, bool]:
        """The first record of a later interval among the hidden ones; if there is none, where the read ended."""
        if hidden >= within.end:
            return hidden, True

        def is_later(_: TopicPartition, record: LogRecord) -> bool:
            return self.at_ms <= record.timestamp_ms <= self.future_ms

        found = log.read({tp: OffsetRange(hidden, within.end)}, self.isolation, _BOUNDS, is_later)
        if found.records:
            return found.records[0][1].offset, True
        if found.next is None:
            return within.end, True
        if found.next[1] <= hidden:
            raise BrokerError(
                f"no record of {tp} at or after offset {hidden} within {_BOUNDS.seconds:.0f} s",
                safe="nothing was planned; every completed checkpoint is intact.",
                next="check the broker, then run the same command again.",
            )
        return found.next[1], False


_LOOKS = 5
"""Bounds between two equal answers about topic ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRanges:
    """Ranges of every partition, topic ids, topics per input, accepted gaps, and whether no range was cut.

    `pending` is the number of offsets that the log holds beyond the ranges, by partition.
    """

    ranges: OffsetRanges
    topic_ids: Mapping[str, str]
    sources: Mapping[str, tuple[str, ...]]
    losses: tuple[Gap, ...]
    covers: bool
    pending: Mapping[TopicPartition, int]

    @property
    def read(self) -> list[TopicPartition]:
        """The partitions that an input reads; parked ones are left out."""
        topics = {topic for found in self.sources.values() for topic in found}
        return [tp for tp in self.ranges if tp.topic in topics]


@dataclass(slots=True, kw_only=True)
class _Input:
    """One source while its ranges are planned."""

    bounds: Mapping[TopicPartition, PartitionLog]
    topic_ids: Mapping[str, str]
    starts: dict[TopicPartition, int]
    losses: list[Loss]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimit:
    """How much of what its request asks for one checkpoint may read.

    Attributes:
        bound: the most that it reads.
        runs: of the request, if further checkpoints continue what the bound cuts; None = up to the log's present end.
    """

    bound: Bound
    runs: Runs | None


def plan_ranges(
    pipeline: Pipeline,
    request: PlanRequest,
    parent: Parent,
    log: SourceLog,
    *,
    now_ms: int = 0,
    limit: ReadLimit | None = None,
) -> PlannedRanges:
    """Freezes the ranges of the next checkpoint: one barrier across all partitions of all inputs.

    Args:
        pipeline: the declaration.
        request: the caller's request.
        parent: where the ranges begin.
        log: Kafka.
        now_ms: the clock. A timestamp that exceeds both the clock and the interval by `max_future` ends no range.
        limit: how much the checkpoint may read; None = all. Topics of broadcast states are never cut: the first years
            of a topic would be joined with nothing.

    Raises:
        DeclarationError: two inputs read the same topic.
        DataLostError: records are lost and the request does not accept it; the message lists the exact gaps.
        NotFoundError: a named topic does not exist.
        BrokerError: Kafka did not answer.
    """
    while True:
        found = _plan_once(pipeline, request, parent, log, now_ms, limit)
        if found is not None:
            return found
        # Another process has just fixed the run's ends. They may lie beyond the log's ends that were found before.


def _plan_once(
    pipeline: Pipeline,
    request: PlanRequest,
    parent: Parent,
    log: SourceLog,
    now_ms: int,
    limit: ReadLimit | None,
) -> PlannedRanges | None:
    # Read before the log's ends, so that these lie behind it unless the log became shorter.
    fixed = None if limit is None or limit.runs is None else limit.runs.newest()
    inputs = {name: _input(name, source, parent, log) for name, source in pipeline.inputs.items()}
    topics = {name: tuple(sorted({tp.topic for tp in i.bounds})) for name, i in inputs.items()}
    _refuse_shared(pipeline.name, topics)
    losses = [loss for i in inputs.values() for loss in i.losses]
    if not request.accept_loss:
        refuse(losses)
    for found in inputs.values():
        _move_on(found)
    read = {tp: OffsetRange(s, max(i.bounds[tp].end, s)) for i in inputs.values() for tp, s in i.starts.items()}
    ids = {topic: number for i in inputs.values() for topic, number in i.topic_ids.items()}
    future_ms = _future_ms(pipeline, request, now_ms)
    interval = _interval_end(pipeline, request, future_ms)
    starts = {tp: r.start for tp, r in read.items()}
    held = None if fixed is None else _held_ends(fixed[1], read, topic_ids=ids, inputs=inputs)
    ends, covers = held or _run_ends(read, interval, log)
    if held is None and fixed is not None and limit is not None and limit.runs is not None:
        outcome = limit.runs.fix(starts, ends, after=fixed[0], inputs=inputs, topic_ids=ids, whole=covers)
        if outcome is PutOutcome.LOST:
            return None
    run_ends = ends
    if limit is not None:
        may_cut = {tp: OffsetRange(s, ends[tp]) for name in pipeline.sources for tp, s in inputs[name].starts.items()}
        ends = ends | cut(may_cut, limit.bound, log, future_ms=future_ms, isolation=pipeline.isolation)
        covers = covers and ends == run_ends
    # A partition that no input names any more keeps its end offset, so that an input that names it again continues
    # there.
    parked = {tp: end for tp, end in parent.ends.items() if not any(s.reads(tp) for s in pipeline.inputs.values())}
    parked, gone = still_parked(parked, parent.topic_ids, ids)
    losses += gone
    return PlannedRanges(
        ranges=OffsetRanges.between(parked | starts, BarrierOffsets(parked | ends)),
        topic_ids={tp.topic: parent.topic_ids[tp.topic] for tp in parked} | ids,
        sources=topics,
        losses=tuple(loss.gap for loss in losses),
        covers=covers,
        pending={
            tp: left
            for found in inputs.values()
            for tp, bounds in found.bounds.items()
            if (left := bounds.end - ends.get(tp, bounds.end)) > 0
        },
    )


def _input(name: str, source: KafkaSource, parent: Parent, log: Log) -> _Input:
    known = {tp: end for tp, end in parent.ends.items() if source.reads(tp)}
    before = log.topic_ids({tp.topic for tp in known})
    refuse_deleted({tp.topic for tp in known}, before)
    bounds, topic_ids = _bounds_with_ids(source, parent, log, before)
    # A source that the parent did not have starts as declared; partitions that were read under another name continue.
    is_new = parent.id is None or name not in parent.sources
    starts = (first_starts(source, log, bounds) if is_new else {}) | known
    return _Input(bounds=bounds, topic_ids=topic_ids, starts=starts, losses=_losses(starts, bounds, parent, topic_ids))


def _bounds_with_ids(
    source: KafkaSource, parent: Parent, log: Log, before: Mapping[str, str]
) -> tuple[Mapping[TopicPartition, PartitionLog], dict[str, str]]:
    """The bounds of every partition, and the ids of the topics that they belong to.

    Kafka returns bounds and ids in separate requests, so bounds count only between two equal answers about ids. A topic
    that is read for the first time costs a second request.
    """
    for _ in range(_LOOKS):
        bounds = _bounds(source, parent, log)
        topics = {tp.topic for tp in bounds}
        ids = dict(log.topic_ids(topics))
        refuse_deleted(topics, ids)
        if all(before.get(topic) == number for topic, number in ids.items()):
            return bounds, ids
        before = ids
    raise BrokerError(
        f"topics were recreated again and again while their ends were read: {', '.join(sorted(topics))}",
        safe="nothing was planned; every completed checkpoint is intact.",
        next="run the same command again once the topics stay as they are.",
    )


def _refuse_shared(pipeline: str, topics: Mapping[str, Sequence[str]]) -> None:
    owners: dict[str, str] = {}
    for name, read in topics.items():
        for topic in read:
            if topic in owners:
                raise shared_topic(pipeline, topic, (owners[topic], name))
            owners[topic] = name


def _bounds(source: KafkaSource, parent: Parent, log: Log) -> Mapping[TopicPartition, PartitionLog]:
    bounds = log.partitions(source.topics, source.isolation)
    if parent.isolation != "read_uncommitted" or source.isolation == "read_uncommitted":
        return bounds
    # The parent may have read beyond the last committed record: no loss, the next range is empty until the log catches
    # up.
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
            loss = recreated_topic_loss(tp, start, (then, now), bounds.get(tp))
        else:
            loss = find_loss(tp, start, bounds.get(tp))
        if loss is not None:
            found.append(loss)
    return found


def _move_on(found: _Input) -> None:
    for loss in found.losses:
        if loss.resume_at is None:
            del found.starts[loss.gap.partition]
        else:
            found.starts[loss.gap.partition] = loss.resume_at
    for tp, bounds in found.bounds.items():
        found.starts.setdefault(tp, bounds.earliest)


def _run_ends(
    read: Mapping[TopicPartition, OffsetRange], interval: IntervalEnd | None, log: SourceLog
) -> tuple[dict[TopicPartition, int], bool]:
    """Where the request ends now, whatever a checkpoint may read, and whether that is certainly all of its interval."""
    if interval is None:
        return {tp: r.end for tp, r in read.items()}, True
    return interval.interval_ends(read, log)


def _held_ends(
    record: RunRecord | None,
    read: Mapping[TopicPartition, OffsetRange],
    *,
    topic_ids: Mapping[str, str],
    inputs: Iterable[str],
) -> tuple[dict[TopicPartition, int], bool] | None:
    """The ends that the run's first plan found; None if they must be found (again).

    A partition that the run does not know stays where it begins. An end is lowered to the log's present end: a log that
    was truncated would leave one that no plan can reach.
    """
    if record is None or not is_valid(record, inputs, topic_ids):
        return None
    ends = _within(record.ends, read)
    # If the look for the interval's end gave up, its ends are no more than a piece of the way.
    reached = ends == {tp: r.start for tp, r in read.items()}
    return (ends, record.whole) if record.whole or not reached else None


def _within(
    ends: Mapping[TopicPartition, int], read: Mapping[TopicPartition, OffsetRange]
) -> dict[TopicPartition, int]:
    return {tp: max(r.start, min(ends.get(tp, r.start), r.end)) for tp, r in read.items()}


def _future_ms(pipeline: Pipeline, request: PlanRequest, now_ms: int) -> int:
    # In an interval that is long past, the records since then have honest, later timestamps.
    end_ms = now_ms if request.interval_end is None else to_ms(request.interval_end)
    return max(end_ms, now_ms) + pipeline.max_future // timedelta(milliseconds=1)


def _interval_end(pipeline: Pipeline, request: PlanRequest, future_ms: int) -> IntervalEnd | None:
    if not request.until_interval_end or request.interval_end is None:
        return None
    return IntervalEnd(at_ms=to_ms(request.interval_end), future_ms=future_ms, isolation=pipeline.isolation)
