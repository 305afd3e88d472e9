"""Previews of actions before they are confirmed: dry runs of restore, backfill, disposal and retention."""

from dataclasses import dataclass

from tidemark.context import Context
from tidemark.coordinator.records.timeline_tree import Branch, branch
from tidemark.coordinator.recovery.backfill import recorded_since
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.retention.sweep import GRACE_MS
from tidemark.errors import UsageError
from tidemark.operations import retention
from tidemark.operations import savepoints as savepoint_operations
from tidemark.operations.retention import plan_facts
from tidemark.web import history_cache
from tidemark.web.history_json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePointRequest:
    """A restore point: a checkpoint by its id, or a savepoint by its name; one of them."""

    checkpoint: int | None = None
    savepoint: str | None = None

    def refuse_unclear(self) -> None:
        """Returns where it is one.

        Raises:
            UsageError: no restore point, or two.
        """
        if (self.checkpoint is None) == (self.savepoint is None):
            raise UsageError("no restore point, or two", next="give a checkpoint or a savepoint.")


def preview_restore(context: Context, name: str, begins: RestorePointRequest) -> Json:
    """What a restore would leave and read again, by manifests alone.

    Whether the code of now fits the state, and whether Kafka still has the records, is checked by the restore
    itself before it changes anything: the declaration is not imported here.

    Returns:
        The checkpoint, the timeline that would end, names of checkpoints that stay on it, offsets `[start, end)`
        that would be read again per partition, and whether the pipeline was drained with the savepoint.

    Raises:
        NotFoundError: no such pipeline, checkpoint or savepoint, or it is disposed.
        UsageError: no restore point, or two.
    """
    begins.refuse_unclear()
    pin = (
        None
        if begins.savepoint is None
        else savepoint_operations.open_savepoints(context, history_cache.require_planned(context, name)).get(
            begins.savepoint
        )
    )
    timelines = context.coordinator(history_cache.require_planned(context, name)).timelines
    wanted = timelines.checkpoint(begins.checkpoint or (0 if pin is None else pin.checkpoint))
    live = branch(timelines, timelines.live(), timelines.live())
    kept, known = _ancestors(context, name, wanted.id), _ancestors(context, name, _last(live))
    ends = wanted.plan.ranges.ends
    now = {} if live.newest is None else live.newest.plan.ranges.ends
    return {
        "checkpoint": wanted.plan.name,
        "savepoint": begins.savepoint,
        "drained": pin is not None and pin.drained,
        "closes": live.timeline,
        "left": [f"chk-{number}" for number in known if number not in kept],
        "read_again": {str(tp): {"start": ends[tp], "end": now[tp]} for tp in ends if now.get(tp, 0) > ends[tp]},
    }


def preview_backfill(context: Context, name: str, begins: RestorePointRequest) -> Json:
    """What a backfill to the live head would repeat, by the planner of `tidemark backfill`, from manifests alone.

    As if it had not begun yet. Whether the code fits the state, and whether Kafka still has the records, is checked
    by the backfill's own plan: the declaration is not imported here.

    Returns:
        The checkpoint; names of the checkpoints that would be repeated, oldest first, and the one that it ends
        with; how many records they read, and how long they worked.

    Raises:
        NotFoundError: no such pipeline, checkpoint or savepoint, or it is disposed.
        ConflictError: the checkpoint is not on the line to the live head, or the savepoint is drained.
        UsageError: no restore point, or two.
    """
    begins.refuse_unclear()
    coordinator = context.coordinator(history_cache.require_planned(context, name))
    request = RestoreRequest(checkpoint=begins.checkpoint, savepoint=begins.savepoint)
    wanted = request.beginning(coordinator).checkpoint
    plans = recorded_since(coordinator, wanted)
    found = [entry for plan in plans if (entry := history_cache.get_entry(context, name, plan.id)) is not None]
    return {
        "checkpoint": wanted.plan.name,
        "savepoint": begins.savepoint,
        "repeats": [plan.name for plan in plans],
        "to": plans[-1].name if plans else wanted.plan.name,
        "records": sum(entry.records for entry in found),
        "work_duration": sum(entry.work_ms for entry in found),
    }


def _ancestors(context: Context, name: str, checkpoint: int | None) -> dict[int, None]:
    """Ids of a checkpoint and of those that it came from, newest first."""
    found: dict[int, None] = {}
    while checkpoint is not None and (entry := history_cache.get_entry(context, name, checkpoint)) is not None:
        found[checkpoint] = None
        checkpoint = entry.parent
    return found


def preview_disposal(context: Context, name: str, savepoint: str) -> Json:
    """What a disposal would free, and what needs the savepoint.

    Raises:
        NotFoundError: no such pipeline or savepoint, or it is disposed.
    """
    savepoints = savepoint_operations.open_savepoints(context, history_cache.require_planned(context, name))
    found = savepoints.get(savepoint)
    others = [other for other in savepoints.pins().get(found.checkpoint, ()) if other != savepoint]
    return {
        "name": savepoint,
        "checkpoint": found.checkpoint_name,
        "also_pinned_by": others,
        "needed_by": list(savepoints.needed_by(savepoint)),
    }


def preview_retention(context: Context, name: str) -> Json:
    """What retention would release and delete now, and what keeps the rest; looks at every file.

    Raises:
        NotFoundError: no such pipeline.
        StoreError, CorruptObjectError: what is needed is unknown.
    """
    return dict(
        plan_facts(retention.plan_sweep(context, history_cache.require_planned(context, name)), GRACE_MS, shown=0)
    )


def _last(live: Branch) -> int | None:
    """Id of the checkpoint that a timeline is at: its own newest, or the one that it began at."""
    if live.newest is not None:
        return live.newest.id
    return None if live.genesis is None else live.genesis.parent
