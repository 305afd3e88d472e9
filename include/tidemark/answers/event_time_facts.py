"""How far event time is on the live timeline: watermarks of sources, and frontiers of operators."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionClock:
    """A partition of a source.

    Attributes:
        partition: topic and partition.
        seen: its greatest event time, none above the logical time of its checkpoint; null = it has had no record yet.
        idle: whether the watermark does not wait for it.
        holds_back: whether it is the slowest one, so that the watermark follows it.
    """

    partition: str
    seen: str | None
    idle: bool
    holds_back: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceClock:
    """A source with a watermark.

    Attributes:
        name: of the source.
        watermark: no record before it is expected any more; null = not known yet.
        idle: whether none of its partitions has a say.
        delay: in milliseconds; null if the checkpoint moved no clock.
        furthest: where the watermark would be if the furthest partition alone decided.
        partitions: those of its topics.
    """

    name: str
    watermark: str | None
    idle: bool
    delay: int | None
    furthest: str | None
    partitions: Sequence[PartitionClock]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorClock:
    """An operator with windows or timers.

    Attributes:
        uid: the operator.
        what: what waits for its frontier: `windows`, `timers`, or `rows` of an interval join.
        windows: its windows in words; empty for timers.
        closes_by: `watermark` or `logical_time`; null if the checkpoint moved no clock.
        follows: the clocks that it follows: sources, and operators before it.
        lateness: in milliseconds; null as for `closes_by`.
        frontier: windows that end there or before are closed, timers up to it have fired; null = not known yet.
        furthest: where the frontier would be if the furthest partitions and inputs alone decided; null if it closes
            by logical time.
        emitted, fired: rows that the checkpoint emitted, and timers that fired in it.
        late: late records of the last `recent` checkpoints.
        late_to: `rows` of an output, or `dead_letters`.
    """

    uid: str
    what: str
    windows: str
    closes_by: str | None
    follows: Sequence[str]
    lateness: int | None
    frontier: str | None
    furthest: str | None
    emitted: int
    fired: int
    late: int
    late_to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimeFacts:
    """Event time at the newest checkpoint of the live timeline; without a checkpoint `checkpoint` is null.

    Attributes:
        checkpoint: its name.
        logical_time: its logical time.
        covered_until: the end of the newest interval that the timeline covers.
        drains: whether it has closed all windows and fired all timers.
        recent: over how many checkpoints late records are counted.
        sources: those with a watermark.
        operators: those with windows or timers.
    """

    checkpoint: str | None
    logical_time: str | None
    covered_until: str | None
    drains: bool
    recent: int
    sources: Sequence[SourceClock]
    operators: Sequence[OperatorClock]
