"""The sinks of the next plan: each goes on where the parent's sink of the same name ended."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidemark.coordinator.plans.parents import Parent
from tidemark.coordinator.plans.sent_offsets import Sent, SentRecords, joined
from tidemark.coordinator.records.timelines import Head, Timelines
from tidemark.declare.operators import Process
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import IncompatibleStateError, NotFoundError
from tidemark.model.checkpoint.offset_coverage import OffsetCoverage
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.sinks import SinkTable, sink_path
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.state.evolution import Misfit
from tidemark.model.state.sink_evolution import evolved_sink, sink_misfits
from tidemark.ports import Log


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingSink:
    """A sink whose declaration fits the rows that it has.

    Attributes:
        old: as the parent left it; the declared one where it has no rows.
        declared: as the pipeline declares it.
    """

    old: SinkTable
    declared: SinkTable


def fitting_sinks(pipeline: Pipeline, timeline: str, parent: Parent, *, is_live: bool) -> Mapping[str, FittingSink]:
    """Per uid of an operator with a sink its table as the parent left it, and as it is declared.

    A Kafka sink whose guarantee has changed keeps the outbox it had: what waits there is still to be sent. A fork never
    sends (J2), so there attempts write to an outbox as well, which a promote can be asked to send.

    Raises:
        IncompatibleStateError: emitted fields have changed in a way that the rows of a sink do not allow.
    """
    before = {(t.is_transactional, t.name): t for t in parent.sinks.values()}
    found: dict[str, FittingSink] = {}
    misfits: list[Misfit] = []
    for operator in _with_sinks(pipeline):
        declared = declared_sink(pipeline.name, operator, timeline, is_live=is_live)
        old = before.get((declared.is_transactional, declared.name), declared)
        covered = old.coverage(parent.topic_ids)
        old = replace(old if old.handle else declared, covered=covered, emitted_until={})
        misfits += sink_misfits(operator.uid, old, declared)
        found[operator.uid] = FittingSink(old=old, declared=declared)
    if misfits:
        raise IncompatibleStateError(
            f"the pipeline does not fit its sinks: {'; '.join(map(str, misfits))}",
            safe="nothing was planned; every restore point is intact.",
            next="change the declaration as said for each; then run the pipeline again.",
        )
    return found


def refuse_missing_topics(fitting: Mapping[str, FittingSink], log: Log) -> None:
    """Returns where every topic exists that attempts send to. Better now than at the end of an attempt.

    Raises:
        NotFoundError: one does not.
        BrokerError: no answer.
    """
    wanted = {s.declared.topic: s.declared.name for s in fitting.values() if s.declared.is_sent}
    known = log.topic_ids(sorted(t for t in wanted if t is not None)) if wanted else {}
    missing = [f"{topic} of sink {name}" for topic, name in wanted.items() if topic not in known]
    if missing:
        raise NotFoundError(
            f"no topic {', '.join(missing)}",
            safe="nothing was planned; every restore point is intact.",
            next="create it, or correct the topic of the KafkaSink.",
        )


def timeline_sinks(
    pipeline: Pipeline, timeline: str, parent: Parent, log: Log, timelines: Timelines
) -> Mapping[str, FittingSink]:
    """The sinks of a plan of a timeline.

    Raises:
        IncompatibleStateError, NotFoundError, BrokerError: see `fitting_sinks` and `refuse_missing_topics`.
    """
    if all(o.sink is not None and o.sink.traits.is_transactional for o in _with_sinks(pipeline)):
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
    """Kafka sinks, with all that other timelines have sent, and this one before a sink was taken out for a while."""
    sent = records.handed_over(timeline)
    known = {table.name for table in parent.sinks.values() if not table.is_transactional}
    if any(not s.declared.is_transactional and s.declared.name in {*parent.outboxes} - known for s in fitting.values()):
        sent = joined(sent, records.of(timeline))

    def informed(sink: FittingSink) -> FittingSink:
        if sink.declared.is_transactional:
            return sink
        covered = (sink.old.covered or OffsetCoverage()) | sent.get(sink.declared.name, OffsetCoverage())
        return replace(sink, old=replace(sink.old, covered=covered))

    return {uid: informed(sink) for uid, sink in fitting.items()}


def planned_sinks(fitting: Mapping[str, FittingSink], number: int) -> Mapping[str, SinkTable]:
    """The sinks as the plan of a checkpoint carries them; those with other columns begin another table."""
    return {uid: evolved_sink(sink.old, sink.declared, number) for uid, sink in fitting.items()}


def planned_outboxes(parent: Parent, sinks: Mapping[str, SinkTable]) -> Mapping[str, SinkTable]:
    """Outboxes of sinks that are not declared: see `CheckpointPlan.outboxes`.

    That of a sink which is declared again is kept until its new table has rows: whatever waits in the old one is older.
    """
    declared = {table.name: table for table in sinks.values() if not table.is_transactional}
    kept = {name: t for name, t in parent.outboxes.items() if name not in declared or not declared[name].handle}
    removed = {t.name: t for t in parent.sinks.values() if not t.is_transactional and t.name not in declared}
    return {**kept, **{name: _with_rows_of(kept.get(name), table) for name, table in removed.items()}}


def _with_rows_of(old: SinkTable | None, table: SinkTable) -> SinkTable:
    """The outbox of a sink that is taken out again: that of the first time, where the new one has no rows yet."""
    if old is None or table.handle:
        return table
    both = (t.covered or OffsetCoverage() for t in (old, table))
    return replace(old, covered=next(both) | next(both))


def sends_otherwise(pipeline: Pipeline, plan: CheckpointPlan) -> bool:
    """Whether attempts of a plan of the live timeline write to an outbox, or nowhere, what they are declared to send.

    The plan was made while its timeline was a fork.
    """
    declared = {o.uid: declared_sink(pipeline.name, o, plan.slot.timeline) for o in _with_sinks(pipeline)}
    return any(table.is_sent and uid in plan.sinks and not plan.sinks[uid].is_sent for uid, table in declared.items())


def restored_sinks(found: Genesis, live: Parent, sent: Sent, *, go_back: bool) -> Genesis:
    """The genesis of a restore, with the sinks that it is to have.

    By default sinks do not go back with the state: what they have, they have (I8). A Delta sink keeps all that the live
    timeline has put there, if that is all the checkpoint had and more; what is emitted again for the same records is
    skipped, and not sent again to a topic. Sinks that were added since the checkpoint stay as well.

    Args:
        found: the genesis, with the sinks of its checkpoint.
        live: the head of the timeline that it closes.
        sent: what counts as sent: all that was, or, where sinks go back, what is not read again.
        go_back: whether sinks have nothing of what came after the checkpoint: all of it is emitted again.
    """
    there = {(t.is_transactional, t.name): t for t in live.sinks.values()}

    def restored(table: SinkTable) -> SinkTable:
        covered = table.coverage(found.topic_ids)
        if not table.goes_back_on_restore:
            return replace(table, covered=sent.get(table.name, OffsetCoverage()), emitted_until={})
        held = None if go_back else there.get((True, table.name))
        if held is not None and held.coverage(live.topic_ids).contains(covered):
            return held
        return replace(table, covered=covered, emitted_until={})

    def added(table: SinkTable) -> SinkTable:
        """A sink that the checkpoint did not have: an outbox holds what the closed timeline left, none of it due."""
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


def _with_sinks(pipeline: Pipeline) -> list[Process]:
    return [o for o in pipeline.operators if isinstance(o, Process) and o.sink is not None]


def declared_sink(pipeline: str, operator: Process, timeline: str, *, is_live: bool = True) -> SinkTable:
    """The empty table of an operator's sink, on a timeline that is live or a fork."""
    sink, emitted = operator.sink, operator.emitted
    assert sink is not None and emitted is not None  # noqa: S101  (checked where the operator was declared)
    sink = sink if is_live else sink.on_fork()
    folder = "sinks" if sink.traits.is_transactional else "outbox"
    table = SinkTable(
        name=sink.name,
        kind=sink.kind,
        path=sink_path(pipeline, folder, sink.name, timeline),
        columns=tuple((name, of.sql) for name, of in emitted.fields),
    )
    return sink.stored(table)
