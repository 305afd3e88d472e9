"""The sinks of the next plan: each continues where the parent's sink of the same name ended."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from tidemark.coordinator.plans.inputs import Parent
from tidemark.coordinator.records.timelines import Head, Timelines
from tidemark.coordinator.records.tombstones import read_release
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import IncompatibleStateError, NotFoundError
from tidemark.model.checkpoint.emitted import (
    EmittedRecords,
    after_frontiers,
    emitted_by,
    redriven_rows,
    redriving_checkpoints,
    renamed_windows,
    without_redriven,
)
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.object_keys import delivery_key
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.sinks import SinkTable, sink_path
from tidemark.model.checkpoint.store_objects import Closing, DeliveryRecord, Genesis
from tidemark.model.core.offsets import OffsetCoverage, OffsetRange, TopicPartition
from tidemark.model.core.types import FieldType
from tidemark.model.state.evolution import Misfit
from tidemark.model.state.sink_evolution import evolved_sink, sink_misfits
from tidemark.ports import Log
from tidemark.sinks.sink import Sink

# The offsets whose rows the sinks of a lineage have sent, and the rows that still wait in their outboxes.
#
# A lineage is a timeline and the checkpoints it descends from. Its outboxes are delivered oldest first, so for each
# sink the delivered checkpoints are a prefix of the lineage, and the newest delivery record lists, cumulatively, all
# that the lineage has sent. A genesis, or the closing of a promote, hands over the offsets that other timelines sent
# (ADR 0022).
LAST = 2**63
"""An offset above every other one."""
Sent = Mapping[str, OffsetCoverage]
"""Per sink whose rows leave the warehouse, the source offsets whose rows were sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """The outbox rows of one checkpoint for one sink.

    Attributes:
        checkpoint: the checkpoint.
        uid: the operator that emitted them.
        table: the sink's outbox as of the checkpoint.
        records: number of records that its operator emitted, including rows that are not due.
        passed_over: source offsets whose rows are not sent: other timelines sent them, or a promote withheld them.
        redriven_elsewhere: redriven records whose rows are not sent, for the same reasons.
        sent: what the lineage has sent once these rows are sent; see `DeliveryRecord.sent`.
        timeline: the live timeline for which the rows are due; see `loop.is_live`.
        is_gone: whether retention released the rows before a timeline began at a later checkpoint.
    """

    checkpoint: Checkpoint
    uid: str
    table: SinkTable
    records: int
    passed_over: OffsetCoverage = field(default_factory=OffsetCoverage)
    redriven_elsewhere: OffsetCoverage = field(default_factory=OffsetCoverage)
    sent: OffsetCoverage = field(default_factory=OffsetCoverage)
    timeline: str = ""
    is_gone: bool = False

    @property
    def is_due(self) -> Callable[[Mapping[str, object]], bool]:
        """The condition that a row is due to be sent."""
        records = EmittedRecords.of(self.checkpoint.plan, self.uid)
        return replace(records, had=self.redriven_elsewhere).lacks(self.passed_over)


