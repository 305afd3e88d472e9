"""Operators whose answer depends on when a record arrives, so that a redriven record may change it."""

from tidemark.declare.pipeline import Pipeline
from tidemark.errors import NotFoundError, UsageError
from tidemark.model.core.names import operator_of


def current_uid(pipeline: Pipeline, uid: str) -> str | None:
    """Returns the uid that an operator has now, which may have been renamed; None if it is no longer declared."""
    declared = pipeline.schemas()
    return uid if uid in declared else next((s.uid for s in declared.values() if s.was == uid), None)


def upstream_of(pipeline: Pipeline, uid: str) -> str | None:
    """Returns the output whose records an operator gets, of a join the first; None if it reads inputs only."""
    return next(iter(upstreams_of(pipeline, uid)), None)


def upstreams_of(pipeline: Pipeline, uid: str) -> list[str]:
    """Returns the outputs whose records an operator gets."""
    operator = next((o for o in pipeline.operators if o.uid == uid), None)
    names = () if operator is None else pipeline.inputs_of(operator)
    return [name for name in names if name not in pipeline.inputs]


def input_name(pipeline: Pipeline, uid: str) -> str:
    """Returns the input that an operator or a broadcast state reads from Kafka, or the operator that feeds it.

    Raises:
        NotFoundError: the pipeline declares no such operator.
        UsageError: its dead letters cannot be redriven, whatever the options.
    """
    if uid not in pipeline.uids:
        raise NotFoundError(
            f"no operator {uid!r} in pipeline {pipeline.name}", next=f"name one of: {', '.join(pipeline.uids)}."
        )
    schema = pipeline.schemas()[uid]
    if schema.several_inputs:
        what = "has several inputs" if schema.interval_join is None else "is an interval join"
        raise UsageError(
            f"{uid} {what}: a redrive of its dead letters is not supported yet",
            safe="nothing was written; the letters are kept.",
            next="repeat the checkpoints with the corrected code by a backfill.",
        )
    found = next((name for name in pipeline.inputs if uid in pipeline.readers(name)), upstream_of(pipeline, uid))
    if found is None:
        raise UsageError(f"{uid} is copied from a table and has no dead letters", next="name another operator.")
    return found


def sinks_behind(pipeline: Pipeline, uid: str) -> list[str]:
    """Returns the operators with a sink that the records of an operator reach, itself included."""
    outputs = [output for o in pipeline.operators if o.uid == uid for output in o.outputs]
    found = {output.uid for output in outputs if output.sink is not None}
    return sorted(found.union(*(sinks_behind(pipeline, reader) for reader in _readers_of(pipeline, uid))))


def _readers_of(pipeline: Pipeline, uid: str) -> list[str]:
    """Returns the operators that read what an operator emits."""
    outputs = [output.uid for o in pipeline.operators if o.uid == uid for output in o.outputs]
    return [reader for output in outputs for reader in pipeline.readers(output)]


def arrival_reasons(pipeline: Pipeline, uid: str) -> list[str]:
    """Returns what makes the answer of an operator depend on arrival; empty if nothing does.

    A `FlatMap` has no answer of its own: the operators that read it do.

    >>> from dataclasses import dataclass
    >>> from tidemark import Fold, KafkaSource, Pipeline, state
    >>> @dataclass(frozen=True)
    ... class Flight:
    ...     origin: str
    ...     tail: str
    >>> class Airport(state.Keyed):
    ...     departures: int = state.count()
    ...     tails: list[str] = state.list("tail")
    >>> pipeline = Pipeline(
    ...     name="flights",
    ...     source=KafkaSource("flights", Flight),
    ...     operators=[Fold("airports", key_by="origin", state=Airport)],
    ... )
    >>> arrival_reasons(pipeline, "airports")
    ['tails is a state.list']
    """
    schema = pipeline.schemas()[uid]
    if not schema.keeps_state:
        behind = ((reader, arrival_reasons(pipeline, reader)) for reader in _readers_of(pipeline, uid))
        return [f"{why} of {reader}, which reads it" for reader, reasons in behind for why in reasons]
    found = ["it is a Process"] if schema.kind == "process" else []
    found += ["deletes=True"] if schema.deletes else []
    found += ["its windows close"] if schema.window is not None and schema.interval_join is None else []
    found += ["it is an interval join"] if schema.interval_join is not None else []
    found += ["its timers fire"] if schema.timers is not None else []
    for field in schema.fields:
        if field.state_kind.depends_on_arrival:
            found.append(f"{field.name} is a state.{field.state_kind.shown}")
        if field.ttl is not None:
            found.append(f"{field.name} has a ttl")
    return found


def _clocked_before(pipeline: Pipeline, uid: str) -> str | None:
    """Returns the windows, the timers or the join whose rows reach an operator; None if only records of Kafka do."""
    for name in upstreams_of(pipeline, uid):
        above = operator_of(name, pipeline.schemas())
        schema = pipeline.schemas()[above]
        if schema.interval_join is not None:
            return f"the interval join {above}"
        if schema.window is not None:
            return f"the closed windows of {above}"
        if schema.timers is not None:
            return f"the timers of {above}"
        if found := _clocked_before(pipeline, above):
            return found
    return None


def refuse_late(pipeline: Pipeline, uid: str, *, out_of_order: bool) -> str:
    """Returns the input of an operator whose dead letters may be redriven.

    Raises:
        NotFoundError, UsageError: as `input_name`; or its answer depends on arrival, and the caller does
            not accept that.
    """
    name = input_name(pipeline, uid)
    if cause := _clocked_before(pipeline, uid):
        raise UsageError(
            f"{uid} gets rows of {cause}: a redrive of them is not supported yet",
            safe="nothing was written; the letters are kept.",
            next="repeat the checkpoints with the corrected code by a backfill.",
        )
    reasons = arrival_reasons(pipeline, uid)
    if reasons and not out_of_order:
        raise UsageError(
            f"{uid} depends on the order in which records arrive: {', '.join(reasons)}",
            safe="nothing was written; the letters are kept.",
            next="accept another answer than in order with --out-of-order, or repeat the checkpoints by a backfill.",
        )
    return name
