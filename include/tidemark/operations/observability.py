"""Measures a pipeline, checks its deadline, and announces its attempts and checkpoints as lineage.

The gauges are those of `tidemark.model.checkpoint.metrics`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from tidemark.answers.timeline_facts import DeadlineFacts
from tidemark.context import Context
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.failure_policy import classify
from tidemark.coordinator.plans.inputs import Parent
from tidemark.coordinator.plans.ranges import plan_ranges
from tidemark.coordinator.records.checkpoint_counts import count_checkpoints
from tidemark.coordinator.records.timeline_tree import Branch, branches
from tidemark.coordinator.records.timelines import Stops
from tidemark.declare.pipeline import Pipeline
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.metrics import NONE, DeadlineStatus, DueRun, Standing, gauges
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.store_objects import IdRecord
from tidemark.model.core.canonical import checksum
from tidemark.operations import compaction
from tidemark.ports import PlanRequest, SourceLog, StepListener
from tidemark.ports.observing import LineageEvent, Metrics
from tidemark.telemetry.lazy_logger import log


def measure(context: Context, name: str) -> Standing:
    """Measures a pipeline now: two listings and a few objects, whatever its history.

    Raises:
        NotFoundError: no such pipeline.
        StoreError, CorruptObjectError: the store could not be read.
    """
    coordinator = context.coordinator(context.require_pipeline(name))
    tree = branches(coordinator.timelines)
    live = next(b for b in tree if b.is_live)
    newest = _newest(coordinator, live)
    restores = [b.genesis.at_ms for b in tree if b.genesis is not None and b.genesis.why == "restore"]
    return Standing(
        pipeline=name,
        tally=count_checkpoints(coordinator.objects),
        newest=newest,
        sealed_ms=None if newest is None else sealed_ms(coordinator, newest.plan, newest.sealed),
        restored_ms=max(restores, default=None),
        failures_in_row=coordinator.failures_in_a_row(),
        layers=_deepest(context, newest),
        deadline=measure_deadline(context, name, live),
    )


def measure_deadline(context: Context, name: str, live: Branch) -> DeadlineStatus:
    """Measures a pipeline against its deadline.

    Args:
        context: of this process.
        name: the pipeline.
        live: its live timeline.
    """
    coordinator = context.coordinator(name)
    return DeadlineStatus(
        now_ms=context.clock.now_ms(),
        since_ms=_since(coordinator, live),
        deadline_ms=context.settings.deadline_ms(name),
        stopped=Stops(coordinator.objects).current() is not None,
    )


def list_gauges(context: Context, name: str) -> dict[str, Any]:
    """Every gauge of a pipeline, and two values that are no numbers: the newest checkpoint's manifest and timeline.

    Raises:
        NotFoundError: no such pipeline.
    """
    found = measure(context, name)
    newest = found.newest
    return {
        "pipeline": name,
        "lastCheckpointExternalPath": None if newest is None else keys.external_path(name, newest.plan.slot),
        **gauges(found),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The records of a pipeline's topics that no completed checkpoint has read.

    Attributes:
        position: identifies the offsets at which the next checkpoint begins; a restore changes it too.
        unread: how many offsets lie between these and the ends of the log.
        is_overdue: whether the first unread record of a partition has an older timestamp than asked for, as far as
            Kafka's index of times shows: it does not find an old timestamp behind newer ones.
        stopped: whether the pipeline is stopped. Nothing is measured then.
    """

    position: str
    unread: int
    is_overdue: bool = False
    stopped: bool = False


