"""The records and windows for which a checkpoint emits to a sink, and how a sink remembers that it has their rows.

A sink remembers source offsets (`SinkTable.covered`). The offset of a dead letter is covered as soon as it was read,
although nothing was emitted for it. So for redriven records a sink remembers the checkpoints that redrove them, as
offsets of a topic of their own (adr/0042): the algebra of coverages then holds for both, over restores that keep sinks,
promotes and deliveries, and a redrive costs a sink one number however many records it has.

The row of a closed window has no record either. Its position is the end of the window, as an offset of a topic of its
operator (adr/0054), so a sink covers closed windows up to the operator's frontier. The same holds for rows that a timer
emits, by its time (adr/0056). The row of an interval join has two records; its position is its event time (adr/0058),
which may lie ahead of the frontier. So a sink that a restore has kept skips all pairs of the cuts that are repeated.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.redrive import LetterPlace, redriven_places
from tidemark.model.core.clocks import EventTimeClock
from tidemark.model.core.offsets import OffsetCoverage, OffsetRange, Ranges, TopicPartition

if TYPE_CHECKING:
    from tidemark.model.checkpoint.manifest import Checkpoint

_REDRIVES = TopicPartition("redrives", 0)
"""Its offsets are ids of checkpoints. Kafka's ids of topics are longer."""
_EVER = 2**62
"""Milliseconds, after all others."""


def windows_of(uid: str) -> TopicPartition:
    """Returns the topic of an operator whose offsets are ends of windows; no topic of Kafka has a slash in its name."""
    return TopicPartition(f"windows/{uid}", 0)


def timers_of(uid: str) -> TopicPartition:
    """Returns the topic of an operator whose offsets are times of timers, in milliseconds."""
    return TopicPartition(f"timers/{uid}", 0)


def _clocked(plan: CheckpointPlan) -> list[TopicPartition]:
    """The topics of all operators with a frontier; the offsets up to it are in the past."""
    windows = [windows_of(uid) for uid, schema in plan.schemas.items() if schema.window is not None]
    return windows + [timers_of(uid) for uid, schema in plan.schemas.items() if schema.timers is not None]


