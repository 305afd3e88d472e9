"""The recorded checkpoints that a fork repeats: those between its own head and another checkpoint, on one lineage.

The plan of a repetition takes ranges, logical time and watermark from the recorded plans, so it results in the same
state however much later it is made. A larger step repeats several recorded checkpoints at once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tidemark.coordinator.plans.inputs import Parent
from tidemark.coordinator.plans.ranges import (
    Loss,
    PlannedRanges,
    describe_losses,
    find_loss,
    recreated_topic_loss,
    still_parked,
)
from tidemark.coordinator.records.timelines import Head, Timelines
from tidemark.declare.pipeline import KafkaSource, Pipeline
from tidemark.errors import ConflictError, DataLostError, ReleasedError, UsageError
from tidemark.model.checkpoint.broadcast_copies import TableVersion
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan, Gap, Interval, Slot
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.core.offsets import BarrierOffsets, OffsetRange, OffsetRanges, TopicPartition
from tidemark.ports import Log, PartitionLog


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """Recorded checkpoints, oldest first, that one plan repeats. Their ranges are contiguous."""

    plans: tuple[CheckpointPlan, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids of the checkpoints."""
        return tuple(p.id for p in self.plans)

    @property
    def first(self) -> CheckpointPlan:
        """The oldest of the checkpoints."""
        return self.plans[0]

    @property
    def last(self) -> CheckpointPlan:
        """The newest of the checkpoints."""
        return self.plans[-1]

    @property
    def interval(self) -> Interval | None:
        """From the first to the last data interval that they cover; the newest one's interval if they cover none."""
        covered = [p.interval for p in self.plans if p.covers and p.interval is not None]
        if not covered:
            return self.last.interval
        return Interval(start_ms=min(i.start_ms for i in covered), end_ms=max(i.end_ms for i in covered))

    @property
    def covers(self) -> bool:
        """Whether `interval` is covered."""
        return any(p.covers and p.interval is not None for p in self.plans) or self.last.covers

    @property
    def versions(self) -> dict[str, TableVersion]:
        """Versions of the copied tables, by uid of their broadcast states."""
        return {
            uid: TableVersion(id=self.last.broadcast_ids[uid], version=version)
            for uid, version in self.last.broadcast_versions.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProgress:
    """How far a timeline has repeated recorded checkpoints, or a checkpoint at which a fork would begin.

    Attributes:
        timeline: its name, for messages; empty if it has none yet.
        id: id of the recorded checkpoint.
        ends: end offsets of its ranges.
        logical_time_ms: its logical time.
    """

    timeline: str
    id: int
    ends: Mapping[TopicPartition, int]
    logical_time_ms: int | None

    @classmethod
    def of(cls, head: Head) -> "ReplayProgress":
        """The progress of a timeline that repeats recorded checkpoints.

        Raises:
            ConflictError: the timeline was closed, or has read new records.
        """
        parent = Parent.of(head)
        return cls(
            timeline=head.timeline,
            id=_repeated_through(head),
            ends=parent.ends,
            logical_time_ms=parent.logical_time_ms,
        )

    @classmethod
    def at(cls, begins: Checkpoint, timeline: str = "") -> "ReplayProgress":
        """The progress of a fork that begins at a checkpoint and has repeated nothing yet."""
        plan = begins.plan
        return cls(timeline=timeline, id=begins.id, ends=plan.ranges.ends, logical_time_ms=plan.logical_time_ms)


def remaining(timelines: Timelines, place: ReplayProgress, to: int) -> Iterator[CheckpointPlan]:
    """The recorded plans that remain to be repeated, oldest first.

    On the timeline of `to` they are read one by one, so that the next step of a long repetition costs no more than that
    of a short one.

    Args:
        timelines: of the pipeline.
        place: the progress of the repetition.
        to: id of the checkpoint that the repetition ends with.

    Raises:
        NotFoundError: no such checkpoint.
        ConflictError: the place is not an ancestor of `to`.
    """
    last = timelines.checkpoint(to)
    with suppress(ReleasedError):
        done = timelines.find(place.id)
        if done is not None and done.plan.slot.timeline == last.plan.slot.timeline and done.id <= last.id:
            return _between(timelines, done.plan.slot, last.plan.slot)
    line = list[Checkpoint]()
    for found in timelines.ancestry(last):
        if found.id == place.id:
            return (c.plan for c in reversed(line))
        line.append(found)
    at = next((n for n, found in enumerate(line) if _is_there(found, place)), None)
    if at is not None:
        return (c.plan for c in reversed(line[:at]))
    stands = f"timeline {place.timeline} is at chk-{place.id}, which is not an ancestor of chk-{to}"
    raise ConflictError(
        stands if place.timeline else f"chk-{place.id} is not an ancestor of chk-{to}",
        next=f"tidemark checkpoint list {last.plan.pipeline}    (lists checkpoints; fork from an ancestor of it).",
    )


def left_to_repeat(timelines: Timelines, found: Checkpoint, to: int) -> Iterator[CheckpointPlan]:
    """The recorded plans that a timeline at a checkpoint repeats, so that windows close as in its sinks, oldest first.

    Plans without an engine are left out: they read nothing and move no clock.

    Args:
        timelines: of the pipeline.
        found: the newest checkpoint of the timeline, or the one that it begins at.
        to: id of the recorded checkpoint that the repetition ends with.

    Raises:
        ConflictError: neither the checkpoint nor one that it repeats, or that repeats it, is on the line of `to`.
    """
    return (plan for plan in _with_cuts_after(timelines, found, to) if not _is_without_engine(plan))


def _with_cuts_after(timelines: Timelines, found: Checkpoint, to: int) -> Iterator[CheckpointPlan]:
    last = timelines.checkpoint(to)
    done = _repeated_by(timelines, found)
    if done.plan.slot.timeline == last.plan.slot.timeline and done.id <= last.id:
        return _between(timelines, done.plan.slot, last.plan.slot)
    cuts, line = _cuts_of(timelines, done), list[CheckpointPlan]()
    for one in timelines.ancestry(last):
        # Equal offsets do not suffice: another line may have reached them in other steps.
        if _cuts_of(timelines, one) == cuts:
            return reversed(line)
        line.append(one.plan)
    raise ConflictError(
        f"{found.plan.name} is not an ancestor of {last.plan.name}",
        next=f"tidemark checkpoint list {last.plan.pipeline}    (lists checkpoints).",
    )


def _repeated_by(timelines: Timelines, found: Checkpoint) -> Checkpoint:
    """The recorded checkpoint that a timeline which repeats has reached; the given one if it repeats nothing."""
    plan = found.plan
    if not plan.repeats_to:
        return found
    if plan.replays:
        return timelines.checkpoint(plan.replays[-1])
    # A patch behind a checkpoint of a repetition.
    parent = None if plan.parent is None else timelines.find(plan.parent)
    return found if parent is None else _repeated_by(timelines, parent)


def _cuts_of(timelines: Timelines, found: Checkpoint) -> int:
    """Id of the first checkpoint that read what this one did in the same steps: all others repeat it."""
    while found.plan.replays:
        found = timelines.checkpoint(found.plan.replays[-1])
    return found.id


def _is_without_engine(plan: CheckpointPlan) -> bool:
    clocks = plan.clocks.values()
    return plan.ranges.is_empty and bool(clocks) and all(c.rule is None and c.frontier is None for c in clocks)


def _between(timelines: Timelines, after: Slot, last: Slot) -> Iterator[CheckpointPlan]:
    entries = (timelines.entry(last.timeline, n) for n in range(after.sequence + 1, last.sequence + 1))
    return (found.plan for found in entries if isinstance(found, Checkpoint))


def refuse_end(to: int | None) -> None:
    """Refuses a backfill that ends at a checkpoint, because it cannot become live.

    Raises:
        UsageError: the backfill ends at a checkpoint.
    """
    if to is not None:
        raise UsageError(
            f"a backfill up to chk-{to} cannot become live: it ends before the live head",
            next="omit the end: the backfill then repeats everything up to the live head.",
        )


def steps(pipeline: Pipeline, recorded: Iterable[CheckpointPlan], max_records: int | None) -> Iterator[RecordedStep]:
    """Groups recorded plans into the steps of a repetition: one plan each, or as many as `max_records` allows.

    Of a pipeline with a watermark each plan is a step of its own, because its clocks move once per checkpoint. A step
    ends before a checkpoint that changed a broadcast state or had lost records, because the records before such
    a checkpoint must not see the change; and before one that redrove dead letters, which are found in its parent.

    Args:
        pipeline: the current declaration.
        recorded: the plans to repeat, oldest first.
        max_records: offsets per step; a single checkpoint may have more. None = one checkpoint per step.

    Raises:
        UsageError: `max_records` is below 1.
    """
    if max_records is not None and max_records < 1:
        raise UsageError(f"max_records={max_records}", next="give at least 1 record.")
    step: list[CheckpointPlan] = []
    for plan in recorded:
        if step and (max_records is None or not _joins(pipeline, step, plan, max_records)):
            yield RecordedStep(plans=tuple(step))
            step = []
        step.append(plan)
    if step:
        yield RecordedStep(plans=tuple(step))


def recorded_ranges(pipeline: Pipeline, step: RecordedStep, parent: Parent, log: Log) -> PlannedRanges:
    """The ranges of a step, read by the current sources. The end offsets are recorded, so Kafka is not asked for them.

    Topics that no source reads any more stay where the parent left them. Topics without recorded offsets are read once
    the repetition is complete.

    Raises:
        DataLostError: Kafka no longer has all of the records; the message lists the exact gaps.
        BrokerError: Kafka did not answer.
    """
    read = {name: _partitions(source, step.last) for name, source in pipeline.inputs.items()}
    wanted = OffsetRanges({tp: _range(tp, step, parent) for found in read.values() for tp in found})
    refuse_lost(pipeline, wanted, step.plans, log)
    ids = {tp.topic: step.last.topic_ids[tp.topic] for tp in wanted}
    unread = {tp: end for tp, end in parent.ends.items() if tp not in wanted}
    parked, gone = still_parked(unread, parent.topic_ids, ids)
    starts = {tp: r.start for tp, r in wanted.items()}
    return PlannedRanges(
        ranges=OffsetRanges.between(parked | starts, BarrierOffsets(parked | wanted.ends)),
        topic_ids={tp.topic: parent.topic_ids[tp.topic] for tp in parked} | ids,
        sources={name: tuple(sorted({tp.topic for tp in found})) for name, found in read.items() if found},
        losses=(*(gap for gap in step.first.losses if gap.partition in wanted), *(loss.gap for loss in gone)),
        covers=step.covers,
        pending={},
    )


def refuse_lost(pipeline: Pipeline, wanted: OffsetRanges, recorded: Sequence[CheckpointPlan], log: Log) -> None:
    """Refuses ranges of which Kafka no longer has all records.

    Args:
        pipeline: its sources read the ranges.
        wanted: the ranges; empty ones are not checked.
        recorded: the plans of these ranges; the oldest one that knows a topic says which id it had.
        log: Kafka.

    Raises:
        DataLostError: lists the exact gaps.
        BrokerError: Kafka did not answer.
    """
    read = {tp: r for tp, r in wanted.items() if not r.is_empty}
    topics = sorted({tp.topic for tp in read})
    then = {topic: found for plan in reversed(recorded) for topic, found in plan.topic_ids.items()}
    now = log.topic_ids(topics)
    bounds = log.partitions(tuple(t for t in topics if t in now), pipeline.isolation) if now else {}
    # Records that were read uncommitted may lie beyond the last committed one; the read itself reports missing records.
    by_end = all(plan.isolation == pipeline.isolation for plan in recorded)
    found = [_loss(tp, r, (then[tp.topic], now.get(tp.topic)), bounds.get(tp), by_end) for tp, r in read.items()]
    losses = [loss for loss in found if loss is not None]
    if losses:
        raise DataLostError(
            f"data lost: {describe_losses(losses)}",
            safe="every completed checkpoint and savepoint is intact; nothing was written.",
            next="begin at a later savepoint, after which Kafka still has every record.",
        )


def whole(pipeline: Pipeline, recorded: Sequence[CheckpointPlan]) -> OffsetRanges:
    """All ranges that recorded plans have read from the topics that the pipeline reads now."""
    spans: dict[TopicPartition, OffsetRange] = {}
    for plan in recorded:
        for tp, r in plan.ranges.items():
            if any(source.reads(tp) for source in pipeline.inputs.values()) and not r.is_empty:
                spans[tp] = OffsetRange(spans[tp].start if tp in spans else r.start, r.end)
    return OffsetRanges(spans)


def _loss(
    tp: TopicPartition, wanted: OffsetRange, ids: tuple[str, str | None], log: PartitionLog | None, by_end: bool
) -> Loss | None:
    then, now = ids
    if now is None:
        return Loss(gap=Gap(partition=tp, lost=wanted, why="are gone: the topic was deleted"), resume_at=None)
    if then != now:
        return recreated_topic_loss(tp, wanted.start, (then, now), log)
    if log is not None and wanted.start < log.earliest:
        gone = OffsetRange(wanted.start, min(log.earliest, wanted.end))
        return Loss(gap=Gap(partition=tp, lost=gone, why="were deleted since"), resume_at=log.earliest)
    return find_loss(tp, wanted.end if by_end else wanted.start, log)


def _repeated_through(head: Head) -> int:
    """Id of the recorded checkpoint that a timeline has reached."""
    entry = head.entry
    if isinstance(entry, Genesis):
        return entry.parent
    if isinstance(entry, Checkpoint) and entry.plan.replays:
        return entry.plan.replays[-1]
    raise ConflictError(
        f"timeline {head.timeline} has read new records, so no recorded checkpoint follows it",
        next="fork again, under another name.",
    )


def _is_there(found: Checkpoint, place: ReplayProgress) -> bool:
    # A savepoint of a lineage that was promoted since: the repeated checkpoint has the same barrier and the same time.
    return found.plan.ranges.ends == place.ends and found.plan.logical_time_ms == place.logical_time_ms


def _joins(pipeline: Pipeline, before: Sequence[CheckpointPlan], plan: CheckpointPlan, bound: int) -> bool:
    broadcasts = [s for name, s in pipeline.inputs.items() if name not in pipeline.sources]
    changes = any(not r.is_empty and any(s.reads(tp) for s in broadcasts) for tp, r in plan.ranges.items())
    recreated_topic = any(before[-1].topic_ids.get(t, i) != i for t, i in plan.topic_ids.items())
    other_rule = (pipeline.clocked or pipeline.watermarks) or plan.caps_event_time != before[-1].caps_event_time
    if other_rule or changes or plan.copies or plan.losses or plan.redrives or recreated_topic:
        return False
    return sum(each.ranges.span for each in (*before, plan)) <= bound


def _partitions(source: KafkaSource, recorded: CheckpointPlan) -> list[TopicPartition]:
    return [tp for tp in recorded.ranges if source.reads(tp)]


def _range(tp: TopicPartition, step: RecordedStep, parent: Parent) -> OffsetRange:
    recorded = next(p.ranges[tp].start for p in step.plans if tp in p.ranges)
    lost = any(gap.partition == tp for gap in step.first.losses)
    # The parent's end decides, unless records were lost there: ranges are contiguous.
    start = recorded if lost else parent.ends.get(tp, recorded)
    return OffsetRange(start, max(start, step.last.ranges[tp].end))