@dataclass(frozen=True, slots=True)
class SentRecords:
    """Finds the sent offsets of one pipeline's lineages; reads only."""

    timelines: Timelines

    def of(self, timeline: str) -> dict[str, OffsetCoverage]:
        """The offsets that each Kafka sink of a timeline that is or was live has sent, up to the closing if any."""
        return merge_sent(self._own(timeline), self.handed_over(timeline))

    def handed_over(self, timeline: str) -> dict[str, OffsetCoverage]:
        """Offsets sent before a restore or a promote made a timeline live; empty if neither did.

        The replaced timeline is checked again: a delivery may have ended since the handover was written.
        """
        genesis = self.timelines.entry(timeline, 1)
        if not isinstance(genesis, Genesis):
            return {}
        found = dict(genesis.sent)
        if genesis.keeps_sinks:
            own = self._own(genesis.closes)
            found = merge_sent(found, {n: renamed_windows(covered, genesis.renamed) for n, covered in own.items()})
        for closing in self._promotes():
            if closing.successor == timeline:
                legacy = {n: OffsetCoverage.below(ends, genesis.topic_ids) for n, ends in closing.sent.items()}
                later = {} if legacy else self._own(closing.timeline)
                found = merge_sent(merge_sent(found, later), merge_sent(legacy, closing.delivered))
        return found

    def list_undelivered(
        self, entry: Checkpoint | Genesis, line: Iterable[Checkpoint], sent: Callable[[], Sent]
    ) -> list[Undelivered]:
        """Lists the undelivered checkpoints of a lineage, oldest first.

        Args:
            entry: the last entry of the lineage.
            line: its checkpoints, newest first; read only as far back as something waits.
            sent: returns what its sinks have sent already, see `of`; called only if something waits.
        """
        tables = leaving_tables(Parent.of(Head(timeline="", sequence=1, entry=entry)))
        waiting = {
            name: after for name, (after, through) in _rows(tables).items() if self._record(name, through) is None
        }
        found: list[Undelivered] = []
        for checkpoint in line if waiting else ():
            for uid, table in checkpoint.plan.sinks.items():
                if table.is_transactional or table.name not in waiting:
                    continue
                output = checkpoint.outputs.get(uid)
                if output is None or not output.emitted or not table.keeps_rows:
                    continue
                if self._record(table.name, checkpoint.id) is not None:
                    del waiting[table.name]
                else:
                    after = checkpoint.sinks[uid]
                    found.append(Undelivered(checkpoint=checkpoint, uid=uid, table=after, records=output.emitted))
            waiting = {name: after for name, after in waiting.items() if checkpoint.id > after}
            if not waiting:
                break
        return list(self._due(found[::-1], sent())) if found else []

    def _due(self, found: Iterable[Undelivered], sent: Sent) -> Iterator[Undelivered]:
        promotes, so_far = self._promotes(), dict(sent)
        for each in found:
            name, plan = each.table.name, each.checkpoint.plan
            before, withheld = so_far.get(name, OffsetCoverage()), self._withheld(promotes, name, each.checkpoint)
            after = before | (emitted_by(plan, each.uid, each.checkpoint.sealed.facts.clocks) - withheld)
            is_gone = read_release(self.timelines.objects, plan.name) is not None
            if not is_gone:
                so_far[name] = after
            over = before | withheld
            again = redriven_before(self.timelines, over, name) if plan.redrives else OffsetCoverage()
            yield replace(each, passed_over=over, redriven_elsewhere=again, sent=after, is_gone=is_gone)

    def _withheld(self, promotes: Iterable[Closing], name: str, checkpoint: Checkpoint) -> OffsetCoverage:
        """Offsets of a checkpoint that promotes withheld. They withhold those of forks, not of the closed timeline."""
        found = OffsetCoverage()
        for closing in promotes:
            withheld = _withheld(closing, name, checkpoint)
            if not withheld.is_empty and self._is_beside(closing, checkpoint):
                found |= withheld
        return found

    def _is_beside(self, closing: Closing, checkpoint: Checkpoint) -> bool:
        holds = self.timelines.holds
        return holds(closing.successor, checkpoint) and not holds(closing.timeline, checkpoint)

    def _own(self, timeline: str) -> dict[str, OffsetCoverage]:
        """Nearly everything that the timeline has sent, by its tables and its newest delivery; see `handed_over`."""
        head = self._open_head(timeline)
        if head.entry is None:
            return {}
        parent, found = Parent.of(head), dict[str, OffsetCoverage]()
        for table in leaving_tables(parent):
            found = merge_sent(found, {table.name: table.coverage(parent.topic_ids)})
        for name, (after, through) in _rows(leaving_tables(parent)).items():
            record, checkpoint = self._newest(name, after, through)
            if record is not None and checkpoint is not None:
                found[name] |= record.sent if record.sent is not None else _all_below(checkpoint)
        return found

    def _newest(self, name: str, after: int, through: int) -> tuple[DeliveryRecord | None, Checkpoint | None]:
        """The newest delivery of a sink on the lineage that ends with checkpoint `through`."""
        newest = self.timelines.find(through)
        for checkpoint in () if newest is None else self.timelines.ancestry(newest):
            if checkpoint.id <= after:
                break
            if any(t.name == name and not t.is_transactional for t in checkpoint.plan.sinks.values()):
                record = self._record(name, checkpoint.id)
                if record is not None:
                    return record, checkpoint
        return None, None

    def _record(self, name: str, checkpoint: int) -> DeliveryRecord | None:
        return self.timelines.objects.read(DeliveryRecord, delivery_key(name, checkpoint))

    def _open_head(self, timeline: str) -> Head:
        head = self.timelines.head(timeline)
        if not isinstance(head.entry, Closing):
            return head
        return replace(head, sequence=head.sequence - 1, entry=self.timelines.entry_at(timeline, head.sequence - 1))

    def _promotes(self) -> list[Closing]:
        return [c for c in self.timelines.closings() if c.why == "promote"]


