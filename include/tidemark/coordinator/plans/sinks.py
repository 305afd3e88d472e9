"""The sinks of the next plan: each goes on where the parent's sink of the same name ended."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tidemark.coordinator.plans.parents import Parent
from tidemark.errors import IncompatibleStateError, NotFoundError
from tidemark.model.evolution import Misfit
from tidemark.model.offsets import OffsetRanges, TopicPartition
from tidemark.model.sink_evolution import evolved_sink, sink_misfits
from tidemark.model.sinks import SinkKind, SinkTable, sink_path
from tidemark.operators import DeltaSink, KafkaSink, Process
from tidemark.pipeline import Pipeline
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


def fitting_sinks(pipeline: Pipeline, timeline: str, parent: Parent) -> Mapping[str, FittingSink]:
    """Per uid of an operator with a sink what it was and what it is.

    A Kafka sink whose guarantee has changed goes on with the outbox it had: what waits there is still to be sent.

    Raises:
        IncompatibleStateError: emitted fields have changed in a way that the rows of a sink do not allow.
    """
    before = {(t.kind == "delta", t.name): t for t in parent.sinks.values()}
    found: dict[str, FittingSink] = {}
    misfits: list[Misfit] = []
    for operator in pipeline.operators:
        if not isinstance(operator, Process) or operator.sink is None:
            continue
        declared = declared_sink(pipeline.name, operator, timeline)
        old = before.get((declared.kind == "delta", declared.name), declared)
        if not old.handle:
            old = replace(declared, emitted_until=old.emitted_until)
        misfits += sink_misfits(operator.uid, old, declared)
        found[operator.uid] = FittingSink(old=old, declared=declared)
    if misfits:
        raise IncompatibleStateError(
            f"the pipeline does not fit its sinks: {'; '.join(map(str, misfits))}",
            safe="nothing was planned; every restore point is intact.",
            next="change the declaration as said for each; then run the pipeline again.",
        )
    return found


def sendable(fitting: Mapping[str, FittingSink], log: Log, *, is_live: bool) -> Mapping[str, FittingSink]:
    """The same, where those that attempts send to have a topic on the live timeline only: a fork never sends (J2).

    Args:
        fitting: what fits.
        log: says which topics there are; asked only where an attempt sends.
        is_live: whether the plan's timeline is the live one.

    Raises:
        NotFoundError: such a topic does not exist. Better now than at the end of an attempt.
        BrokerError: no answer.
    """
    sending = {uid: sink for uid, sink in fitting.items() if not sink.declared.keeps_rows}
    if not is_live:
        muted = {uid: replace(s, declared=replace(s.declared, topic=None)) for uid, s in sending.items()}
        return {**fitting, **muted}
    wanted = {s.declared.topic: s.declared.name for s in sending.values() if s.declared.topic is not None}
    known = log.topic_ids(sorted(wanted)) if wanted else {}
    missing = [f"{topic} of sink {name}" for topic, name in wanted.items() if topic not in known]
    if missing:
        raise NotFoundError(
            f"no topic {', '.join(missing)}",
            safe="nothing was planned; every restore point is intact.",
            next="create it, or correct the topic of the KafkaSink.",
        )
    return fitting


def timeline_sinks(
    pipeline: Pipeline, timeline: str, parent: Parent, log: Log, live: Callable[[], str]
) -> Mapping[str, FittingSink]:
    """The sinks of a plan of a timeline; `live` names the live one, and is asked only where an attempt sends.

    Raises:
        IncompatibleStateError, NotFoundError, BrokerError: see `fitting_sinks` and `sendable`.
    """
    fitting = fitting_sinks(pipeline, timeline, parent)
    if all(sink.declared.keeps_rows for sink in fitting.values()):
        return fitting
    return sendable(fitting, log, is_live=timeline == live())


def planned_sinks(fitting: Mapping[str, FittingSink], number: int, ranges: OffsetRanges) -> Mapping[str, SinkTable]:
    """The sinks as the plan of a checkpoint carries them; those with other columns begin another table."""
    found = {uid: evolved_sink(sink.old, sink.declared, number) for uid, sink in fitting.items()}
    starts = {tp: r.start for tp, r in ranges.items()}
    # What lies behind the ranges is emitted by nobody any more.
    return {
        uid: replace(t, emitted_until={tp: n for tp, n in t.emitted_until.items() if n > starts.get(tp, 0)})
        for uid, t in found.items()
    }


def appended_sinks(
    sinks: Mapping[str, SinkTable], live: Parent, sent: Mapping[str, Mapping[TopicPartition, int]]
) -> Mapping[str, SinkTable]:
    """Sinks of a restored checkpoint that do not go back with it: what they have, they have (I8).

    A Delta sink keeps all that the live timeline has put there. What is emitted again for the same records is skipped,
    and not sent again to a topic. Only for a live timeline that has read at least what the checkpoint has: what it
    lacks would be lost.

    Args:
        sinks: of the checkpoint.
        live: what the live timeline stands at.
        sent: per sink with an outbox where the offsets end whose records were sent.
    """
    there = {(t.kind == "delta", t.name): t for t in live.sinks.values()}

    def appended(table: SinkTable) -> SinkTable:
        held = there.get((table.kind == "delta", table.name))
        if held is None:
            return table
        ends = sent.get(table.name, {}) if table.kind == "kafka" else live.ends
        until = {tp: max(ends.get(tp, 0), held.emitted_until.get(tp, 0)) for tp in {*ends, *held.emitted_until}}
        return replace(held if table.kind == "delta" else table, emitted_until=until)

    return {uid: appended(table) for uid, table in sinks.items()}


def declared_sink(pipeline: str, operator: Process, timeline: str) -> SinkTable:
    """The empty table of an operator's sink."""
    sink, emitted = operator.sink, operator.emitted
    assert sink is not None and emitted is not None  # noqa: S101  (checked where the operator was declared)
    kind: SinkKind = "delta"
    if isinstance(sink, KafkaSink):
        kind = "topic" if sink.guarantee == "at_least_once" else "kafka"
    return SinkTable(
        name=sink.name,
        kind=kind,
        path=sink_path(pipeline, kind, sink.name, timeline),
        columns=tuple((name, of.sql) for name, of in emitted.fields),
        topic=None if isinstance(sink, DeltaSink) else sink.topic,
        key_by=None if isinstance(sink, DeltaSink) else sink.key_by,
    )
