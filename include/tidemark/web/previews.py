"""Previews of actions before they are confirmed: dry runs of restore, backfill, disposal and retention."""

from tidemark.answers.checkpoint_facts import OffsetSpan
from tidemark.answers.retention_facts import ReasonKept, RetentionPreview
from tidemark.answers.timeline_facts import BackfillPreview, DisposalPreview, RestorePreview
from tidemark.context import Context
from tidemark.coordinator.records.timeline_tree import Branch, branch
from tidemark.coordinator.recovery.backfill import recorded_since
from tidemark.coordinator.recovery.restore_request import RestoreRequest, refuse_drained
from tidemark.coordinator.retention.sweep import GRACE_MS
from tidemark.operations import retention
from tidemark.operations import savepoints as savepoint_operations
from tidemark.operations.retention import describe_plan
from tidemark.web import history_cache


def preview_restore(context: Context, name: str, request: RestoreRequest) -> RestorePreview:
    """Previews a restore from manifests alone, without importing the declaration.

    The restore itself checks, before it changes anything, that the current code fits the state and that Kafka still
    has the records.

    Args:
        context: of this process.
        name: the pipeline.
        request: a checkpoint or a savepoint.

    Raises:
        NotFoundError: no such pipeline, checkpoint or savepoint, or it is disposed.
        ConflictError: the checkpoint has drained the pipeline.
    """
    opened = savepoint_operations.open_savepoints(context, history_cache.require_planned(context, name))
    pin = None if request.savepoint is None else opened.get(request.savepoint)
    timelines = opened.coordinator.timelines
    wanted = timelines.checkpoint(request.checkpoint or (0 if pin is None else pin.checkpoint))
    refuse_drained(name, wanted)
    live = branch(timelines, timelines.live(), timelines.live())
    kept, known = _ancestors(context, name, wanted.id), _ancestors(context, name, _last(live))
    starts = wanted.plan.ranges.ends
    ends = {} if live.newest is None else live.newest.plan.ranges.ends
    again = {tp: (start, ends[tp]) for tp, start in starts.items() if ends.get(tp, 0) > start}
    return RestorePreview(
        checkpoint=wanted.plan.name,
        savepoint=request.savepoint,
        drained=pin is not None and pin.drained,
        closes=live.timeline,
        left=[f"chk-{number}" for number in known if number not in kept],
        read_again={str(tp): OffsetSpan(start=start, end=end) for tp, (start, end) in again.items()},
    )


def preview_backfill(context: Context, name: str, request: RestoreRequest) -> BackfillPreview:
    """Previews a backfill to the live head from manifests alone, with the planner of `tidemark backfill`.

    The preview ignores steps that are done already. The backfill's own plan checks that the code fits the state and
    that Kafka still has the records.

    Args:
        context: of this process.
        name: the pipeline.
        request: a checkpoint or a savepoint.

    Raises:
        NotFoundError: no such pipeline, checkpoint or savepoint, or it is disposed.
        ConflictError: the checkpoint is not on the line to the live head, or the savepoint is drained.
    """
    coordinator = context.coordinator(history_cache.require_planned(context, name))
    wanted = request.find_restore_point(coordinator).checkpoint
    plans = recorded_since(coordinator, wanted)
    found = [entry for plan in plans if (entry := history_cache.get_entry(context, name, plan.id)) is not None]
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


def _ancestors(context: Context, name: str, checkpoint: int | None) -> dict[int, None]:
    """Ids of a checkpoint and of its ancestors, newest first."""
    found: dict[int, None] = {}
    while checkpoint is not None and (entry := history_cache.get_entry(context, name, checkpoint)) is not None:
        found[checkpoint] = None
        checkpoint = entry.parent
    return found


def _last(live: Branch) -> int | None:
    """Id of the newest checkpoint of a timeline, or of the one that it began at."""
    if live.newest is not None:
        return live.newest.id
    return None if live.genesis is None else live.genesis.parent