def merge_sent(one: Sent, other: Sent) -> dict[str, OffsetCoverage]:
    """The union of both, sink by sink."""
    nothing = OffsetCoverage()
    return {name: one.get(name, nothing) | other.get(name, nothing) for name in {*one, *other}}


def gone_back(sent: Sent, genesis: Genesis, topic_ids: Mapping[str, str]) -> dict[str, OffsetCoverage]:
    """The offsets that count as sent when a timeline's sinks go back: all except those that it reads again.

    Windows and timers that are not past at the checkpoint close and fire again.

    Args:
        sent: the offsets sent so far.
        genesis: the genesis of the timeline.
        topic_ids: Kafka's current topic ids; offsets of any other id are never read again.
    """
    after = {
        tp: genesis.ranges.ends.get(tp, 0) if genesis.topic_ids.get(topic) == number else 0
        for topic, number in topic_ids.items()
        for tp in (TopicPartition(topic, p.partition) for c in sent.values() for p in c.by_id if p.topic == number)
    }
    again = OffsetCoverage.of({tp: OffsetRange(end, LAST) for tp, end in after.items()}, topic_ids)
    due = {name: again | after_frontiers(covered, genesis.clocks) for name, covered in sent.items()}
    return {name: without_redriven(covered) - due[name] for name, covered in sent.items()}


def redriven_before(timelines: Timelines, covered: OffsetCoverage, name: str) -> OffsetCoverage:
    """Returns the redriven records whose rows the sink `name` has, by the checkpoints that it remembers."""
    found = OffsetCoverage()
    for number in redriving_checkpoints(covered):
        found |= redriven_rows(timelines.checkpoint(number), name)
    return found


