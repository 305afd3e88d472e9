"""Clocks of event time: a watermark per source and a frontier per operator with windows (adr/0052, adr/0054).

Flink generates watermarks per partition and combines their minimum; an idle partition does not hold it back
(https://nightlies.apache.org/flink/flink-docs-stable/docs/dev/datastream/event-time/generating_watermarks/). Here a
clock moves once per checkpoint, after its records are read, so it is the same however often that is repeated.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tidemark.model.core.offsets import TopicPartition

END_OF_TIME = 253_402_214_400_000
"""9999-12-31T00:00:00Z, in milliseconds: the frontiers after a drain. All engines hold it, in every time zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkRule:
    """How the watermark of a source follows its records.

    Attributes:
        delay_ms: how far it stays behind the greatest event time.
        idle_after_ms: a partition without records for so much logical time does not hold it back; None = it does.
        combine: `min` or `max` of the partitions.
    """

    delay_ms: int
    idle_after_ms: int | None
    combine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimeClock:
    """The clock of a source or of an operator after a checkpoint; times are milliseconds since the epoch.

    Attributes:
        watermark_ms: of a source its watermark: no record before it is expected any more. Of an operator its frontier:
            windows that end there or before are closed. None = not known yet. It never falls.
        seen: per partition the greatest event time of its decodable records, none above its checkpoint's logical time.
        moved: per partition the logical time of the last checkpoint that read such a record.
        is_idle: whether no partition has a say: the watermark stays, and the other sources of a reader count alone.
    """

    watermark_ms: int | None = None
    seen: Mapping[TopicPartition, int] = field(default_factory=dict)
    moved: Mapping[TopicPartition, int] = field(default_factory=dict)
    is_idle: bool = True

    def within(self, partitions: Collection[TopicPartition]) -> "EventTimeClock":
        """Returns the clock without all other partitions; its watermark stays."""
        return EventTimeClock(
            watermark_ms=self.watermark_ms,
            seen={tp: at for tp, at in self.seen.items() if tp in partitions},
            moved={tp: at for tp, at in self.moved.items() if tp in partitions},
            is_idle=self.is_idle,
        )

    def joined(self, other: "EventTimeClock") -> "EventTimeClock":
        """Returns the clock of a source that takes over the partitions of two."""
        known = [at for at in (self.watermark_ms, other.watermark_ms) if at is not None]
        return EventTimeClock(
            watermark_ms=max(known, default=None),
            seen={**self.seen, **other.seen},
            moved={**self.moved, **other.moved},
            is_idle=self.is_idle and other.is_idle,
        )

    def after(
        self,
        rule: WatermarkRule,
        *,
        partitions: Collection[TopicPartition],
        cut: Collection[TopicPartition],
        logical_ms: int,
        read: Mapping[TopicPartition, int],
    ) -> "EventTimeClock":
        """Returns the clock after a checkpoint.

        >>> rule = WatermarkRule(delay_ms=5, idle_after_ms=100, combine="min")
        >>> a, b = TopicPartition("t", 0), TopicPartition("t", 1)
        >>> one = EventTimeClock().after(rule, partitions=[a, b], cut=[], logical_ms=50, read={a: 40, b: 20})
        >>> one.watermark_ms
        15
        >>> one.after(rule, partitions=[a, b], cut=[], logical_ms=150, read={a: 120}).watermark_ms
        115

        Args:
            rule: the rule of the plan.
            partitions: the partitions that the plan reads; this clock has no others.
            cut: those of them whose next records the plan left in Kafka: they are not idle.
            logical_ms: logical time of the plan.
            read: per partition the greatest event time that the checkpoint read, if any.
        """
        new = {tp: min(at, logical_ms) for tp, at in read.items() if tp in partitions}
        seen = {**self.seen, **{tp: max(at, self.seen.get(tp, at)) for tp, at in new.items()}}
        moved = {**self.moved, **dict.fromkeys(new, logical_ms)}
        active = [tp for tp in partitions if tp in cut or _is_active(moved.get(tp), logical_ms, rule.idle_after_ms)]
        found = _combined(rule, seen, active)
        known = [at for at in (self.watermark_ms, found) if at is not None]
        return EventTimeClock(watermark_ms=max(known, default=None), seen=seen, moved=moved, is_idle=not active)


def _is_active(moved_ms: int | None, logical_ms: int, idle_after_ms: int | None) -> bool:
    return moved_ms is not None and (idle_after_ms is None or logical_ms - moved_ms < idle_after_ms)


