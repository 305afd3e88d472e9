"""The dry run of a restore, without writing anything: which checkpoints are left, read again, or lost."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tidemark.coordinator.plans.ancestry import since_split
from tidemark.coordinator.plans.inputs import Parent
from tidemark.coordinator.plans.ranges import Loss, plan_ranges, refuse
from tidemark.coordinator.plans.replay_ranges import left_to_repeat
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.plans.sink_inputs import SentRecords, Undelivered, leaving_tables
from tidemark.coordinator.records.timelines import Head
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.declare.pipeline import Pipeline
from tidemark.model.checkpoint.emitted import emitted_by
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan, Gap
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.core.offsets import OffsetCoverage, OffsetRange, TopicPartition
from tidemark.ports import PlanRequest
from tidemark.sinks.known_sinks import destination_of

_ANYTHING = PlanRequest(origin="dry run", accept_loss=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """The dry run of a restore.

    Attributes:
        genesis: the genesis that would be put; its timeline has no name yet.
        checkpoint: the checkpoint to begin at.
        left: checkpoints of the live timeline that would stay on it, newest first; they remain readable.
        read_again: offsets that the live timeline has read and the restored one reads again.
        gaps: offsets after the checkpoint that Kafka no longer has.
        sent: per Kafka sink, the source offsets whose rows the live timeline has sent.
        held: per Delta sink, the source offsets whose rows it holds.
        due: per Kafka sink, the checkpoints whose rows no timeline has sent; the restored timeline sends them first.
        gone: per Kafka sink, those whose rows retention has released, so that they are never sent.
        repeats: recorded checkpoints that the next run repeats one by one, because sinks have their closed windows.
    """

    genesis: Genesis
    checkpoint: Checkpoint
    left: tuple[Checkpoint, ...]
    read_again: Mapping[TopicPartition, OffsetRange]
    gaps: tuple[Gap, ...]
    sent: Mapping[str, OffsetCoverage]
    held: Mapping[str, OffsetCoverage]
    due: Mapping[str, tuple[Checkpoint, ...]]
    gone: Mapping[str, tuple[Checkpoint, ...]]
    repeats: tuple[CheckpointPlan, ...] = ()

    @property
    def sinks(self) -> Mapping[str, str]:
        """Describes in words what happens to every sink, by its name."""
        words: dict[str, str] = {}
        for table in self.genesis.sinks.values():  # a name may have belonged to a table, then to a topic
            before = [words[table.name]] if table.name in words else []
            words[table.name] = "; ".join([*before, self._describe_sink(table) + self._describe_loss])
        return words

    @property
    def sent_again(self) -> tuple[str, ...]:
        """Topics that would receive records again under ids that they have not seen."""
        topics = {t.name: t.topic or t.name for t in leaving_tables(_parent(self.genesis))}
        return tuple(topics.get(name, name) for name in self.resent)

    @property
    def resent(self) -> Mapping[str, OffsetCoverage]:
        """Per Kafka sink, the source offsets whose rows were sent and would be sent again, under other ids."""
        found = {name: sent - self.genesis.sent.get(name, OffsetCoverage()) for name, sent in self.sent.items()}
        return {name: offsets for name, offsets in found.items() if not offsets.is_empty}

    def refuse_gaps(self) -> None:
        """Refuses a restore if Kafka has lost records that it would read.

        Raises:
            DataLostError: lists the exact gaps.
        """
        refuse(Loss(gap=gap, resume_at=None) for gap in self.gaps)

    def _describe_sink(self, table: SinkTable) -> str:
        if not table.goes_back_on_restore:
            return self._describe_topic(table) + self._describe_due(table)
        covered, held = _covered(table), self.held.get(table.name, OffsetCoverage())
        if covered.contains(held) and held.contains(covered) and not self._had(table.name).contains(covered):
            return "keeps its rows; rows that are emitted again for the same records are skipped"
        if not covered.contains(held) or (self.read_again and held.is_empty):
            return "goes back to its rows as of the checkpoint; records that are read again emit again"
        return "continues with its rows"

    @property
    def _describe_loss(self) -> str:
        if not self.repeats or not self.gaps:
            return ""
        names = ", ".join(plan.name for plan in self.repeats)
        joins = [s.uid for plan in self.repeats for s in plan.schemas.values() if s.interval_join is not None]
        if joins:
            return f"; but {names} cannot be repeated, and {joins[0]} needs that: add --restore-sinks"
        return f"; with --accept-loss, {names} cannot be repeated: other records are late, and windows may differ"

    def _had(self, name: str) -> OffsetCoverage:
        """The offsets that a Delta sink covered at the checkpoint."""
        tables = (t for t in self.checkpoint.sinks.values() if t.goes_back_on_restore and t.name == name)
        return next((_covered(t) for t in tables), OffsetCoverage())

    def _describe_topic(self, table: SinkTable) -> str:
        if table.name in self.resent:
            sent = f"records sent to {destination_of(table)} stay"
            return f"{sent}; records that are read again are sent again, under other ids"
        if not self.read_again:
            return f"continues: nothing is sent to {destination_of(table)} again"
        return f"records sent to {destination_of(table)} stay, and are not sent again"

    def _describe_due(self, table: SinkTable) -> str:
        due, gone = _names(self.due.get(table.name, ())), _names(self.gone.get(table.name, ()))
        words = f"; rows of {due} that no timeline has sent are sent" if due else ""
        return words + (f"; rows of {gone} were never sent, and retention has released them" if gone else "")


def plan_restore(recovery: Recovery, restore_point: RestorePoint, pipeline: Pipeline) -> RestorePlan:
    """Plans a restore without writing; asks Kafka which records it still has.

    Raises:
        UsageError, IncompatibleStateError, CorruptObjectError: see `Recovery.draft`.
        DataLostError: a topic no longer exists.
        NotFoundError, BrokerError: Kafka does not know the topic, or does not answer.
    """
    c = recovery.coordinator
    genesis, live = recovery.draft(restore_point), c.head()
    ours = _parent(genesis)
    found = plan_ranges(pipeline, _ANYTHING, ours, c.log)
    there, timelines = Parent.of(live), c.timelines
    sent = SentRecords(timelines)
    waiting = list(_waiting(sent, genesis, timelines.ancestry(restore_point.checkpoint)))
    left = since_split(timelines.chain(live.timeline), timelines.ancestry(restore_point.checkpoint))
    return RestorePlan(
        genesis=replace(genesis, timeline=""),
        checkpoint=restore_point.checkpoint,
        left=tuple(left),
        read_again=find_read_again(ours, there),
        gaps=found.losses,
        sent=sent.of(live.timeline),
        held={t.name: t.coverage(there.topic_ids) for t in there.sinks.values() if t.goes_back_on_restore},
        due=_by_sink(x for x in waiting if not x.is_gone),
        gone=_by_sink(x for x in waiting if x.is_gone),
        repeats=tuple(left_to_repeat(timelines, restore_point.checkpoint, genesis.repeats_to))
        if genesis.repeats_to
        else (),
    )


def find_read_again(ours: Parent, there: Parent) -> dict[TopicPartition, OffsetRange]:
    """The offsets that one timeline has read and another reads again; all of them if a topic was created again.

    Args:
        ours: where the restored timeline begins.
        there: the head of the live one.
    """
    same = {topic for topic, number in ours.topic_ids.items() if there.topic_ids.get(topic, number) == number}
    starts = {tp: ours.ends.get(tp, 0) if tp.topic in same else 0 for tp in {*ours.ends, *there.ends}}
    return {tp: OffsetRange(at, there.ends[tp]) for tp, at in sorted(starts.items()) if there.ends.get(tp, 0) > at}


def _waiting(sent: SentRecords, genesis: Genesis, line: Iterator[Checkpoint]) -> Iterator[Undelivered]:
    """Rows that the restored timeline would send first: those of its ancestors that no timeline has sent."""
    for due in sent.list_undelivered(genesis, line, lambda: genesis.sent):
        if not due.passed_over.contains(emitted_by(due.checkpoint.plan, due.uid, due.checkpoint.sealed.facts.clocks)):
            yield due


def _parent(genesis: Genesis) -> Parent:
    return Parent.of(Head(timeline="", sequence=1, entry=genesis))


def _by_sink(found: Iterable[Undelivered]) -> Mapping[str, tuple[Checkpoint, ...]]:
    by_sink: dict[str, tuple[Checkpoint, ...]] = {}
    for due in found:
        by_sink[due.table.name] = (*by_sink.get(due.table.name, ()), due.checkpoint)
    return by_sink


def _names(found: Iterable[Checkpoint]) -> str:
    return ", ".join(f"{c.plan.name} (timeline {c.plan.slot.timeline})" for c in found)


def _covered(table: SinkTable) -> OffsetCoverage:
    return table.covered or OffsetCoverage()
