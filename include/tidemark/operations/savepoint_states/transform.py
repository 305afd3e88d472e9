"""Transforms a savepoint: queries over its states write the states of a fork, pinned under a new name (ADR 0076)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from tidemark.context import Context
from tidemark.coordinator.checkpoints.jobs import open_job
from tidemark.coordinator.plans.inputs import InputPlanner, Parent, PlannedInputs
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.timelines import Head
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.recovery.savepoint_transform import Transformer, Transforming, refuse_taken
from tidemark.declare.pipeline import Pipeline
from tidemark.environment import random_id
from tidemark.errors import IncompatibleStateError, StoreError, UsageError
from tidemark.model.checkpoint.manifest import Checkpoint, WrittenRun
from tidemark.model.checkpoint.plan import Slot
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.canonical import checksum
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.model.schema.operator_schema import OperatorSchema, with_state
from tidemark.model.state.evolution import (
    NOTHING_REPLACED,
    ReplacedStates,
    compare_schemas,
    evolve_schema,
    shares_tables,
    with_stored_choices,
)
from tidemark.operations import timelines
from tidemark.operations.reads import refuse_stateless
from tidemark.operations.savepoint_states.patch import accessed_ms, texts_by_uid
from tidemark.operations.savepoint_states.written_states import write_state
from tidemark.sql.initial_state import refuse_given_rows
from tidemark.sql.transform_rows import TransformedState

if TYPE_CHECKING:
    from tidemark.transfer.transform_tables import SourceState, StateQuery, TransformedRows

MOST_KEY_GROUPS = 2**15
"""As Flink's greatest maximum parallelism."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformRequest:
    """The new states, and the names of the result.

    Attributes:
        pipeline: the declaration.
        source: the checkpoint or savepoint whose states are read.
        fork: name of the fork.
        queries: per uid, the query in DuckDB's SQL that returns the new state; other states are taken over.
        key_groups: number of key groups of every state; None = as stored.
        name: name of the new savepoint; None = the name of the fork.
        at: when new and changed keys were last accessed; None = as late as the source allows.
        owner: the person responsible for the new savepoint.
        note: its purpose.
        expires_at_ms: when it expires; None = never.
    """

    pipeline: str
    source: RestoreRequest
    fork: str
    queries: Mapping[str, str]
    key_groups: int | None = None
    name: str | None = None
    at: datetime | None = None
    owner: str = ""
    note: str = ""
    expires_at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformed:
    """The result of a transform, or its preview: `checkpoint` is None if it was not executed.

    Attributes:
        source: the checkpoint whose states were read.
        savepoint: name of the new savepoint.
        timeline: name of the fork.
        states: the states that are written.
        taken_over: operators whose state is taken over, by reference.
        left_behind: operators of the source whose state is not in the result, but may have been read.
        checkpoint: the first checkpoint of the fork.
    """

    source: Checkpoint
    savepoint: str
    timeline: str
    states: Mapping[str, TransformedState]
    taken_over: tuple[str, ...]
    left_behind: tuple[str, ...]
    checkpoint: Checkpoint | None

    @property
    def refused(self) -> int:
        """The number of rows that cannot be state."""
        return sum(found.rows for state in self.states.values() for found in state.refused)


def queries_of(texts: Iterable[str]) -> dict[str, str]:
    """Parses texts `UID=SQL` to a query per uid.

    Raises:
        UsageError: a text has another form, or an operator has two queries.
    """
    return texts_by_uid(texts, ("SQL", "queries"), 'aircraft="FROM aircraft"')


def plan_transform(context: Context, request: TransformRequest) -> Transformed:
    """Returns what a transform would do: runs all queries and checks every row; writes nothing but scratch files.

    Raises:
        NotFoundError: no such pipeline, checkpoint or savepoint.
        UsageError: no such operator, its state cannot be written, or a query fails or returns other columns.
        ConflictError: the name of the savepoint or of the timeline is taken.
        DamagedError, IncompatibleStateError: the checkpoint is not whole, or does not fit the declaration.
        StateOverflowError, StoreError: as readers of state raise them.
    """
    draft = _draft(context, request)
    with _answers(context, draft) as rows:
        return draft.result(rows, None)


