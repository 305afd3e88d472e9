"""The lineage of columns as authors declare it: what plans record of it, and checks of `reads=`."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from tidemark.declare.co_process import CoProcess
from tidemark.declare.flat_map import FlatMap
from tidemark.declare.interval_join import IntervalJoin
from tidemark.declare.operators import Operator, Process
from tidemark.declare.outputs import normal_reads
from tidemark.declare.timer_options import TIMERS
from tidemark.errors import DeclarationError
from tidemark.model.columns.declared_columns import (
    EVERY_COLUMN,
    DeclaredColumns,
    OperatorColumns,
    OutputColumns,
    PublishedColumns,
    SourceColumns,
    leaf_paths,
)

if TYPE_CHECKING:
    from tidemark.declare.pipeline import Pipeline

ByInput = Mapping[str, tuple[str, ...]]
_TIMESTAMP = "kafka.timestamp"
"""The origin of a field with Kafka's timestamp."""


def declared_columns(pipeline: "Pipeline") -> DeclaredColumns:
    """Returns what plans record of a pipeline for the lineage of its columns.

    Raises:
        DeclarationError: `reads=` of a function names a column or a field that does not exist.
    """
    sources = {
        name: SourceColumns(fields=tuple(leaf_paths(source.schema)), event_time=_event_time(pipeline, name), table="")
        for name, source in pipeline.inputs.items()
    }
    for uid, broadcast in pipeline.tables.items():
        place = _without_user(getattr(broadcast.source, "path", ""))
        sources[uid] = SourceColumns(fields=tuple(leaf_paths(broadcast.source.schema)), event_time="", table=place)
    return DeclaredColumns(
        sources=sources,
        operators={operator.uid: _of_operator(pipeline, operator) for operator in pipeline.operators},
        publications={
            publication.name: PublishedColumns(uid=uid, kind=publication.kind, place=publication.place)
            for uid, publication in pipeline.publications
        },
    )


def _event_time(pipeline: "Pipeline", name: str) -> str:
    """Returns the field with the event time of an input; of a source without one the field with Kafka's timestamp."""
    source = pipeline.inputs[name]
    stamped = (path for path, of in source.schema.fields if of.origin == _TIMESTAMP and name in pipeline.sources)
    return source.event_time or next(stamped, "")


def _of_operator(pipeline: "Pipeline", operator: Operator) -> OperatorColumns:
    looks_up = isinstance(operator, Process) and operator.takes_broadcast
    return OperatorColumns(
        inputs=pipeline.inputs_of(operator),
        broadcasts=tuple(broadcast.uid for broadcast in pipeline.broadcast) if looks_up else (),
        keys=_keys(operator) if isinstance(operator, CoProcess) else {},
        reads=_reads(pipeline, operator),
        by_event_time=isinstance(operator, Process) and operator.order == "event_time",
        outputs={
            output.uid: OutputColumns(
                columns=tuple(name for name, _ in output.emitted.fields),
                sink="" if output.sink is None else output.sink.name,
            )
            for output in operator.outputs
        },
    )


def _keys(operator: CoProcess) -> dict[str, tuple[str, ...]]:
    return {name: (of,) if isinstance(of, str) else tuple(of) for name, of in operator.key_by.items()}


def _reads(pipeline: "Pipeline", operator: Operator) -> dict[str, ByInput]:
    """The fields that make each column, by input, as far as the author says it."""
    if isinstance(operator, IntervalJoin):
        names = {"left": operator.left, "right": operator.right}
        return {of.name: {names[of.side]: (of.path,)} for of in operator.selected}
    if not isinstance(operator, Process | FlatMap):
        return {}
    columns, found = [*_columns(operator), EVERY_COLUMN], dict[str, ByInput]()
    for column, paths in (normal_reads(operator.uid, operator.reads) or {}).items():
        if column not in columns:
            raise DeclarationError(
                f"{operator.uid}: reads={{{column!r}: ...}}: no such column",
                next=f"name one of: {', '.join(columns)}.",
            )
        by_input: dict[str, tuple[str, ...]] = {}
        for path in paths:
            name, rest = _read_field(pipeline, operator, path)
            by_input[name] = (*by_input.get(name, ()), rest)
        found[column] = by_input
    return found


def _columns(operator: Process | FlatMap) -> Iterator[str]:
    """The columns that a function makes."""
    if isinstance(operator, Process):
        yield from (d.name for d in operator.state.descriptors)
        yield from () if operator.on_timer is None else (TIMERS,)
    for output in operator.outputs:
        yield from (name for name, _ in output.emitted.fields)


def _read_field(pipeline: "Pipeline", operator: Process | FlatMap, path: str) -> tuple[str, str]:
    """Returns the input or broadcast state that a path names, and the rest of the path."""
    several = isinstance(operator, CoProcess)
    if not several:
        (name,) = pipeline.inputs_of(operator)
        if pipeline.input_record(name).at(path) is not None:
            return name, path
    broadcasts = pipeline.broadcast if isinstance(operator, Process) and operator.takes_broadcast else ()
    records = {broadcast.uid: broadcast.source.schema for broadcast in broadcasts}
    if several:
        records |= {name: pipeline.input_record(name) for name in pipeline.inputs_of(operator)}
    for name, record in records.items():
        rest = path.removeprefix(f"{name}.")
        if rest != path and record.at(rest) is not None:
            return name, rest
    owners = ", ".join(records)
    prefixed = f"{' or ' if not several else ''}<name>.<field> of {owners}" if records else ""
    raise DeclarationError(
        f"{operator.uid}: reads={path!r}: no such field",
        next=f"name {'' if several else 'a field of its records'}{prefixed}.",
    )


def _without_user(place: str) -> str:
    """Returns the place of a table without what may be a secret."""
    if "://" not in place:
        return place
    parts = urlsplit(place)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