def _combined(
    rule: WatermarkRule, seen: Mapping[TopicPartition, int], active: Collection[TopicPartition]
) -> int | None:
    """The watermark that the partitions allow; None if they allow none yet."""
    if rule.combine == "max":
        return max(seen.values()) - rule.delay_ms if seen else None
    if not active or any(tp not in seen for tp in active):
        return None
    return min(seen[tp] for tp in active) - rule.delay_ms


WATERMARK, LOGICAL_TIME = "watermark", "logical_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierRule:
    """How the frontier of an operator follows its clock.

    Attributes:
        closes_by: `watermark`, or `logical_time`: the end of the newest covered interval.
        lateness_ms: how far it stays behind the clock.
        inputs: of `watermark` the clocks that it follows: sources, and operators with windows that feed it.
    """

    closes_by: str
    lateness_ms: int
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedClock:
    """What decides the clock of a source or of an operator in a checkpoint, besides its records.

    Attributes:
        rule: of a source. Without it and without a frontier the clock stays: the checkpoint has no engine.
        before: the clock after the parent, of the partitions that the plan reads.
        cut: the partitions whose next records the plan leaves in Kafka: a bound or the end of an interval cut them, or
            a transaction is open. They are not idle.
        parked: partitions of the source's topics that no source reads any more.
        frontier: the rule of an operator with windows.
        logical_ms: of an operator that closes by logical time, that clock after the checkpoint; None = not known yet.
    """

    rule: WatermarkRule | None = None
    before: EventTimeClock = field(default_factory=EventTimeClock)
    cut: tuple[TopicPartition, ...] = ()
    parked: tuple[TopicPartition, ...] = ()
    frontier: FrontierRule | None = field(default=None, metadata={"added": True})
    logical_ms: int | None = field(default=None, metadata={"added": True})

    def after(
        self, partitions: Collection[TopicPartition], logical_ms: int, read: Mapping[TopicPartition, int]
    ) -> EventTimeClock:
        """Returns the clock after the checkpoint.

        Args:
            partitions: those of the source's topics in the plan, parked ones too.
            logical_ms: logical time of the plan.
            read: greatest event time of the batch per partition that has a good record.
        """
        if self.rule is None:
            return self.before
        own = frozenset(partitions).difference(self.parked)
        return self.before.after(self.rule, partitions=own, cut=self.cut, logical_ms=logical_ms, read=read)

    def moved_by(self, inputs: Mapping[str, EventTimeClock]) -> EventTimeClock:
        """Returns the frontier of an operator after the checkpoint: its clock minus the lateness, and it never falls.

        The clock is the smallest of the inputs that are not idle.

        Args:
            inputs: the clocks of its inputs after the checkpoint, by name.
        """
        if self.frontier is None:
            return self.before
        now = self.logical_ms
        if self.frontier.closes_by == WATERMARK:
            busy = [inputs[name].watermark_ms for name in self.frontier.inputs if not inputs[name].is_idle]
            now = None if None in busy else min((at for at in busy if at is not None), default=None)
        found = None if now is None else now - self.frontier.lateness_ms
        known = [at for at in (self.before.watermark_ms, found) if at is not None]
        return EventTimeClock(watermark_ms=max(known, default=None), is_idle=False)


def clocks_after(
    planned: Mapping[str, PlannedClock],
    partitions: Mapping[str, Collection[TopicPartition]],
    logical_ms: int,
    read: Mapping[TopicPartition, int],
    *,
    drains: bool = False,
) -> dict[str, EventTimeClock]:
    """Returns all clocks after a checkpoint: those of the sources, then those of the operators behind them.

    Args:
        planned: by source and by uid.
        partitions: by source those of its topics in the plan, parked ones too.
        logical_ms: logical time of the plan.
        read: greatest event time of the batch per partition that has a good record.
        drains: whether the frontiers of all operators move to the end of time (adr/0061).
    """
    found: dict[str, EventTimeClock] = {}

    def clock(name: str) -> EventTimeClock:
        if name not in found:
            one = planned.get(name, PlannedClock())
            if one.frontier is None:
                found[name] = one.after(partitions.get(name, ()), logical_ms, read)
            elif drains:
                found[name] = EventTimeClock(watermark_ms=END_OF_TIME, is_idle=False)
            else:
                found[name] = one.moved_by({each: clock(each) for each in one.frontier.inputs})
        return found[name]

    return {name: clock(name) for name in planned}