def _joined(plan: CheckpointPlan) -> frozenset[TopicPartition]:
    """The topics of interval joins."""
    return frozenset(windows_of(uid) for uid, schema in plan.schemas.items() if schema.interval_join is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittedRecords:
    """The records of a plan for which an operator with a sink emits.

    The position of a row shows whether its record was redriven: letters lie below the ranges of the plan, and those of
    a topic that was recreated are not redriven to a sink.

    Attributes:
        ranges: the ranges of the plan, and those of ends of windows and times of timers.
        topic_ids: the ids of their topics.
        redriven: the redriven records that reach the operator.
        had: those of them whose rows the sink had before the plan.
        ahead: topics all of whose rows a sink has that has some, because the plan repeats a cut that it has kept.
    """

    ranges: Mapping[TopicPartition, OffsetRange]
    topic_ids: Mapping[str, str]
    redriven: OffsetCoverage = field(default_factory=OffsetCoverage)
    had: OffsetCoverage = field(default_factory=OffsetCoverage)
    ahead: frozenset[TopicPartition] = frozenset()

    @classmethod
    def of(cls, plan: CheckpointPlan, uid: str) -> "EmittedRecords":
        """Returns the records of a plan for the operator `uid`."""
        redriven = had = OffsetCoverage()
        for redrive in plan.redrives:
            if uid in redrive.sinks:
                redriven, had = redriven | redrive.coverage, had | redrive.sinks[uid]
        clocked = _clocked(plan)
        return cls(
            ranges={**plan.ranges, **dict.fromkeys(clocked, OffsetRange(0, _EVER))},
            topic_ids={**plan.topic_ids, **{tp.topic: tp.topic for tp in clocked}},
            redriven=redriven,
            had=had,
            ahead=_joined(plan) if plan.sinks_are_ahead else frozenset(),
        )

    def read_before(self, covered: OffsetCoverage) -> dict[TopicPartition, Ranges]:
        """Returns the offsets of the plan's ranges whose rows a sink has already."""
        found = covered.within(self.ranges, self.topic_ids)
        return found | {tp: (self.ranges[tp],) for tp in self.ahead if found.get(tp)}

    @property
    def redriven_before(self) -> set[LetterPlace]:
        """The redriven records whose rows the sink has already; the path of a row begins with that of its record."""
        return set(redriven_places(self.had & self.redriven, self.topic_ids))

    def lacks(self, covered: OffsetCoverage) -> Callable[[Mapping[str, object]], bool]:
        """Returns the condition that an emitted row still has to be written or sent."""
        there, redriven = self.read_before(covered), self.redriven_before

        def lacks(row: Mapping[str, object]) -> bool:
            topic, partition, offset = str(row["_topic"]), int(str(row["_partition"])), int(str(row["_offset"]))
            read = there.get(TopicPartition(topic, partition), ())
            if any(within.start <= offset < within.end for within in read):
                return False
            path = row["_path"] if redriven else ()
            assert isinstance(path, Sequence)  # noqa: S101  (for the type checker)
            return not any((topic, partition, offset, tuple(path[:n])) in redriven for n in range(len(path)))

        return lacks


def emitted_by(plan: CheckpointPlan, uid: str, clocks: Mapping[str, EventTimeClock]) -> OffsetCoverage:
    """Returns what the sink of an operator has of a checkpoint, once it has its rows.

    Args:
        plan: the plan of the checkpoint.
        uid: the operator.
        clocks: the clocks after it.
    """
    read = OffsetCoverage.of(plan.ranges, plan.topic_ids)
    for tp in _clocked(plan):
        name = tp.topic.partition("/")[2]
        frontier, window = clocks[name].watermark_ms if name in clocks else None, plan.schemas[name].window
        if frontier is not None:
            had = frontier + 1 if window is None else window.emitted_before(frontier)
            read |= OffsetCoverage({tp: (OffsetRange(0, had),)} if had > 0 else {})
    if any(uid in redrive.sinks for redrive in plan.redrives):
        read |= OffsetCoverage({_REDRIVES: (OffsetRange(plan.id, plan.id + 1),)})
    return read


def redriving_checkpoints(covered: OffsetCoverage) -> Iterator[int]:
    """Yields the ids of the checkpoints whose redriven records a sink has, ascending."""
    for within in covered.by_id.get(_REDRIVES, ()):
        yield from range(within.start, within.end)


def without_redriven(covered: OffsetCoverage) -> OffsetCoverage:
    """Returns a coverage without redriven records: they are emitted again if they are redriven again."""
    return OffsetCoverage({tp: ranges for tp, ranges in covered.by_id.items() if tp != _REDRIVES})


def after_frontiers(covered: OffsetCoverage, clocks: Mapping[str, EventTimeClock]) -> OffsetCoverage:
    """Returns the windows and timers of a coverage that are not past by some clocks: they will be emitted again."""
    found = OffsetCoverage()
    for tp, ranges in covered.by_id.items():
        kind, _, uid = tp.topic.partition("/")
        if tp in (windows_of(uid), timers_of(uid)) and kind != tp.topic:
            clock = clocks.get(uid)
            past = 0 if clock is None or clock.watermark_ms is None else max(0, clock.watermark_ms + 1)
            found |= OffsetCoverage({tp: ranges}) & OffsetCoverage({tp: (OffsetRange(past, _EVER),)})
    return found


def renamed_windows(covered: OffsetCoverage, renamed: Mapping[str, str]) -> OffsetCoverage:
    """Returns a coverage in which closed windows and timers belong to the new uids of their operators.

    >>> from tidemark.model.core.offsets import OffsetRange
    >>> had = OffsetCoverage({windows_of("hours"): (OffsetRange(0, 60001),)})
    >>> renamed_windows(had, {"hours": "by_hour"}).by_id
    {TopicPartition(topic='windows/by_hour', partition=0): (OffsetRange(start=0, end=60001),)}
    """
    topics = {of(old): of(new) for old, new in renamed.items() for of in (windows_of, timers_of)}
    found = OffsetCoverage()
    for tp, ranges in covered.by_id.items():
        found |= OffsetCoverage({topics.get(tp, tp): ranges})
    return found


def redriven_rows(checkpoint: "Checkpoint", name: str) -> OffsetCoverage:
    """Returns the redriven records for which a checkpoint emitted to the sink `name`.

    Those that were refused again are left out: a later redrive of them emits.
    """
    found = OffsetCoverage()
    for redrive in checkpoint.plan.redrives:
        ack = checkpoint.ack(redrive.uid)
        if ack is not None and any(checkpoint.plan.sinks[uid].name == name for uid in redrive.sinks):
            found |= redrive.coverage - (ack.refused_again or OffsetCoverage())
    return found
