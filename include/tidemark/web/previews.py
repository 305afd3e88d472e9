"""Previews of actions before they are confirmed: dry runs of restores, disposals and so on, and input of transforms."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tidemark.answers.checkpoint_details import AbortFacts
from tidemark.answers.checkpoint_facts import iso, span_of
from tidemark.answers.dead_letter_facts import RedriveStatus
from tidemark.answers.retention_facts import ReasonKept, RetentionPreview
from tidemark.answers.timeline_facts import (
    BackfillPreview,
    DisposalPreview,
    QueryableState,
    QueryableStates,
    RestorePreview,
    SinkPreview,
    TypedColumn,
)
from tidemark.context import Context
from tidemark.coordinator.plans.ancestry import since_split
from tidemark.coordinator.plans.inputs import Parent
from tidemark.coordinator.records.objects import SlotEntry
from tidemark.coordinator.records.timelines import Head
from tidemark.coordinator.recovery.backfill import recorded_since
from tidemark.coordinator.recovery.restore_preview import find_read_again
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.retention.sweep import GRACE_MS
from tidemark.errors import ConflictError, NotFoundError, UsageError
from tidemark.glance import glance_at
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.portable_sql.dialects import DUCKDB
from tidemark.model.schema.operator_schema import OperatorSchema, with_state
from tidemark.operations import checkpoints, retention
from tidemark.operations import savepoints as savepoint_operations
from tidemark.operations.dead_letters import redriving
from tidemark.operations.retention import describe_plan
from tidemark.sql.initial_state import given_columns, refuse_given_rows
from tidemark.sql.transform_rows import source_columns
from tidemark.web import history_cache
from tidemark.web.history import CheckpointStatus, HistoryEntry


def preview_restore(context: Context, name: str, request: RestoreRequest) -> RestorePreview:
    """Previews a restore from manifests alone, with the planner of `tidemark restore`.

    The restore itself checks, before it changes anything, that the current code fits the state and that Kafka still
    has the records. A savepoint that drained the pipeline is previewed too; to restore it takes `force`.

    Args:
        context: of this process.
        name: the pipeline.
        request: a checkpoint, a savepoint, or a time.

    Raises:
        NotFoundError: no such pipeline, checkpoint or savepoint, or no checkpoint is that old.
        ReleasedError: retention has released the checkpoint.
        ConflictError: the checkpoint has drained the pipeline.
    """
    context = glance_at(context)
    wanted, is_drained = _restore_point(context, name, request)
    coordinator = context.coordinator(name)
    live = coordinator.head()
    begins = Parent.of(Head(timeline="", sequence=1, entry=wanted))
    left = list(since_split(_ancestors(context, name, _newest(live.entry)), _ancestors(context, name, wanted.id)))
    again = find_read_again(begins, Parent.of(live))
    reread = sum(offsets.span for offsets in again.values())
    return RestorePreview(
        checkpoint=wanted.plan.name,
        timeline=wanted.plan.slot.timeline,
        logical_time=iso(wanted.plan.logical_time_ms),
        savepoint=request.savepoint,
        drained=is_drained,
        closes=live.timeline,
        left=[entry.name for entry in left],
        records=sum(entry.records for entry in left),
        work_duration=sum(entry.work_ms for entry in left),
        reread=reread,
        reread_duration=_share(left, reread),
        read_again={str(tp): span_of(offsets) for tp, offsets in again.items()},
        sinks=_sinks(live.entry, wanted),
    )


def _restore_point(context: Context, name: str, request: RestoreRequest) -> tuple[Checkpoint, bool]:
    """A restore point, and whether it is a savepoint that drained the pipeline, which a preview may show."""
    coordinator = context.coordinator(history_cache.require_planned(context, name))
    found = replace(request, force=True).find_restore_point(coordinator).checkpoint
    opened = savepoint_operations.open_savepoints(context, name)
    pin = None if request.savepoint is None else opened.find(request.savepoint)
    return found, pin is not None and pin.drained


def preview_backfill(context: Context, name: str, request: RestoreRequest) -> BackfillPreview:
    """Previews a backfill to the live head from manifests alone, with the planner of `tidemark backfill`.

    The preview ignores steps that are done already. The backfill's own plan checks that the code fits the state and
    that Kafka still has the records.

    Args:
        context: of this process.
        name: the pipeline.
        request: a checkpoint, a savepoint, or a time.

    Raises:
        NotFoundError: no such pipeline, checkpoint or savepoint, or it is disposed.
        ConflictError: the checkpoint is not on the line to the live head, or the savepoint is drained.
    """
    coordinator = context.coordinator(history_cache.require_planned(context, name))
    wanted = request.find_restore_point(coordinator).checkpoint
    plans = recorded_since(coordinator, wanted)
    found = history_cache.open_history(context, name).entries_of([plan.id for plan in plans]).values()
    return BackfillPreview(
        checkpoint=wanted.plan.name,
        savepoint=request.savepoint,
        repeats=[plan.name for plan in plans],
        to=plans[-1].name if plans else wanted.plan.name,
        records=sum(entry.records for entry in found),
        work_duration=sum(entry.work_ms for entry in found),
    )


def preview_disposal(context: Context, name: str, savepoint: str) -> DisposalPreview:
    """Previews a disposal: the other savepoints of the checkpoint, and the reasons that forbid it.

    Raises:
        NotFoundError: no such pipeline or savepoint, or it is disposed.
    """
    savepoints = savepoint_operations.open_savepoints(context, history_cache.require_planned(context, name))
    found = savepoints.get(savepoint)
    others = [other for other in savepoints.pins().get(found.checkpoint, ()) if other != savepoint]
    return DisposalPreview(
        name=savepoint,
        checkpoint=found.checkpoint_name,
        also_pinned_by=others,
        needed_by=list(savepoints.needed_by(savepoint)),
    )


def abort_checkpoint(context: Context, name: str, checkpoint: int, *, execute: bool) -> AbortFacts:
    """Aborts a checkpoint in progress on any timeline, so that the next plan begins at the same offsets.

    Args:
        context: of this process.
        name: the pipeline.
        checkpoint: its id.
        execute: abort it; otherwise only look.

    Raises:
        NotFoundError: no such pipeline, or the id was never planned.
        ConflictError: the checkpoint is final already, or was sealed first.
    """
    entry = history_cache.get_entry(context, history_cache.require_planned(context, name), checkpoint)
    if entry is None:
        raise NotFoundError(f"no checkpoint chk-{checkpoint} in {name}", next=f"tidemark checkpoint list {name}")
    if entry.status is not CheckpointStatus.IN_PROGRESS:
        raise ConflictError(
            f"{entry.name} is not in progress: it is {entry.status.value.lower()}",
            safe="nothing was aborted.",
            next="load the page again.",
        )
    plan = context.coordinator(name).timelines.plan(checkpoint)
    reason = checkpoints.decline(context, name, plan) if execute else None
    if execute and reason is None:
        raise ConflictError(
            f"{entry.name} was sealed before it could be aborted, and will become a checkpoint",
            safe="nothing was aborted.",
            next="wait for the DAG run to publish it.",
        )
    return AbortFacts(
        checkpoint=entry.name,
        timeline=entry.slot.timeline,
        offsets=plan.ranges.span,
        elapsed=max(0, context.clock.now_ms() - plan.planned_at_ms),
        aborted=reason is not None,
    )


def withdraw_redrive(context: Context, name: str, number: int, owner: str, *, execute: bool) -> RedriveStatus:
    """Withdraws a request to redrive dead letters that no checkpoint has taken up yet.

    Args:
        context: of this process.
        name: the pipeline.
        number: of the request.
        owner: the person who withdraws it.
        execute: withdraw it; otherwise only look.

    Raises:
        NotFoundError: no such pipeline or request.
        ConflictError: the request does not wait for a checkpoint any more.
    """
    found = redriving.find_request(context, name, number)
    if found.state == "waiting" and execute:
        found = redriving.withdraw(context, name, number, owner)
        if found.state == "withdrawn":
            return found
    if found.state != "waiting":
        raise ConflictError(
            f"request {number} does not wait for a checkpoint: it is {found.state}",
            safe="nothing was withdrawn.",
            next="load the page again.",
        )
    return found


def preview_retention(context: Context, name: str) -> RetentionPreview:
    """Previews the next sweep; lists every file.

    Raises:
        NotFoundError: no such pipeline.
        StoreError, CorruptObjectError: some reason to keep files is unknown.
    """
    plan = retention.plan_sweep(context, history_cache.require_planned(context, name))
    facts = describe_plan(plan, GRACE_MS, shown=0)
    return RetentionPreview(
        rule=facts.rule,
        released=facts.released,
        disposed=facts.disposed,
        free_files=facts.free_files,
        free_bytes=facts.free_bytes,
        due_files=facts.due_files,
        due_bytes=facts.due_bytes,
        grace_ms=facts.grace_ms,
        kept_files=facts.kept_files,
        kept_bytes=facts.kept_bytes,
        unknown_files=facts.unknown_files,
        log_files=facts.log_files,
        log_bytes=facts.log_bytes,
        kept_by=[ReasonKept(why=k.why, files=k.files, bytes=k.bytes, alone_bytes=k.alone_bytes) for k in facts.kept_by],
        damaged=facts.damaged,
    )


def _ancestors(context: Context, name: str, checkpoint: int | None) -> Iterator[HistoryEntry]:
    """A checkpoint and its ancestors, newest first."""
    history = history_cache.open_history(context, name)
    while checkpoint is not None:
        entry = history.entry(checkpoint)
        if entry is None:
            return
        yield entry
        checkpoint = entry.parent


def _share(left: Sequence[HistoryEntry], reread: int) -> int:
    """The work of checkpoints in milliseconds, for as many of their offsets as are read again."""
    offsets = sum(span for entry in left for span in entry.spans.values())
    work = sum(entry.work_ms for entry in left)
    return round(work * min(1.0, reread / offsets)) if offsets else 0


def _newest(head: SlotEntry | None) -> int | None:
    """Id of the newest checkpoint of a timeline, or of the one that it began at."""
    if isinstance(head, Checkpoint):
        return head.id
    return head.parent if isinstance(head, Genesis) else None


def _sinks(live: SlotEntry | None, wanted: Checkpoint) -> list[SinkPreview]:
    """The sinks of the live timeline, and how many rows each has got since a checkpoint."""
    now = live.sinks if isinstance(live, Checkpoint | Genesis) else {}
    before, after = _rows(wanted.sinks.values()), _rows(now.values())
    names = {table.name: table for table in now.values()}
    return [
        SinkPreview(
            name=name,
            rows_since=max(0, after[name] - before.get(name, 0)) if name in after else None,
            goes_back=table.goes_back_on_restore,
        )
        for name, table in sorted(names.items())
    ]


def _rows(tables: Iterable[SinkTable]) -> dict[str, int]:
    """Rows per sink that keeps its rows in a table."""
    found: dict[str, int] = {}
    for table in tables:
        if table.goes_back_on_restore:
            found[table.name] = found.get(table.name, 0) + table.handle.rows
    return found


def list_queryable_states(context: Context, name: str, request: RestoreRequest) -> QueryableStates:
    """Lists the states of a restore point as a transform sees them: columns that queries read, and must return.

    It reads no rows. The declaration is that of the newest plan, because the server may not have the pipeline's code:
    the transform itself follows the code.

    Args:
        context: of this process.
        name: the pipeline.
        request: a checkpoint, a savepoint, or a time.

    Raises:
        NotFoundError: no such pipeline, checkpoint or savepoint, or no checkpoint is that old.
        ReleasedError: retention has released the checkpoint.
        ConflictError: the checkpoint has drained the pipeline.
    """
    context = glance_at(context)
    found, is_drained = _restore_point(context, name, request)
    coordinator = context.coordinator(name)
    entry = next(iter(history_cache.list_entries(context, name)), None)
    newest = found.plan if entry is None else coordinator.timelines.plan(entry.id)
    stored, declared = with_state(found.plan.schemas), with_state(newest.schemas)
    return QueryableStates(
        checkpoint=found.plan.name,
        timeline=found.plan.slot.timeline,
        logical_time=iso(found.plan.logical_time_ms),
        savepoint=request.savepoint,
        drained=is_drained,
        newest=newest.name,
        states=[_queryable(found, newest, uid) for uid in dict.fromkeys([*stored, *declared])],
    )


def _queryable(found: Checkpoint, newest: CheckpointPlan, uid: str) -> QueryableState:
    old, declared = found.plan.schemas.get(uid), newest.schemas.get(uid)
    schema = declared or found.plan.schemas[uid]
    handle = found.handles.get(uid, StateHandle())
    return QueryableState(
        uid=uid,
        kind=schema.kind,
        rows=handle.rows,
        bytes=handle.bytes,
        key_groups=(old or schema).key_groups,
        keys=[k.name for k in schema.keys],
        reads=[] if old is None else _read_columns(old),
        returns=[TypedColumn(name=column, type=DUCKDB.type(of)) for column, of in given_columns(schema)],
        is_declared=declared is not None,
        refused=_why_not_written(newest, schema),
    )


def _read_columns(schema: OperatorSchema) -> list[TypedColumn]:
    types = {name: of for f in schema.fields for name, of in f.state_kind.imported_columns(f)}
    types |= {f.name: f.type for f in schema.fields} | {k.name: k.type for k in schema.keys}
    return [
        TypedColumn(name=name, type=DUCKDB.type(types[name])) for name, _ in source_columns(schema) if name in types
    ]


def _why_not_written(newest: CheckpointPlan, schema: OperatorSchema) -> str | None:
    """Why no transform and no patch can write a state; None if they can."""
    uid = schema.uid
    if uid in newest.sources or uid in newest.broadcast_versions:
        return f"{uid} is broadcast state, a copy of its source"
    if not schema.is_portable:
        return f"{uid} has an aggregate that is declared spark_only: only Spark can merge its state"
    try:
        refuse_given_rows(schema, "writing it", "")
    except UsageError as error:
        return error.what
    return None
