"""Backfills from a savepoint, in one process for a command or step by step for the tasks of a DAG."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.answers.timeline_facts import (
    BackfillFacts,
    BackfillStep,
    FieldDifference,
    NumberDifference,
    OperatorDifference,
    SinkDifference,
)
from tidemark.context import Context
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.job import both_listeners, ignore_step
from tidemark.coordinator.records.states import Promoted, Restored, Superseded
from tidemark.coordinator.recovery.backfill import Backfill, BackfillRequest, Outlook, Pair
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.errors import ConflictError
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.schema.operator_schema import with_state
from tidemark.operations import observability, timelines, verification
from tidemark.operations.checkpoints import completed_or_raise, make_loop, report_failure, report_left_behind
from tidemark.ports import StepListener

if TYPE_CHECKING:
    from tidemark.readers.field_changes import FieldChange, StateChange
    from tidemark.readers.sink_changes import SinkChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """How a fork's newest checkpoint differs from the one it repeats, operator by operator.

    Attributes:
        pair: the two checkpoints.
        changes: the changes of every operator that both have, with the same keys.
        not_compared: uids of the other operators.
        sinks: the changes of every sink whose rows both have in a table.
    """

    pair: Pair
    changes: tuple["StateChange", ...]
    not_compared: tuple[str, ...] = ()
    sinks: tuple["SinkChange", ...] = ()


def restore_once(context: Context, name: str, request: RestoreRequest) -> Restored | None:
    """Restores at the first call of a request; None if another call did so already, whatever happened since.

    For callers that repeat a request and send it concurrently, such as the DAG runs of one Airflow backfill.

    Raises:
        TidemarkError: as in `timelines.restore`.
    """
    coordinator = context.coordinator(context.require_pipeline(name))
    were_live = {closing.successor for closing in coordinator.timelines.closings()}
    begun = [coordinator.objects.slot(timeline, 1) for timeline in were_live]
    if any(isinstance(g, Genesis) and g.request == request.request for g in begun):
        return None
    done = timelines.restore(context, name, request)[1]
    return done if done.won else None


def open_backfill(
    context: Context, name: str, request: BackfillRequest, listener: StepListener = ignore_step
) -> Backfill:
    """Opens the backfill of a request; the same request and the same code find the same backfill.

    Args:
        context: of this process.
        name: the pipeline.
        request: the request.
        listener: called at every step, for progress.

    Raises:
        NotFoundError, ConflictError: no such pipeline, savepoint or checkpoint; or the savepoint is drained.
        DamagedError: the checkpoint is not whole, and the fork was not begun yet.
    """
    context.observers.refuse_unsendable()
    coordinator = context.coordinator(context.require_pipeline(name), both_listeners(listener, context.listener))
    made = Backfill(
        coordinator=coordinator, pipeline=context.pipeline(name), request=request, on_failure=report_failure
    )
    if coordinator.objects.slot(made.fork, 1) is None:
        verification.verify_checkpoint(context, made.restore_point.checkpoint)
    return made


def repeat(context: Context, one: Backfill) -> Iterator[Checkpoint]:
    """Completes the remaining steps, one by one, in this process; see `Backfill.repeat`.

    Raises:
        BusyError: another process works on this backfill.
        TidemarkError: as in `Backfill.repeat`.
    """

    def execute(owned: OwnedAttempt) -> Sealed:
        return observability.execute_attempt(context, one.pipeline, owned, one.coordinator.listener)

    with context.lock(one.pipeline.name, one.fork):
        for made in one.repeat(execute):
            observability.announce(context, made)
            yield made


def plan_step(context: Context, one: Backfill) -> CheckpointPlan | Checkpoint | None:
    """Returns the plan of the next step, to be folded and completed by other calls; see `Backfill.trigger`."""
    with context.lock(one.pipeline.name, one.fork):
        found = one.trigger()
    if isinstance(found, CheckpointPlan):
        report_left_behind(found)
    return found


def complete_step(context: Context, name: str, plan: CheckpointPlan) -> Checkpoint:
    """Publishes a folded step. A fork reports no offsets of consumer groups and sends nothing.

    Raises:
        GateFailedError: the gate refused the step.
        TidemarkError: the step was aborted, or is not sealed.
    """
    with context.lock(name, plan.slot.timeline):
        made = completed_or_raise(name, make_loop(context, context.pipeline(name)).complete(plan))
    observability.announce(context, made)
    return made


def compare(context: Context, one: Backfill) -> Differences | None:
    """Compares the fork with the checkpoints that it repeats; None if it has repeated nothing yet.

    Raises:
        StoreError, StateOverflowError: as readers of state raise them.
    """
    from tidemark.readers.field_changes import change_of
    from tidemark.readers.state_diff import Comparison

    pair = one.pair()
    if pair is None:
        return None
    there, here = with_state(pair.recorded.plan.schemas), with_state(pair.repeated.plan.schemas)
    both = [uid for uid, schema in here.items() if uid in there and there[uid].keys == schema.keys]
    found = [
        Comparison(
            warehouse=context.warehouse.root,
            uid=uid,
            before=pair.recorded,
            after=pair.repeated,
            ancestor=pair.ancestor,
        )
        for uid in both
    ]
    others = sorted({*there, *here} - {*both})
    return Differences(
        pair=pair,
        changes=tuple(map(change_of, found)),
        not_compared=tuple(others),
        sinks=tuple(_compare_sinks(context, pair)),
    )


def _compare_sinks(context: Context, pair: Pair) -> Iterator["SinkChange"]:
    """Yields the differences in the rows that both timelines have emitted since they parted."""
    from tidemark.readers.sink_changes import compare_sinks

    for uid, (there, here) in comparable_sinks(pair).items():
        yield compare_sinks(context.warehouse.root, uid, there, here, pair.ancestor)


def comparable_sinks(pair: Pair) -> dict[str, tuple[SinkTable, SinkTable]]:
    """Returns the sinks that keep their rows on both timelines, by output.

    A fork sends nothing, so it keeps rows that attempts of the live timeline send themselves: there is nothing to
    compare them with.
    """
    there, here = pair.recorded.sinks, pair.repeated.sinks
    both = {uid: (there[uid], table) for uid, table in here.items() if uid in there}
    return {uid: tables for uid, tables in both.items() if all(table.keeps_rows for table in tables)}


def promote(context: Context, one: Backfill, catch_up: Callable[[], object] | None = None) -> Promoted:
    """Catches up with the live timeline and makes the fork live; see `Backfill.promote`.

    Args:
        context: of this process.
        one: the backfill.
        catch_up: completes the remaining steps; in this process by default.

    Raises:
        ConflictError: the fork was live, and another timeline has become live since; or it lacks sources.
        TidemarkError: as in `Backfill.promote`.
    """
    done = one.promote(catch_up or (lambda: list(repeat(context, one))))
    if isinstance(done, Superseded):
        raise ConflictError(
            f"fork {one.fork} was live already, and was closed for {done.closing.successor} since",
            safe="every checkpoint of every timeline is intact.",
            next=f"tidemark checkpoint list {one.pipeline.name}",
        )
    return done


def describe_outlook(found: Outlook) -> BackfillFacts:
    """A backfill as an answer."""
    return BackfillFacts(
        fork=found.fork,
        from_=f"chk-{found.begins}",
        to=f"chk-{found.to}",
        begun=found.exists,
        done=[describe_step(c) for c in found.done],
        left=[[plan.name for plan in step.plans] for step in found.left],
        promoted=found.promoted,
        unsent={name: [c.plan.name for c in left] for name, left in found.unsent.items()},
    )


def describe_step(made: Checkpoint) -> BackfillStep:
    """A completed step as an answer."""
    return BackfillStep(
        checkpoint=made.plan.name,
        repeats=[f"chk-{n}" for n in made.plan.replays],
        records=made.sealed.facts.records,
        dead_letters=made.sealed.dead_lettered,
    )


def describe_differences(found: Differences | None) -> list[OperatorDifference]:
    """A comparison as answers, operator by operator."""
    if found is None:
        return []
    return [
        OperatorDifference(
            uid=change.uid,
            live=found.pair.recorded.plan.name,
            fork=found.pair.repeated.plan.name,
            inserted=change.inserted,
            deleted=change.deleted,
            changed=change.changed,
            equal=change.equal,
            fields={f.name: _difference(f) for f in change.fields},
            added=list(change.added),
            removed=list(change.removed),
        )
        for change in found.changes
    ]


def describe_sinks(found: Differences | None) -> list[SinkDifference]:
    """The comparison of sinks as answers, output by output."""
    return [
        SinkDifference(
            uid=change.uid,
            sink=change.sink,
            inserted=change.inserted,
            deleted=change.deleted,
            changed=change.changed,
            equal=change.equal,
            examples=change.examples,
        )
        for change in (found.sinks if found else ())
    ]


def _difference(change: "FieldChange") -> FieldDifference:
    if change.sum is None:
        return FieldDifference(keys=change.keys)
    return NumberDifference(keys=change.keys, sum=change.sum, largest=change.largest)