def transform(context: Context, request: TransformRequest) -> Transformed:
    """Makes the fork, completes the checkpoint with the new states on it, and pins that; see `Transformer.transform`.

    Raises:
        UsageError: rows cannot be state; the message names them.
        BusyError: another process works on that timeline.
        TidemarkError: as in `plan_transform`, and as the steps raise.
    """
    draft = _draft(context, request)
    coordinator = context.coordinator(request.pipeline)
    # Open before the first row is read: retention deletes no file of the source, whatever becomes of its savepoint.
    with open_job(coordinator, "query", draft.source.id), _answers(context, draft) as rows:
        found = draft.result(rows, None)
        refuse_rows(found)
        wanted = replace(draft.wanted, uids=tuple(uid for uid, made in rows.items() if not made.is_empty))

        def write(uid: str, folder: str, number: int) -> WrittenRun:
            return _write_rows(context, draft, rows[uid], uid, folder, number)

        transformer = Transformer(coordinator=coordinator, tables=context.tables, write=write)
        with context.lock(request.pipeline, wanted.timeline):
            done, _ = transformer.transform(wanted)
        return replace(found, checkpoint=done)


def _write_rows(
    context: Context, draft: "_Draft", rows: "TransformedRows", uid: str, folder: str, number: int
) -> WrittenRun:
    return write_state(context, rows, draft.inputs.schemas[uid], folder, number)


