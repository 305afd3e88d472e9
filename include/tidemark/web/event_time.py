"""Event time on the live timeline: watermarks, frontiers, and what holds them back; from the newest manifest alone."""

import re
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from itertools import islice

from tidemark.answers.checkpoint_facts import iso, iso_or_none
from tidemark.answers.event_time_facts import EventTimeFacts, OperatorClock, PartitionClock, SourceClock
from tidemark.context import Context
from tidemark.glance import glance_at
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.core.clocks import WATERMARK, EventTimeClock, PlannedClock
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.web import history_cache

RECENT = 20
"""Checkpoints over which late records are counted."""
_MS = re.compile(r"(\d+) ms")


def get_event_time(context: Context, name: str) -> EventTimeFacts:
    """Event time at the newest checkpoint of the live timeline.

    Raises:
        NotFoundError: no such pipeline.
        StoreError, CorruptObjectError: the store could not be read.
    """
    context = glance_at(context)
    coordinator = context.coordinator(history_cache.require_planned(context, name))
    newest = next(coordinator.checkpoints(), None)
    if newest is None:
        return EventTimeFacts(
            checkpoint=None, logical_time=None, covered_until=None, drains=False, recent=0, sources=[], operators=[]
        )
    clocked = {uid: schema for uid, schema in newest.plan.schemas.items() if is_clocked(schema)}
    late, recent = Counter[str](), 0
    for found in islice(coordinator.checkpoints(), RECENT if clocked else 0):
        recent += 1
        late.update({ack.uid: ack.late for ack in found.sealed.acks if ack.late})
    furthest = furthest_clocks(newest)
    return EventTimeFacts(
        checkpoint=newest.plan.name,
        logical_time=iso(newest.plan.logical_time_ms),
        covered_until=iso_or_none(newest.covered_until_ms),
        drains=newest.plan.drains,
        recent=recent,
        sources=[
            _source(newest, source, clock, furthest.get(source)) for source, clock in newest.source_clocks.items()
        ],
        operators=[_operator(newest, schema, late[uid], furthest.get(uid)) for uid, schema in clocked.items()],
    )


def is_clocked(schema: OperatorSchema) -> bool:
    """Whether an operator has a frontier: it has windows or timers."""
    return schema.window is not None or schema.timers is not None


def kind_of_wait(schema: OperatorSchema) -> str:
    """What waits for the frontier of an operator: `windows`, `timers`, or `rows` of an interval join."""
    return "timers" if schema.window is None else "windows" if schema.interval_join is None else "rows"


def furthest_clocks(checkpoint: Checkpoint) -> dict[str, int]:
    """Where the clocks of a checkpoint would be if the furthest partitions and inputs alone decided.

    A slower partition or input holds back windows and timers that are due up to there and still wait. Clocks that
    follow the logical time, and those that are not known yet, are left out.

    Returns:
        Milliseconds since the epoch, by source and by uid.
    """
    planned, found = checkpoint.plan.clocks, dict[str, int]()

    def furthest(name: str) -> int | None:
        clock = planned.get(name, PlannedClock())
        if clock.frontier is None:
            seen = checkpoint.sealed.facts.clocks.get(name, EventTimeClock()).seen
            return max(seen.values()) - clock.rule.delay_ms if seen and clock.rule is not None else None
        if clock.frontier.closes_by != WATERMARK:
            return None
        inputs = [at for at in map(furthest, clock.frontier.inputs) if at is not None]
        return max(inputs) - clock.frontier.lateness_ms if inputs else None

    for name in planned:
        at = furthest(name)
        if at is not None:
            found[name] = at
    return found


def _source(checkpoint: Checkpoint, name: str, clock: EventTimeClock, furthest: int | None) -> SourceClock:
    planned = checkpoint.plan.clocks.get(name, PlannedClock())
    topics = checkpoint.plan.sources[name]
    own = [tp for tp in sorted(checkpoint.plan.ranges) if tp.topic in topics and tp not in planned.parked]
    idle = {tp: _is_idle(planned, clock, tp, checkpoint.plan.logical_time_ms) for tp in own}
    slowest = _slowest(planned, clock, [tp for tp in own if not idle[tp]])
    return SourceClock(
        name=name,
        watermark=iso_or_none(clock.watermark_ms),
        idle=clock.is_idle,
        delay=None if planned.rule is None else planned.rule.delay_ms,
        furthest=iso_or_none(furthest),
        partitions=[
            PartitionClock(
                partition=str(tp), seen=iso_or_none(clock.seen.get(tp)), idle=idle[tp], holds_back=tp == slowest
            )
            for tp in own
        ],
    )


def _is_idle(planned: PlannedClock, clock: EventTimeClock, tp: TopicPartition, logical_ms: int) -> bool:
    moved, rule = clock.moved.get(tp), planned.rule
    if tp in planned.cut or rule is None:
        return False
    return moved is None or (rule.idle_after_ms is not None and logical_ms - moved >= rule.idle_after_ms)


def _slowest(planned: PlannedClock, clock: EventTimeClock, active: list[TopicPartition]) -> TopicPartition | None:
    """The partition that the watermark follows, if another one is further."""
    if planned.rule is None or planned.rule.combine == "max" or len(active) < 2:
        return None
    seen: Mapping[TopicPartition, int] = {tp: clock.seen.get(tp, -1) for tp in active}
    slowest = min(active, key=lambda tp: seen[tp])
    return slowest if seen[slowest] < max(seen.values()) else None


def _operator(checkpoint: Checkpoint, schema: OperatorSchema, late: int, furthest: int | None) -> OperatorClock:
    uid, ack = schema.uid, checkpoint.ack(schema.uid)
    rule = checkpoint.plan.clocks.get(uid, PlannedClock()).frontier
    return OperatorClock(
        uid=uid,
        what=kind_of_wait(schema),
        windows=_windows_in_words(schema),
        closes_by=None if rule is None else rule.closes_by,
        follows=() if rule is None else rule.inputs,
        lateness=None if rule is None else rule.lateness_ms,
        frontier=iso_or_none(checkpoint.now.frontiers.get(uid)),
        furthest=iso_or_none(furthest),
        emitted=0 if ack is None else ack.emitted_to_all,
        fired=0 if ack is None else ack.fired,
        late=late,
        late_to="rows" if schema.keeps_late else "dead_letters",
    )


def _windows_in_words(schema: OperatorSchema) -> str:
    join = schema.interval_join
    if join is not None:
        spans = (join.lower_ms, join.upper_ms)
        bounds = (f"{'-' if ms < 0 else ''}{span_in_words(abs(timedelta(milliseconds=ms)))}" for ms in spans)
        return f"{join.kind} ({join.how}) within {' to '.join(bounds)}"
    return "" if schema.window is None else _MS.sub(_in_words, schema.window.shown)


_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))


def span_in_words(span: timedelta) -> str:
    """A span as in `1 d 12 h`."""
    left, parts = span // timedelta(milliseconds=1), list[str]()
    for unit, size in _UNITS:
        whole, left = divmod(left, size)
        if whole:
            parts.append(f"{whole:,} {unit}")
    return " ".join(parts) or "0 ms"


def _in_words(found: re.Match[str]) -> str:
    return span_in_words(timedelta(milliseconds=int(found[1])))
