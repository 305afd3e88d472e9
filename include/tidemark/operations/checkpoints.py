"""Makes checkpoints: all steps in one process; or plan, fold, validate and complete in one process each."""

from collections.abc import Callable
from dataclasses import dataclass

from tidemark.context import Context
from tidemark.coordinator.checkpoints.failure_policy import FailureReport, failure_of
from tidemark.coordinator.checkpoints.job import both_listeners, ignore_step
from tidemark.coordinator.checkpoints.loop import CheckpointLoop, Progress, covers
from tidemark.coordinator.checkpoints.reports import record_report
from tidemark.coordinator.records.states import (
    Aborted,
    Completed,
    Covered,
    OpenPlan,
    PlanState,
    Refused,
    SealedPlan,
    Subsumed,
)
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import (
    ConflictError,
    GateFailedError,
    NotFoundError,
    StoppedError,
    StoreError,
    TidemarkError,
    TooEarlyError,
)
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint, Verdict
from tidemark.model.checkpoint.plan import CheckpointPlan, Slot
from tidemark.model.checkpoint.store_objects import Failure
from tidemark.operations import observability, runs, sinks
from tidemark.ports import PlanRequest, StepListener
from tidemark.telemetry.lazy_logger import log

_SAFE = "every completed checkpoint is intact."


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The result of `make_checkpoints`: its newest checkpoint, or the one that already covers the interval."""

    checkpoint: Checkpoint | None
    covered_by: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The result of `plan`. `slot` and `id` are None if the checkpoint `covered_by` already covers the interval.

    `published` lists the ids that an earlier run had sealed and this call published; they are not announced yet.
    """

    slot: str | None = None
    id: int | None = None
    covered_by: int | None = None
    adopted: bool = False
    published: tuple[int, ...] = ()

    @property
    def name(self) -> str | None:
        """`chk-17`."""
        return None if self.id is None else f"chk-{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """The result of `fold`: the plan that is left sealed, and the ids that were published on the way."""

    slot: str
    id: int
    completed: tuple[int, ...] = ()


def make_loop(
    context: Context,
    pipeline: Pipeline,
    listener: StepListener | None = None,
    *,
    timeline: str | None = None,
    on_completed: Callable[[Checkpoint], None] = lambda made: None,
) -> CheckpointLoop:
    """Makes a pipeline's loop from the parts of a context. Every verb of this module drives it.

    Args:
        context: of this process.
        pipeline: the declaration.
        listener: called at every step; by default the context's own listener.
        timeline: a fork; by default the live timeline.
        on_completed: see `CheckpointLoop`.
    """
    return CheckpointLoop(
        coordinator=context.coordinator(pipeline.name, listener),
        pipeline=pipeline,
        execute=lambda owned: observability.execute_attempt(context, pipeline, owned, listener),
        on_failure=report_failure,
        on_completed=on_completed,
        timeline=timeline,
    )


def run_once(
    context: Context,
    name: str,
    request: PlanRequest,
    listener: StepListener = ignore_step,
    timeline: str | None = None,
) -> Made:
    """As `make_checkpoints`, but ends after one checkpoint: the open plan if there is one, else a new one."""
    return make_checkpoints(context, name, request, listener, timeline, is_last=lambda made: True)


def make_checkpoints(
    context: Context,
    name: str,
    request: PlanRequest,
    listener: StepListener = ignore_step,
    timeline: str | None = None,
    *,
    is_last: Callable[[Checkpoint], bool] | None = None,
) -> Made:
    """Completes checkpoints in this process until the request is satisfied: several if bounds divide what waits.

    Args:
        context: of this process.
        name: the pipeline.
        request: the request.
        listener: called at every step, for progress.
        timeline: a fork; by default the live timeline. A fork sends nothing and reports no offsets.
        is_last: called with each checkpoint once it is completed, delivered and reported; True ends the run there.

    Raises:
        NotFoundError: no such timeline.
        StoppedError: the pipeline was stopped meanwhile; the checkpoints completed so far stay.
        TidemarkError: as the steps raise; the failure is recorded, and the plan aborted if a retry cannot help.
    """
    pipeline = context.pipeline(name)
    context.warehouse.refuse_unconditional()
    context.observers.refuse_unsendable()
    loop = make_loop(context, pipeline, both_listeners(listener, context.listener), timeline=timeline)
    seen = loop.coordinator.head()
    live = seen.timeline
    is_fork = timeline not in (None, live)

    def ends_run(made: Checkpoint) -> bool:
        _announce_made(context, pipeline, made, is_fork=is_fork)
        return is_last is not None and is_last(made)

    with context.lock(name, timeline or live, pipeline.checkpoint_timeout):
        done = loop.make_checkpoints(request, ends_run, None if is_fork else seen)
    if isinstance(done.state, Completed):
        return Made(checkpoint=done.state.checkpoint)
    if not is_fork and not done.checkpoints:
        sinks.deliver(context, name)
    covered_by = covered_or_refused(name, done.ended)
    return Made(checkpoint=done.checkpoints[-1]) if done.checkpoints else Made(checkpoint=None, covered_by=covered_by)


def _announce_made(context: Context, pipeline: Pipeline, made: Checkpoint, *, is_fork: bool) -> None:
    observability.announce(context, made)
    if is_fork:
        return
    sinks.deliver(context, pipeline.name, made)
    report_left_behind(made.plan)
    report_offsets(context, pipeline, made)


def plan(context: Context, name: str, request: PlanRequest) -> Planned:
    """Freezes the next plan, or adopts the open one; a plan that was left sealed is published first.

    Raises:
        StoppedError: the pipeline is stopped.
        TooEarlyError: its minimum pause is not over.
        DataLostError, NotFoundError, BrokerError: as the planner raises; nothing was written.
    """
    pipeline = context.pipeline(name)
    loop = make_loop(context, pipeline, on_completed=lambda made: observability.announce(context, made))
    context.warehouse.refuse_unconditional()
    context.observers.refuse_unsendable()
    seen = loop.coordinator.head()
    with context.lock(name, seen.timeline, pipeline.checkpoint_timeout):
        done = loop.plan(request, seen)
    published, found = tuple(made.id for made in done.checkpoints), done.state
    if isinstance(found, OpenPlan):
        report_left_behind(found.plan)
        return Planned(slot=str(found.plan.slot), id=found.plan.id, adopted=found.adopted, published=published)
    return Planned(covered_by=covered_or_refused(name, done.ended), published=published)


def fold(context: Context, name: str, slot: str, request: PlanRequest) -> Folded:
    """Executes a plan up to its seal, and further plans until the request's interval is covered.

    All but the last are published here; the last one is left sealed for `validate` and `complete`.

    Raises:
        TidemarkError: as the steps raise; the failure is recorded, and the plan aborted if a retry cannot help.
    """
    pipeline = context.pipeline(name)

    def on_completed(made: Checkpoint) -> None:
        _announce_completed(context, pipeline, made)

    loop, given = make_loop(context, pipeline, on_completed=on_completed), get_plan(context, name, slot)
    with context.lock(name, given.slot.timeline, pipeline.checkpoint_timeout):
        done = loop.fold(given, request)
    if isinstance(done.state, Refused):
        covered_or_refused(name, done.state)  # raises: the run must not succeed without its interval
    last = _last_plan(done, given)
    if isinstance(done.state, Aborted | Subsumed) and not covers(last, request):
        completed_or_raise(name, done.state)
    completed = tuple(made.id for made in done.checkpoints if made.id != last.id)
    return Folded(slot=str(last.slot), id=last.id, completed=completed)


def validate(context: Context, name: str, slot: str) -> Verdict:
    """Returns the gate's verdict that `fold` recorded.

    Raises:
        GateFailedError: the verdict is not a pass; it is attached to the error.
        TidemarkError: the plan was aborted for another reason, or is not sealed.
    """
    state = context.coordinator(name).state(get_plan(context, name, slot))
    if isinstance(state, SealedPlan):
        return state.sealed.verdict
    return completed_or_raise(name, state).sealed.verdict


def complete(context: Context, name: str, slot: str) -> Checkpoint:
    """Publishes a sealed plan. A repeated call finds its own manifest.

    Raises:
        ConflictError: the timeline ended first, or the plan is not sealed.
    """
    pipeline, plan = context.pipeline(name), get_plan(context, name, slot)
    with context.lock(name, plan.slot.timeline):
        checkpoint = completed_or_raise(name, make_loop(context, pipeline).complete(plan))
    _announce_completed(context, pipeline, checkpoint)
    return checkpoint


def abort(context: Context, name: str, slot: str, error: BaseException) -> FailureReason | None:
    """Gives a plan up because of an error; None if it was sealed or completed first."""
    state = context.coordinator(name).abort(get_plan(context, name, slot), failure_of(error))
    return state.record.failure.reason if isinstance(state, Aborted) else None


def count_failures(context: Context, name: str, slot: str | None = None) -> int:
    """Counts failures since the newest checkpoint of the live timeline; only reasons that count are included.

    Args:
        context: of this process.
        name: the pipeline.
        slot: slot of a failed plan; the result is 0 if the plan did not fail, or its failure does not count.
    """
    coordinator = context.coordinator(context.require_pipeline(name))
    if slot is not None:
        state = coordinator.state(get_plan(context, name, slot))
        if not isinstance(state, Aborted) or not state.record.failure.reason.counts:
            return 0
    return coordinator.failures_in_a_row()


def decline(context: Context, name: str, plan: CheckpointPlan) -> FailureReason | None:
    """Gives a plan up because a person declined it; None if it was sealed or completed first."""
    failure = Failure(reason=FailureReason.DECLINED, message="declined by the operator", next=f"tidemark run {name}")
    state = context.coordinator(name).abort(plan, failure)
    return state.record.failure.reason if isinstance(state, Aborted) else None


def find_pending(context: Context, name: str) -> CheckpointPlan | None:
    """Returns the plan in progress: open, or sealed and not yet published."""
    found = context.coordinator(context.require_pipeline(name)).open_plan()
    return found.plan if isinstance(found, OpenPlan | SealedPlan) else None


def get_plan(context: Context, name: str, slot: str) -> CheckpointPlan:
    """Returns the plan of a slot, as XCom names it (`t1/3.1`).

    Raises:
        NotFoundError: there is no such plan.
    """
    found = context.coordinator(name).objects.plan(Slot.parse(slot))
    if found is None:
        raise NotFoundError(f"no plan {slot} in {name}", next=f"tidemark checkpoint list {name}")
    return found


def _announce_completed(context: Context, pipeline: Pipeline, made: Checkpoint) -> None:
    observability.announce(context, made)
    report_offsets(context, pipeline, made)
    sinks.deliver(context, pipeline.name, made)
    progress = runs.describe(context, made) if made.plan.run else None
    if progress is not None:
        log.info("run_progress", pipeline=pipeline.name, progress=str(progress))


def _last_plan(done: Progress, given: CheckpointPlan) -> CheckpointPlan:
    """The plan that a fold stopped at; if no further plan was made, that of the newest checkpoint it completed."""
    if isinstance(done.state, SealedPlan | Aborted | Subsumed):
        return done.state.plan
    if done.checkpoints:
        return done.checkpoints[-1].plan
    return done.state.checkpoint.plan if isinstance(done.state, Covered) else given


def covered_or_refused(name: str, ended: Covered | Refused | None) -> int:
    """Returns the id of the covering checkpoint.

    Raises:
        StoppedError: nothing was planned because the pipeline is stopped.
        TooEarlyError: nothing was planned because the minimum pause is not over.
    """
    if isinstance(ended, Covered):
        return ended.checkpoint.id
    if ended is None:
        raise ConflictError(f"{name}: nothing was planned", safe=_SAFE, next=f"tidemark run {name}")
    kind = StoppedError if ended.reason is FailureReason.STOPPED else TooEarlyError
    error = kind(f"{ended.reason.value}: {ended.message}", safe=_SAFE, next=ended.next)
    raise error.with_wait(ended.wait_ms or 0) if isinstance(error, TooEarlyError) else error


def completed_or_raise(name: str, state: PlanState) -> Checkpoint:
    """Returns the checkpoint of a completed plan.

    Raises:
        GateFailedError: the gate aborted the plan.
        TidemarkError: the plan was aborted for another reason.
        ConflictError: its timeline ended first, or it is not sealed.
    """
    if isinstance(state, Completed):
        return state.checkpoint
    if isinstance(state, Aborted):
        failure = state.record.failure
        gate = failure.reason in (FailureReason.EXPECTATION_FAILED, FailureReason.GATE_ERROR)
        kind = GateFailedError if gate else TidemarkError
        error = kind(f"{failure.reason.value}: {failure.message}", safe=_SAFE, next=failure.next)
        raise error.with_verdict(failure.verdict) if isinstance(error, GateFailedError) else error
    if isinstance(state, Subsumed):
        raise ConflictError(
            f"SUBSUMED: timeline {state.closing.timeline} ended before {state.plan.name} was published",
            safe=_SAFE,
            next=f"tidemark run {name}    (plans on {state.closing.successor or 'the live timeline'}).",
        )
    raise ConflictError(f"{state.plan.name} is not sealed yet", safe=_SAFE, next=f"tidemark run {name}")


def report_left_behind(plan: CheckpointPlan) -> None:
    """Logs the state that a plan leaves behind; older checkpoints still contain it."""
    for uid, handle in plan.left_behind.items():
        log.warning(
            "state_left_behind",
            pipeline=plan.pipeline,
            checkpoint=plan.name,
            uid=uid,
            tables=[f"{s.path} version {s.version}" for s in handle],
            rows=handle.rows,
        )


def report_failure(report: FailureReport) -> None:
    """Logs a recorded failure; at `error` with `exceeded=True` once the tolerable number is exceeded."""
    log.error(
        "checkpoint_failed",
        reason=report.failure.reason.value,
        message=report.failure.message.splitlines()[0],
        in_a_row=report.in_a_row,
        tolerable=report.tolerable,
        exceeded=report.exceeded,
        retry=report.retry,
    )


def report_offsets(context: Context, pipeline: Pipeline, checkpoint: Checkpoint) -> None:
    """Sets the offsets of the consumer groups that sources name. They are only for monitoring, so nothing is raised."""
    plan = checkpoint.plan
    for name, source in pipeline.inputs.items():
        if source.group is None:
            continue
        ends = {tp: end for tp, end in plan.ranges.ends.items() if tp.topic in plan.sources.get(name, ())}
        failure = None
        try:
            context.log.report_group_offsets(source.group, ends)
        except TidemarkError as error:  # no answer, a topic deleted since the read, or a wrong option
            failure = error.what
            log.warning("group_offsets_not_reported", pipeline=pipeline.name, input=name, why=failure)
        try:
            record_report(context.coordinator(pipeline.name), checkpoint, (name, source.group), failure)
        except StoreError as error:
            log.warning("report_not_kept", pipeline=pipeline.name, input=name, why=error.what)
