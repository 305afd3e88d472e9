"""The sinks of the next plan: each goes on where the parent's sink of the same name ended."""

from collections.abc import Mapping
from dataclasses import replace

from tidemark.coordinator.parents import Parent
from tidemark.errors import IncompatibleStateError
from tidemark.model.sinks import SinkKind, SinkTable, sink_path
from tidemark.operators import DeltaSink, Process
from tidemark.pipeline import Pipeline


def planned_sinks(pipeline: Pipeline, timeline: str, parent: Parent) -> Mapping[str, SinkTable]:
    """Per uid of an operator with a sink its table, with what the parent left there.

    Raises:
        IncompatibleStateError: a sink's fields have changed; rows of both would lie in one table.
    """
    before = {(t.kind, t.name): t for t in parent.sinks.values()}
    found: dict[str, SinkTable] = {}
    for operator in pipeline.operators:
        if not isinstance(operator, Process) or operator.sink is None:
            continue
        made = declared_sink(pipeline.name, operator, timeline)
        old = before.get((made.kind, made.name))
        if old is not None and old.columns != made.columns:
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
    kind: SinkKind = "delta" if isinstance(sink, DeltaSink) else "kafka"
    return SinkTable(
        name=sink.name,
        kind=kind,
        path=sink_path(pipeline, kind, sink.name, timeline),
        columns=tuple((name, of.sql) for name, of in emitted.fields),
        topic=None if isinstance(sink, DeltaSink) else sink.topic,
        key_by=None if isinstance(sink, DeltaSink) else sink.key_by,
    )


def _words(table: SinkTable) -> str:
    return ", ".join(f"{name} {sql}" for name, sql in table.columns)