def measure_lag(context: Context, pipeline: Pipeline, log: SourceLog, max_age: timedelta | None = None) -> Lag:
    """Measures what the next plan would read now, as the planner computes it; reads metadata only.

    Args:
        context: of this process.
        pipeline: the declaration.
        log: Kafka; `context.log` connects at every call.
        max_age: the age of an unread record that makes the lag overdue, by its timestamp.

    Raises:
        DataLostError: a topic was deleted.
        NotFoundError, BrokerError, StoreError, CorruptObjectError: the log or the store could not be read.
    """
    coordinator = context.coordinator(pipeline.name)
    head = coordinator.head()
    parent = Parent.of(head)
    ends = {str(tp): end for tp, end in parent.ends.items()}
    position = checksum({"timeline": head.timeline, "ends": ends})[:16]
    if Stops(coordinator.objects).current() is not None:
        return Lag(position=position, unread=0, stopped=True)
    # Losses are accepted here: the next run is to start, and to report them.
    planned = plan_ranges(pipeline, PlanRequest(origin="lag", accept_loss=True), parent, log)
    unread = {tp: planned.ranges[tp] for tp in planned.read if not planned.ranges[tp].is_empty}
    is_overdue = False
    if unread and max_age is not None:
        at = log.offsets_at(dict.fromkeys(unread, context.clock.now_ms() - max_age // timedelta(milliseconds=1)))
        is_overdue = any((first := at.get(tp)) is None or first > r.start for tp, r in unread.items())
    return Lag(position=position, unread=sum(r.span for r in unread.values()), is_overdue=is_overdue)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRuns:
    """The runs by which a pipeline is measured that has no deadline of its own.

    Attributes:
        due_after: finds the first scheduled run after a time, in milliseconds since the epoch; None if there is none.
        usual_ms: the usual duration of a checkpoint.
    """

    due_after: Callable[[int], DueRun | None]
    usual_ms: int


def check_deadline(context: Context, name: str, expected: ExpectedRuns | None = None) -> DeadlineFacts:
    """Whether a pipeline is late, without any data, so that you may publish the answer.

    Args:
        context: of this process.
        name: the pipeline.
        expected: the runs of its DAG; they count if no deadline is set.

    Raises:
        NotFoundError: no such pipeline.
        StoreError, CorruptObjectError: the store could not be read.
    """
    found = measure(context, name)
    at = found.deadline
    if at.deadline_ms is None and at.since_ms is not None and expected is not None:
        at = replace(at, due=expected.due_after(at.since_ms), usual_ms=expected.usual_ms)
    return DeadlineFacts(
        pipeline=name,
        late=at.is_late,
        stopped=at.stopped,
        newest=None if found.newest is None else found.newest.plan.name,
        failures_in_row=found.failures_in_row,
        age_ms=at.age_ms,
        deadline_ms=at.deadline_ms,
        due_ms=None if at.due is None else at.due.at_ms,
        late_since_ms=at.late_since_ms,
        age=None if at.age_ms is None else _words(at.age_ms),
        deadline=None if at.deadline_ms is None else _words(at.deadline_ms),
    )


def report_metrics(context: Context, name: str, *more: Metrics) -> None:
    """Reports a pipeline's gauges to StatsD, if it is configured, and to other receivers; a failure is logged once.

    The store is read in this thread, as the run itself reads it: only sending the values may hang.

    Args:
        context: of this process.
        name: the pipeline.
        *more: further receivers.
    """
    sinks = [*context.observers.metrics, *more]
    if not sinks or context.observers.metrics_calls.given_up:
        return
    try:
        values = gauges(measure(context, name))
    except Exception as error:  # noqa: BLE001  (a defect of measuring must not fail the run)
        log.warning("metrics_not_measured", pipeline=name, why=f"{type(error).__name__}: {error}")
        return
    context.observers.metrics_calls.call(lambda: _send(sinks, name, values))


def _deepest(context: Context, newest: Checkpoint | None) -> tuple[int, int]:
    """The greatest number of live runs and the deepest level of any operator."""
    uids = () if newest is None else newest.plan.schemas
    found = [compaction.describe_layers(context, newest, uid) for uid in uids if newest is not None]
    return (
        max((layers.live_runs for layers in found if layers.live_runs is not None), default=NONE),
        max((layers.deepest_level for layers in found if layers.deepest_level is not None), default=NONE),
    )


def _send(sinks: Sequence[Metrics], name: str, values: Mapping[str, float]) -> None:
    for sink in sinks:
        sink.tell(name, values)


def sealed_ms(coordinator: CheckpointCoordinator, plan: CheckpointPlan, sealed: Sealed) -> int:
    """When a plan was sealed. Manifests of 0.1 do not say: their outcome does, or, if that is gone, their steps."""
    if sealed.sealed_at_ms:
        return sealed.sealed_at_ms
    outcome = coordinator.objects.outcome(plan.slot, sealed.attempt)
    if outcome is not None and outcome.sealed is not None:
        return outcome.at_ms
    return plan.planned_at_ms + sum(sealed.timings_ms.values())


def _words(ms: int) -> str:
    """A duration without milliseconds, as in `1 day, 2:00:00`."""
    return str(timedelta(seconds=ms // 1000))


def _newest(coordinator: CheckpointCoordinator, live: Branch) -> Checkpoint | None:
    if live.newest is not None or live.genesis is None:
        return live.newest
    return coordinator.timelines.find(live.genesis.parent)


def _since(coordinator: CheckpointCoordinator, live: Branch) -> int | None:
    if live.newest is not None:
        return sealed_ms(coordinator, live.newest.plan, live.newest.sealed)
    if live.genesis is not None:
        return live.genesis.at_ms
    listed = coordinator.objects.list("ids/")
    first = coordinator.objects.read(IdRecord, listed[0]) if listed else None
    plan = None if first is None else coordinator.objects.plan(first.slot)
    return None if plan is None else plan.planned_at_ms


# Announces attempts and checkpoints as lineage: START before the work, FAIL after an error, COMPLETE when published.
#
# A process that is killed announces no end; the attempt that takes over has a START of its own.
def execute_attempt(
    context: Context, pipeline: Pipeline, owned: OwnedAttempt, listener: StepListener | None = None
) -> Sealed:
    """As `execute`, announced.

    Raises:
        TidemarkError: as `execute`.
    """
    context.renew_lock(pipeline, owned.plan)
    if context.observers.lineage is None:
        return context.execute(pipeline, owned, listener)
    started = LineageEvent(plan=owned.plan, attempt=owned.number, at_ms=context.clock.now_ms())
    _announce(context, started)
    try:
        return context.execute(pipeline, owned, listener)
    except BaseException as error:
        # Airflow's timeouts and Ctrl-C are no Exceptions, but end an attempt all the same.
        _announce(context, replace(started, at_ms=context.clock.now_ms(), failure=classify(error)))
        raise


def announce(context: Context, found: Checkpoint) -> None:
    """Announces a completed checkpoint; a repeated call announces the same event."""
    if context.observers.lineage is not None:
        _announce(context, LineageEvent.of(found, context.clock.now_ms()))


def _announce(context: Context, event: LineageEvent) -> None:
    sink = context.observers.lineage
    if sink is not None:
        context.observers.lineage_calls.call(lambda: sink.announce(event))
