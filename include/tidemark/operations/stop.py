"""Stops and resumes a pipeline; the command line pauses and unpauses its DAGs."""

from tidemark.answers.timeline_facts import StopFacts
from tidemark.context import Context
from tidemark.coordinator.checkpoints.job import both_listeners, ignore_step
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.recovery.stop_and_resume import STOP, Stopped, Stopping
from tidemark.errors import ConflictError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import StopRecord
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import checkpoints, timelines
from tidemark.ports import PlanRequest, StepListener


def plan_stop(context: Context, name: str, request: SavepointRequest | None = None) -> dict[str, object]:
    """Returns whether a pipeline is stopped, and what a stop would leave behind; writes nothing.

    Args:
        context: of this process.
        name: the pipeline.
        request: the savepoint that the stop would make; None = none.

    Raises:
        NotFoundError: no such pipeline.
        ConflictError: the pipeline is stopped already without this savepoint, or its name is taken.
    """
    return Stopping(context.coordinator(context.require_pipeline(name))).plan(request)


def stop(context: Context, name: str, why: str) -> Stopped:
    """Stops a pipeline at once: no further plan is made; a checkpoint in progress may end.

    Raises:
        NotFoundError: no such pipeline.
        StoreError: the stop was not recorded.
    """
    return Stopping(context.coordinator(context.require_pipeline(name))).stop(why)


def stop_with_savepoint(
    context: Context, name: str, request: SavepointRequest, why: str, listener: StepListener = ignore_step
) -> Stopped:
    """Completes a last checkpoint, pins it, then stops. A drain closes all windows and fires all timers in one more.

    Raises:
        NotFoundError: no such pipeline.
        ConflictError: the name is taken, another process works on the pipeline, or it is stopped already.
        TidemarkError: as in `checkpoints.run_once`. The pipeline continues to run, and the error says so.
    """

    def complete(*, drains: bool = False) -> Checkpoint:
        wanted = PlanRequest(origin=STOP, drains=drains)
        made = checkpoints.run_once(context, name, wanted, listener).checkpoint
        if made is None:
            raise ConflictError(f"{name}: no last checkpoint was made", next=f"tidemark run {name}")
        return made

    def close() -> Checkpoint:
        while not (made := complete(drains=True)).plan.drains:
            pass  # another process had planned a checkpoint first; now it is completed
        return made

    coordinator = context.coordinator(context.require_pipeline(name), both_listeners(listener, context.listener))
    closes = request.drained and bool(context.pipeline(name).clocked)
    return Stopping(coordinator).stop_with_savepoint(request, why, complete, close if closes else None)


def resume(context: Context, name: str, why: str, *, force: bool = False) -> StopRecord | None:
    """Allows plans to be made again; None if the pipeline was not stopped.

    Raises:
        NotFoundError: no such pipeline.
        ConflictError: the pipeline was drained, and `force` is not given.
        TidemarkError: as in `timelines.restore`, if a drain has closed windows. The pipeline stays stopped.
    """

    def go_back(wanted: RestoreRequest) -> None:
        timelines.restore(context, name, wanted)

    return Stopping(context.coordinator(context.require_pipeline(name))).resume(why, force=force, go_back=go_back)


def describe_stop(name: str, done: Stopped) -> StopFacts:
    """A stop as an answer."""
    pinned = done.savepoint
    return StopFacts(
        pipeline=name,
        stopped=done.record.stopped,
        why=done.record.why,
        savepoint=None if pinned is None else pinned.name,
        checkpoint=None if pinned is None else pinned.checkpoint_name,
        drained=done.record.drained,
        in_progress=done.in_progress,
        followed_by=done.followed_by,
        drain=done.drain,
    )
