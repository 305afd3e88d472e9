"""The lineage of columns: as a checkpoint recorded it, or as the pipeline's file declares it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemark.answers.column_facts import (
    ColumnLineage,
    ColumnLinks,
    ColumnName,
    ColumnOrigins,
    ColumnTransformation,
    DatasetColumns,
    LinkedColumn,
)
from tidemark.context import Context
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import CorruptObjectError, NotFoundError
from tidemark.glance import glance_at
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.columns.column_graph import DIRECT, SOURCE, ColumnGraph, ColumnRef, ReachedColumn
from tidemark.model.columns.column_lineage import draw_columns
from tidemark.operations import timelines as timeline_operations
from tidemark.web import history_cache
from tidemark.web.history import CheckpointStatus
from tidemark.web.scope import EVERYTHING, LIVE, parse_scope

DECLARED = "declared"
"""The answer is about the pipeline's file, not about a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineColumns:
    """The columns of a pipeline.

    Attributes:
        pipeline: its name.
        as_of: the name of the checkpoint that recorded them, or `declared`.
        checkpoint: its id.
        fingerprint: of the code.
        graph: the columns; None if the checkpoint recorded none.
        topics: of each source.
    """

    pipeline: str
    as_of: str
    checkpoint: int | None
    fingerprint: str
    graph: ColumnGraph | None
    topics: Mapping[str, Sequence[str]]

    def answer(self, column: str | None = None) -> ColumnLineage:
        """Returns all datasets, and the lineage of a column.

        Args:
            column: the column to follow in both directions, as in `aircraft.flights`.

        Raises:
            NotFoundError: no such column.
            UsageError: several columns have the name.
        """
        graph = self.graph
        return ColumnLineage(
            pipeline=self.pipeline,
            as_of=self.as_of,
            checkpoint=self.checkpoint,
            fingerprint=self.fingerprint,
            recorded=graph is not None,
            datasets=[] if graph is None else list(_datasets(graph, self.topics)),
            column=None if graph is None or column is None else _links(graph, column),
        )

    def list_origins(self) -> list[ColumnOrigins]:
        """Returns for each column that is made the fields of records that make it, and those that decide it."""
        graph = self.graph
        if graph is None:
            return []
        names, fields = graph.names(), {d.name: d.refs for d in graph.datasets if d.kind == SOURCE}
        found = []
        for dataset in graph.datasets:
            for ref in dataset.refs if dataset.kind != SOURCE else ():
                reached = [one for one in graph.upstream(ref) if one.column.kind == SOURCE]
                makes = [one for one in reached if one.influences[0].type == DIRECT]
                decides = [one for one in reached if one not in makes]
                found.append(
                    ColumnOrigins(
                        id=names[ref],
                        kind=ref.kind,
                        made=dataset.columns[ref.name],
                        sources=list(_shortened(makes, fields)),
                        decided_by=list(_shortened(decides, fields)),
                    )
                )
        return found


def recorded_columns(context: Context, name: str, checkpoint: int | None = None) -> PipelineColumns:
    """Returns the columns that a checkpoint recorded.

    By default it is the newest completed one of the live timeline, or else of any timeline, or else the newest plan.

    Raises:
        NotFoundError: no such pipeline or checkpoint, or it has planned no checkpoint yet.
    """
    plan = _plan(glance_at(context), name, checkpoint)
    return PipelineColumns(
        pipeline=name,
        as_of=plan.name,
        checkpoint=plan.id,
        fingerprint=plan.fingerprint,
        graph=None if plan.columns is None else draw_columns(plan.schemas, plan.columns),
        topics=plan.sources,
    )


def columns_of(pipeline: Pipeline) -> PipelineColumns:
    """Returns the columns that a pipeline declares."""
    return PipelineColumns(
        pipeline=pipeline.name,
        as_of=DECLARED,
        checkpoint=None,
        fingerprint=pipeline.fingerprint,
        graph=draw_columns(pipeline.schemas(), pipeline.columns),
        topics={name: source.names for name, source in pipeline.inputs.items()},
    )


def _plan(context: Context, name: str, checkpoint: int | None) -> CheckpointPlan:
    if checkpoint is None:
        checkpoint = _newest(context, name)
    elif history_cache.get_entry(context, name, checkpoint) is None:
        raise NotFoundError(f"no checkpoint chk-{checkpoint} in {name}", next=f"tidemark checkpoint list {name}")
    timelines = context.coordinator(name).timelines
    found = timelines.find(checkpoint)
    return timelines.plan(checkpoint) if found is None else found.plan


def _newest(context: Context, name: str) -> int:
    """The newest completed checkpoint of the live timeline, or else of any; or else the newest plan."""
    entries = history_cache.list_entries(context, name)
    try:
        live = parse_scope(LIVE, timeline_operations.list_timelines(context, name))
    except CorruptObjectError:
        live = EVERYTHING
    completed = [entry for entry in entries if entry.status is CheckpointStatus.COMPLETED]
    for found in (filter(live.takes, completed), completed, entries):
        if (newest := next(iter(found), None)) is not None:
            return newest.id
    raise NotFoundError(f"{name} has no checkpoints yet", next=f"tidemark run {name}")


def _datasets(graph: ColumnGraph, topics: Mapping[str, Sequence[str]]) -> Iterator[DatasetColumns]:
    names = graph.names()
    for dataset in graph.datasets:
        columns = [ColumnName(id=names[ref], name=ref.name, made=dataset.columns[ref.name]) for ref in dataset.refs]
        yield DatasetColumns(
            kind=dataset.kind,
            name=dataset.name,
            uid=dataset.uid,
            place=dataset.place,
            topics=list(topics.get(dataset.name, ())) if dataset.kind == SOURCE else [],
            columns=columns,
        )


def _links(graph: ColumnGraph, text: str) -> ColumnLinks:
    names, chosen = graph.names(), graph.find(text)
    made = next(d.columns[chosen.name] for d in graph.datasets if (d.kind, d.name) == (chosen.kind, chosen.dataset))
    return ColumnLinks(
        id=names[chosen],
        kind=chosen.kind,
        dataset=chosen.dataset,
        name=chosen.name,
        made=made,
        upstream=[_linked(reached, names) for reached in graph.upstream(chosen)],
        downstream=[_linked(reached, names) for reached in graph.downstream(chosen)],
    )


def _linked(reached: ReachedColumn, names: Mapping[ColumnRef, str]) -> LinkedColumn:
    return LinkedColumn(
        id=names[reached.column],
        kind=reached.column.kind,
        dataset=reached.column.dataset,
        name=reached.column.name,
        distance=reached.distance,
        transformations=[
            ColumnTransformation(type=of.type, subtype=of.subtype, possible=of.is_opaque) for of in reached.influences
        ],
    )


def _shortened(reached: Iterable[ReachedColumn], fields: Mapping[str, Sequence[ColumnRef]]) -> Iterator[str]:
    """`records.distance`, or `any field of records` if a function may read them all."""
    by_source: dict[str, list[ReachedColumn]] = {}
    for one in reached:
        by_source.setdefault(one.column.dataset, []).append(one)
    for name, its in by_source.items():
        possible = [one for one in its if all(of.is_opaque for of in one.influences)]
        whole = len(its) == len(fields[name]) > 1 and bool(possible)
        yield from (one.column.short for one in its if not (whole and one in possible))
        if whole:
            yield f"any field of {name}"