def refuse_rows(found: Transformed) -> None:
    """Refuses a transform if rows cannot be state.

    Raises:
        UsageError: some cannot; the message names them.
    """
    refused = [(uid, rows) for uid, state in found.states.items() for rows in state.refused]
    if refused:
        reasons = "; ".join(f"{uid}: {r.rows} x {r.why} ({', '.join(r.some)})" for uid, r in refused)
        raise UsageError(
            f"{found.refused} rows cannot be state: {reasons}",
            safe="nothing was written.",
            next="correct the query; a dry run shows its effect.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A transform that fits the declaration, before a row is read.

    Attributes:
        wanted: the request to the coordinator, without the operators that get rows.
        inputs: the inputs of the fork's first plan.
        sources: states by name; see `SourceFiles`.
        queries: the new states.
        dropped: operators of the source that are left out because the request allows it.
    """

    wanted: Transforming
    inputs: PlannedInputs
    sources: "Mapping[str, SourceState]"
    queries: "Sequence[StateQuery]"
    dropped: tuple[str, ...]

    @property
    def source(self) -> Checkpoint:
        """The checkpoint whose states are read."""
        return self.wanted.restore_point.checkpoint

    def result(self, rows: "Mapping[str, TransformedRows]", done: Checkpoint | None) -> Transformed:
        """The result, given the new states."""
        replaced = self.wanted.restore_point.replaced
        gone = [uid for uid in sorted(replaced.read) if uid not in self.inputs.schemas]
        return Transformed(
            source=self.source,
            savepoint=self.wanted.savepoint.name,
            timeline=self.wanted.timeline,
            states={uid: made.describe() for uid, made in rows.items()},
            taken_over=tuple(uid for uid, handle in self.inputs.handles.items() if handle),
            left_behind=(*gone, *self.dropped),
            checkpoint=done,
        )


@contextmanager
def _answers(context: Context, draft: _Draft) -> Iterator[dict[str, "TransformedRows"]]:
    """Runs the queries; their answers are in scratch files of the warehouse's disk while the block runs."""
    from tidemark.storage.parquet_folder import ParquetFolder
    from tidemark.storage.scratch import scratch_folder
    from tidemark.transfer.transform_tables import SourceFiles, transformed_rows

    here, pipeline = context.warehouse.local_folder, draft.wanted.pipeline.name
    with scratch_folder(here, pipeline, random_id) as scratch, ExitStack() as opened:
        files = SourceFiles(
            warehouse=context.warehouse.root, folder=ParquetFolder(here / scratch), states=draft.sources
        )
        rows = {}
        try:
            for query in draft.queries:
                rows[query.schema.uid] = opened.enter_context(transformed_rows(files, query))
        except OSError as error:
            raise StoreError(
                f"could not write {pipeline}'s scratch folder: {error.strerror or error}",
                safe="no checkpoint was touched.",
                next="make room on the warehouse's disk or correct the permissions, then repeat the command.",
            ) from error
        yield rows


def _draft(context: Context, request: TransformRequest) -> _Draft:
    recovery, restore_point = timelines.find_restore_point(context, request.pipeline, request.source)
    pipeline, found = context.pipeline(request.pipeline), restore_point.checkpoint
    _refuse_targets(pipeline, request)
    sources = _source_states(found)
    regrouped = _regrouped(pipeline, request, sources)
    if not request.queries and not regrouped:
        raise UsageError(
            "nothing to transform"
            if request.key_groups is None
            else f"all states have {request.key_groups} key groups",
            next='give --query UID="SELECT ...", or --key-groups with another number.',
        )
    restore_point = replace(restore_point, replaced=_replaced(request, sources, regrouped))
    genesis = recovery.genesis(restore_point)
    planner = InputPlanner(objects=recovery.coordinator.objects, files_exist=recovery.coordinator.files_exist)
    inputs = planner.plan(
        pipeline,
        Slot(timeline=request.fork, sequence=2),
        Parent.of(Head(timeline="", sequence=1, entry=genesis)),
        allow_removed=False,
        replaced=restore_point.replaced,
    )
    wanted = _wanted(request, restore_point, pipeline, inputs)
    refuse_taken(recovery.coordinator, wanted)
    states, queries = dict(sources), []
    for uid in (*request.queries, *regrouped):
        query, before = _state_query(request, pipeline, found, inputs.schemas[uid], sources)
        states |= before
        queries.append(query)
    return _Draft(
        wanted=wanted, inputs=inputs, sources=states, queries=queries, dropped=tuple(sorted(genesis.left_behind))
    )


def _source_states(found: Checkpoint) -> "dict[str, SourceState]":
    from tidemark.transfer.transform_tables import SourceState

    return {
        uid: SourceState(schema=schema, handle=found.handles.get(uid, StateHandle()), now=found.now)
        for uid, schema in with_state(found.plan.schemas).items()
    }


def _refuse_targets(pipeline: Pipeline, request: TransformRequest) -> None:
    operators, schemas = [operator.uid for operator in pipeline.operators], pipeline.schemas()
    if request.key_groups is not None and not 1 <= request.key_groups <= MOST_KEY_GROUPS:
        raise UsageError(
            f"{request.key_groups} key groups", next=f"give a number from 1 to {MOST_KEY_GROUPS}, as 128 or 1024."
        )
    for uid in request.queries:
        if uid in operators:
            refuse_stateless(schemas[uid], schemas)
            refuse_given_rows(schemas[uid], "a query for it", "leave it out: its state is taken over as it is.")
        elif uid in schemas:
            raise UsageError(
                f"{uid} is broadcast state, a copy of its source: a query would be lost with the next copy",
                next="correct the source; a query of another operator may read it.",
            )
        else:
            raise UsageError(f"{pipeline.name} has no operator {uid!r}", next=f"name one of: {', '.join(operators)}.")


def _regrouped(pipeline: Pipeline, request: TransformRequest, sources: "Mapping[str, SourceState]") -> tuple[str, ...]:
    """The operators whose state is only written in other key groups."""
    if request.key_groups is None:
        return ()
    schemas = pipeline.schemas()
    others = [o.uid for o in pipeline.operators if o.uid not in request.queries and schemas[o.uid].keeps_state]
    found = {uid: sources.get(_origin(schemas[uid], sources)) for uid in others}
    return tuple(
        uid for uid, state in found.items() if state is not None and state.schema.key_groups != request.key_groups
    )


def _origin(declared: OperatorSchema, sources: "Mapping[str, SourceState]") -> str:
    """The uid of an operator's state at the source; empty if it has none there."""
    return declared.uid if declared.uid in sources else declared.was if declared.was in sources else ""


def _replaced(
    request: TransformRequest, sources: "Mapping[str, SourceState]", regrouped: Sequence[str]
) -> ReplacedStates:
    from tidemark.transfer.transform_tables import read_by

    read = frozenset(uid for statement in request.queries.values() for uid in read_by(statement, sources))
    return ReplacedStates(frozenset((*request.queries, *regrouped)), read, request.key_groups or 0)


def _state_query(
    request: TransformRequest,
    pipeline: Pipeline,
    found: Checkpoint,
    schema: OperatorSchema,
    sources: "Mapping[str, SourceState]",
) -> "tuple[StateQuery, dict[str, SourceState]]":
    """The query of an operator, and the state that it replaces, if no query can read it in these columns."""
    from tidemark.transfer.transform_tables import StateQuery

    declared, more = pipeline.schemas()[schema.uid], {}
    origin = _origin(declared, sources)
    if origin:
        old = sources[origin]
        _refuse_other_keys(old.schema, schema)
        same = with_stored_choices(old.schema, declared, NOTHING_REPLACED)
        misfits = compare_schemas(old.schema, same).misfits
        if misfits and schema.uid not in request.queries:
            raise IncompatibleStateError(
                f"the pipeline does not fit its state: {'; '.join(map(str, misfits))}",
                safe="nothing was planned; every restore point is intact.",
                next=f"change the declaration, or give a query for {schema.uid}.",
            )
        if not misfits and not shares_tables(old.schema, same):
            origin = f"{schema.uid}@new"  # no uid has such a name
            more = {origin: replace(old, schema=evolve_schema(old.schema, same, old.handle.folders))}
    statement = request.queries.get(schema.uid)
    query = StateQuery(
        schema=schema,
        statement=statement,
        origin=origin,
        at_ms=0 if statement is None else accessed_ms(schema, found, request.at),
        frontier=found.now.frontiers.get(schema.uid),
    )
    return query, more


def _refuse_other_keys(old: OperatorSchema, new: OperatorSchema) -> None:
    """Refuses other key columns under the same uid: an erasure could not name a key in both states."""
    before, after = ([(k.name, k.type.sql) for k in schema.keys] for schema in (old, new))
    if before != after:
        was, now = (", ".join(f"{name} {sql}" for name, sql in keys) for keys in (before, after))
        raise IncompatibleStateError(
            f"the key columns of {new.uid} changed from ({was}) to ({now})",
            safe="nothing was written.",
            next=f"declare it under a new uid, without was=, and give that a query over {old.uid}.",
        )


def _wanted(
    request: TransformRequest, restore_point: RestorePoint, pipeline: Pipeline, inputs: PlannedInputs
) -> Transforming:
    name = request.name or request.fork
    identity = {
        "of": restore_point.checkpoint.id,
        "as": name,
        "timeline": request.fork,
        "queries": dict(request.queries),
        "key_groups": request.key_groups,
        "at": None if request.at is None else request.at.isoformat(),
        "schemas": {uid: inputs.schemas[uid].fingerprint for uid in sorted(restore_point.replaced.uids)},
    }
    savepoint = SavepointRequest(
        name=name,
        owner=request.owner,
        origin=f"transform {checksum(identity)}",
        note=request.note,
        expires_at_ms=request.expires_at_ms,
    )
    return Transforming(
        restore_point=restore_point, pipeline=pipeline, timeline=request.fork, savepoint=savepoint, uids=()
    )