def has_outbox(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint has the table of any sink to which rows are sent after checkpoints."""
    return bool(leaving_tables(Parent.of(Head(timeline="", sequence=1, entry=checkpoint))))


def leaving_tables(parent: Parent) -> list[SinkTable]:
    """The parent's sinks whose rows leave the warehouse, including those that are no longer declared."""
    return [table for table in (*parent.sinks.values(), *parent.outboxes.values()) if not table.is_transactional]


def _rows(tables: Iterable[SinkTable]) -> dict[str, tuple[int, int]]:
    """Per sink whose outbox has rows, the checkpoint ids of the rows: (after, through]."""
    found: dict[str, tuple[int, int]] = {}
    for table in tables:
        if table.handle:
            after, through = found.get(table.name, (table.handle.after, 0))
            found[table.name] = (min(after, table.handle.after), max(through, table.handle.through))
    return found


def _withheld(closing: Closing, name: str, checkpoint: Checkpoint) -> OffsetCoverage:
    legacy = OffsetCoverage.below(closing.sent.get(name, {}), checkpoint.plan.topic_ids)
    return closing.withheld.get(name, OffsetCoverage()) | legacy


def _all_below(checkpoint: Checkpoint) -> OffsetCoverage:
    """The meaning of a delivery record of 0.1: everything up to the checkpoint was sent."""
    return OffsetCoverage.below(checkpoint.plan.ranges.ends, checkpoint.plan.topic_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingSink:
    """A sink whose declaration fits its existing rows.

    Attributes:
        old: the sink as the parent left it; the declared one if it has no rows.
        declared: as the pipeline declares it.
        keep_for: how long its rows stay, by logical time; None = for ever.
    """

    old: SinkTable
    declared: SinkTable
    keep_for: timedelta | None = None


def fitting_sinks(pipeline: Pipeline, timeline: str, parent: Parent, *, is_live: bool) -> Mapping[str, FittingSink]:
    """Per uid of an operator with a sink, its table as the parent left it and as it is declared.

    A Kafka sink whose guarantee has changed keeps its outbox, because the rows that wait there must still be sent. A
    fork never sends, so its attempts write to an outbox as well; a promote can ask for these rows to be sent.

    Raises:
        IncompatibleStateError: emitted fields have changed in a way that a sink's rows do not allow.
    """
    before = {(t.is_transactional, t.name): t for t in parent.sinks.values()}
    renamed = {f.was: f.uid for f in pipeline.clocked if f.was in parent.schemas and f.uid not in parent.schemas}
    found: dict[str, FittingSink] = {}
    misfits: list[Misfit] = []
    for uid, (sink, emitted) in _with_sinks(pipeline).items():
        declared = declared_sink(pipeline.name, sink, emitted, timeline, is_live=is_live)
        old = before.get((declared.is_transactional, declared.name), declared)
        covered = (
            renamed_windows(old.coverage(parent.topic_ids), renamed) if renamed else old.coverage(parent.topic_ids)
        )
        old = replace(old if old.handle else declared, covered=covered, emitted_until={})
        misfits += sink_misfits(uid, old, declared)
        found[uid] = FittingSink(old=old, declared=declared, keep_for=sink.expires_after)
    if misfits:
        raise IncompatibleStateError(
            f"the pipeline does not fit its sinks: {'; '.join(map(str, misfits))}",
            safe="nothing was planned; every restore point is intact.",
            next="change the declaration as described for each; then run the pipeline again.",
        )
    return found


def refuse_missing_topics(fitting: Mapping[str, FittingSink], log: Log) -> None:
    """Refuses topics that do not exist, if attempts send to them: better now than at the end of an attempt.

    Raises:
        NotFoundError: a topic does not exist.
        BrokerError: Kafka did not answer.
    """
    wanted = {s.declared.topic: s.declared.name for s in fitting.values() if s.declared.is_sent}
    known = log.topic_ids(sorted(t for t in wanted if t is not None)) if wanted else {}
    missing = [f"{topic} of sink {name}" for topic, name in wanted.items() if topic not in known]
    if missing:
        raise NotFoundError(
            f"no topic {', '.join(missing)}",
            safe="nothing was planned; every restore point is intact.",
            next="create the topic, or correct it in the KafkaSink.",
        )


def timeline_sinks(
    pipeline: Pipeline, timeline: str, parent: Parent, log: Log, timelines: Timelines
) -> Mapping[str, FittingSink]:
    """Plans the sinks of a timeline's next plan.

    Raises:
        IncompatibleStateError, NotFoundError, BrokerError: see `fitting_sinks` and `refuse_missing_topics`.
    """
    if all(sink.traits.is_transactional for sink, _ in _with_sinks(pipeline).values()):
        return fitting_sinks(pipeline, timeline, parent, is_live=True)
    is_live = timeline == timelines.live()
    fitting = fitting_sinks(pipeline, timeline, parent, is_live=is_live)
    if not is_live:
        return fitting
    refuse_missing_topics(fitting, log)
    return _with_what_was_sent(fitting, timeline, parent, SentRecords(timelines))


def _with_what_was_sent(
    fitting: Mapping[str, FittingSink], timeline: str, parent: Parent, records: SentRecords
) -> Mapping[str, FittingSink]:
    """Adds to Kafka sinks the offsets sent by other timelines, or by this one before the sink was removed."""
    sent = records.handed_over(timeline)
    known = {table.name for table in parent.sinks.values() if not table.is_transactional}
    if any(not s.declared.is_transactional and s.declared.name in {*parent.outboxes} - known for s in fitting.values()):
        sent = merge_sent(sent, records.of(timeline))

    def informed(sink: FittingSink) -> FittingSink:
        if sink.declared.is_transactional:
            return sink
        covered = (sink.old.covered or OffsetCoverage()) | sent.get(sink.declared.name, OffsetCoverage())
        return replace(sink, old=replace(sink.old, covered=covered))

    return {uid: informed(sink) for uid, sink in fitting.items()}


def planned_sinks(fitting: Mapping[str, FittingSink], number: int) -> Mapping[str, SinkTable]:
    """The sinks as a checkpoint's plan stores them; a sink whose columns changed begins another table."""
    return {uid: evolved_sink(sink.old, sink.declared, number) for uid, sink in fitting.items()}


def planned_outboxes(parent: Parent, sinks: Mapping[str, SinkTable]) -> Mapping[str, SinkTable]:
    """The outboxes of sinks that are no longer declared; see `CheckpointPlan.outboxes`.

    If such a sink is declared again, its old outbox is kept until the new table has rows: the rows in the old one are
    older.
    """
    declared = {table.name: table for table in sinks.values() if not table.is_transactional}
    kept = {name: t for name, t in parent.outboxes.items() if name not in declared or not declared[name].handle}
    removed = {t.name: t for t in parent.sinks.values() if not t.is_transactional and t.name not in declared}
    return {**kept, **{name: _with_rows_of(kept.get(name), table) for name, table in removed.items()}}


def _with_rows_of(old: SinkTable | None, table: SinkTable) -> SinkTable:
    """The outbox of a sink that is removed again: the first one, if the new one has no rows yet."""
    if old is None or table.handle:
        return table
    both = (t.covered or OffsetCoverage() for t in (old, table))
    return replace(old, covered=next(both) | next(both))


def sends_otherwise(pipeline: Pipeline, plan: CheckpointPlan) -> bool:
    """Whether attempts of a plan on the live timeline do not send, although the sink is declared to send.

    The plan was made while its timeline was a fork, so they write to an outbox or nowhere.
    """
    declared = {uid: declared_sink(pipeline.name, *of, plan.slot.timeline) for uid, of in _with_sinks(pipeline).items()}
    return any(table.is_sent and uid in plan.sinks and not plan.sinks[uid].is_sent for uid, table in declared.items())


def restored_sinks(found: Genesis, live: Parent, sent: Sent, *, go_back: bool) -> Genesis:
    """The genesis of a restore, with the sinks that the timeline should have.

    By default sinks do not go back with the state. A Delta sink keeps all rows that the live timeline has written, if
    they include the rows of the checkpoint; rows that are emitted again for the same records are skipped, and are not
    sent to a topic again. Sinks that were added since the checkpoint stay as well.

    Args:
        found: the genesis, with the sinks of its checkpoint.
        live: the head of the timeline that the restore closes.
        sent: the offsets that count as sent: all of them, or, if sinks go back, only those that are not read again.
        go_back: whether sinks go back to the checkpoint, so that everything after it is emitted again.
    """
    there = {(t.is_transactional, t.name): t for t in live.sinks.values()}
    sent = {name: renamed_windows(covered, found.renamed) for name, covered in sent.items()}

    def restored(table: SinkTable) -> SinkTable:
        covered = renamed_windows(table.coverage(found.topic_ids), found.renamed)
        if not table.goes_back_on_restore:
            return replace(table, covered=sent.get(table.name, OffsetCoverage()), emitted_until={})
        held = None if go_back else there.get((True, table.name))
        had = OffsetCoverage() if held is None else renamed_windows(held.coverage(live.topic_ids), found.renamed)
        if held is not None and had.contains(covered):
            return replace(held, covered=had)
        return replace(table, covered=covered, emitted_until={})

    def added(table: SinkTable) -> SinkTable:
        """A sink that the checkpoint lacks. Its outbox keeps the rows of the closed timeline; none of them is due."""
        if table.goes_back_on_restore and not go_back:
            return table
        return restored(replace(table, handle=StateHandle(), older={}, covered=OffsetCoverage(), emitted_until={}))

    own = Parent.of(Head(timeline="", sequence=1, entry=found))
    sinks = {uid: restored(table) for uid, table in own.sinks.items()}
    outboxes = {name: restored(table) for name, table in own.outboxes.items()}
    known = {(t.is_transactional, t.name) for t in (*sinks.values(), *outboxes.values())}
    for uid, table in (*live.sinks.items(), *((t.name, t) for t in live.outboxes.values())):
        if (table.is_transactional, table.name) not in known:
            sinks[uid if uid not in sinks else f"{uid}~{table.name}"] = added(table)
    return replace(found, sinks=sinks, outboxes=outboxes, keeps_sinks=not go_back, sent=sent)


def _with_sinks(pipeline: Pipeline) -> dict[str, tuple[Sink, FieldType]]:
    """Per uid of an output with a sink: the sink, and the struct of its rows."""
    return {uid: (o.sink, o.emitted) for uid, o in pipeline.outputs.items() if o.sink is not None}


def declared_sink(
    pipeline: str, declared: Sink, emitted: FieldType, timeline: str, *, is_live: bool = True
) -> SinkTable:
    """The empty table of a sink, on a live timeline or on a fork."""
    sink = declared if is_live else declared.on_fork()
    folder = "sinks" if sink.traits.is_transactional else "outbox"
    table = SinkTable(
        name=sink.name,
        kind=sink.kind,
        path=sink_path(pipeline, folder, sink.name, timeline),
        columns=tuple((name, of.sql) for name, of in emitted.fields),
    )
    return sink.stored(table)
