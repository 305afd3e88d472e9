"""The clocks of the next plan: the rules of its sources, their clocks after the parent, and what holds them back."""

from collections.abc import Mapping

from tidemark.coordinator.plans.inputs import Parent
from tidemark.coordinator.plans.ranges import PlannedRanges
from tidemark.declare.pipeline import Pipeline
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.clocks import WATERMARK, EventTimeClock, FrontierRule, PlannedClock, WatermarkRule
from tidemark.model.core.names import operator_of
from tidemark.model.core.offsets import TopicPartition
from tidemark.ports import Log


def plan_clocks(
    pipeline: Pipeline, parent: Parent, found: PlannedRanges, log: Log, recorded: CheckpointPlan | None = None
) -> dict[str, PlannedClock]:
    """Returns what decides the clock of each source in a plan, besides its records.

    Args:
        pipeline: the declaration.
        parent: the parent of the plan.
        found: what the plan reads.
        log: Kafka; it is asked for the ends of the log, once per source.
        recorded: the plan that this one repeats: its cuts are taken over, and Kafka is not asked.

    Raises:
        NotFoundError, BrokerError: as the log raises.
    """
    planned = {}
    for name, rule in _rules(pipeline).items():
        if name not in found.sources:
            continue
        held = sorted(tp for tp in found.ranges if tp.topic in found.sources[name])
        own = [tp for tp in held if pipeline.sources[name].reads(tp)]
        waiting = _waiting(pipeline, name, found, log) if recorded is None else _left_behind(recorded)
        planned[name] = PlannedClock(
            rule=rule,
            before=_before(name, own, parent, found),
            cut=tuple(tp for tp in own if tp in waiting),
            parked=tuple(tp for tp in held if tp not in own),
        )
    return planned


_GREATEST = WatermarkRule(delay_ms=0, idle_after_ms=None, combine="max")
"""The rule of a source without a watermark that feeds windows or timers: the greatest event time, as in 0.1."""


def _rules(pipeline: Pipeline) -> dict[str, WatermarkRule]:
    by_watermark = (o for o in pipeline.clocked if o.clock_of_frontier == WATERMARK)
    needed = {clock_of(pipeline, name) for o in by_watermark for name in pipeline.inputs_of(o)}
    return dict.fromkeys(sorted(needed.intersection(pipeline.sources)), _GREATEST) | pipeline.watermarks


def clock_of(pipeline: Pipeline, name: str) -> str:
    """Returns the clock of an input or output: that of a source, or the frontier of the windows or timers before it."""
    while name not in pipeline.sources:
        operator = pipeline.operator(operator_of(name, pipeline.schemas()))
        if operator in pipeline.clocked:
            return operator.uid
        name = pipeline.input_of(operator)
    return name


def plan_frontiers(pipeline: Pipeline, parent: Parent, logical_ms: int | None) -> dict[str, PlannedClock]:
    """Returns what decides the frontier of each operator with windows or timers in a plan.

    Args:
        pipeline: the declaration.
        parent: the parent of the plan.
        logical_ms: the end of the newest interval that will be covered; None = there is none.
    """
    planned = {}
    for each in pipeline.clocked:
        closes_by = each.clock_of_frontier or WATERMARK
        by_watermark = closes_by == WATERMARK
        followed = dict.fromkeys(clock_of(pipeline, name) for name in pipeline.inputs_of(each))
        inputs = tuple(followed) if by_watermark else ()
        before = parent.clocks.get(each.uid) or parent.clocks.get(each.was) or EventTimeClock()
        planned[each.uid] = PlannedClock(
            before=before,
            frontier=FrontierRule(closes_by=closes_by, lateness_ms=each.lateness_ms, inputs=inputs),
            logical_ms=None if by_watermark else logical_ms,
        )
    return planned


def kept_clocks(before: Mapping[str, EventTimeClock]) -> dict[str, PlannedClock]:
    """Returns the clocks of a plan that is completed without an engine: it moves none."""
    return {name: PlannedClock(before=clock) for name, clock in before.items()}


def _left_behind(recorded: CheckpointPlan) -> set[TopicPartition]:
    return {tp for clock in recorded.clocks.values() for tp in clock.cut} | set(recorded.pending)


def _waiting(pipeline: Pipeline, name: str, found: PlannedRanges, log: Log) -> set[TopicPartition]:
    """The partitions with offsets behind the range, of open transactions too."""
    source, ends = pipeline.sources[name], found.ranges.ends
    held = log.partitions(source.topics, "read_uncommitted")
    return {tp for tp, bounds in held.items() if tp in ends and bounds.end > ends[tp]}


def _before(name: str, own: list[TopicPartition], parent: Parent, found: PlannedRanges) -> EventTimeClock:
    """The clock of a source after the parent: its own, and what the parent knew of its partitions under other names.

    A source that the parent does not have takes over the watermark of one that is gone and had a topic of it, because
    that one was renamed.
    """
    held = parent.clocks
    same = [tp for tp in own if parent.topic_ids.get(tp.topic) == found.topic_ids[tp.topic]]
    before = held.get(name, EventTimeClock())
    if name not in held:
        topics = {tp.topic for tp in same}
        gone = [
            n
            for n in held
            if n in parent.sources and n not in found.sources and topics.intersection(parent.sources.get(n, ()))
        ]
        for each in gone:
            before = before.joined(held[each])
    others = [clock for n, clock in held.items() if n != name and n in parent.sources]
    seen = _known(parent, same)
    moved = dict.fromkeys(seen, parent.logical_time_ms or 0)
    for clock in (*others, before):
        seen |= clock.within(same).seen
        moved |= clock.within(same).moved
    return EventTimeClock(watermark_ms=before.watermark_ms, seen=seen, moved=moved, is_idle=before.is_idle)


def _known(parent: Parent, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """What the parent has read of partitions without a clock: the watermark may be declared later than the source."""
    if parent.logical_time_ms is None:
        return {}
    most = parent.logical_time_ms
    return {tp: min(parent.watermarks[tp], most) for tp in partitions if tp in parent.watermarks}
