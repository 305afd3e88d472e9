"""The sinks of the next plan: each goes on where the parent's sink of the same name ended."""

from collections.abc import Mapping
from dataclasses import replace

from tidemark.coordinator.parents import Parent
from tidemark.errors import IncompatibleStateError, NotFoundError
from tidemark.model.sinks import SinkKind, SinkTable, sink_path
from tidemark.operators import DeltaSink, KafkaSink, Process
from tidemark.pipeline import Pipeline
from tidemark.ports import Log


def planned_sinks(pipeline: Pipeline, timeline: str, parent: Parent) -> Mapping[str, SinkTable]:
    """Per uid of an operator with a sink its table, with what the parent left there.

    A Kafka sink whose guarantee has changed goes on with the outbox it had: what waits there is still to be sent.

    Raises:
        IncompatibleStateError: a sink's fields have changed, and it has rows; those of both would lie in one table.
    """
    before = {(t.kind == "delta", t.name): t for t in parent.sinks.values()}
    found: dict[str, SinkTable] = {}
    for operator in pipeline.operators:
        if not isinstance(operator, Process) or operator.sink is None:
            continue
        made = declared_sink(pipeline.name, operator, timeline)
        old = before.get((made.kind == "delta", made.name))
        if old is not None and old.handle and old.columns != made.columns:
            raise IncompatibleStateError(
                f"sink {made.name}: its rows have ({_words(old)}), {operator.uid} emits ({_words(made)})",
                safe="nothing was planned; every restore point is intact.",
                next="emit the same fields as before, or give the sink another name.",
            )
        found[operator.uid] = made if old is None else replace(made, handle=old.handle)
    return found


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


def sendable(sinks: Mapping[str, SinkTable], log: Log, *, is_live: bool) -> Mapping[str, SinkTable]:
    """The sinks as a plan carries them: those that attempts send to have a topic only on the live timeline.

    Args:
        sinks: as declared.
        log: says which topics there are; asked only where an attempt sends.
        is_live: whether the plan's timeline is the live one: a fork never sends (J2).

    Raises:
        NotFoundError: such a topic does not exist. Better now than at the end of an attempt.
        BrokerError: no answer.
    """
    sending = {uid: sink for uid, sink in sinks.items() if not sink.keeps_rows}
    if not is_live:
        return {**sinks, **{uid: replace(sink, topic=None) for uid, sink in sending.items()}}
    wanted = {sink.topic: sink.name for sink in sending.values() if sink.topic is not None}
    known = log.topic_ids(sorted(wanted)) if wanted else {}
    missing = [f"{topic} of sink {name}" for topic, name in wanted.items() if topic not in known]
    if missing:
        raise NotFoundError(
            f"no topic {', '.join(missing)}",
            safe="nothing was planned; every restore point is intact.",
            next="create it, or correct the topic of the KafkaSink.",
        )
    return sinks


def _words(table: SinkTable) -> str:
    return ", ".join(f"{name} {sql}" for name, sql in table.columns)
