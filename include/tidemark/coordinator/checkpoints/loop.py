"""The checkpoint loop: plan, attempt, commit, and again until the request's interval is covered.

There is one loop, and every process that makes checkpoints drives it: `tidemark run` and a backfill in one process, the
tasks of a DAG in one process each, the simulation under every interleaving. `_next` is its only transition:

    nothing ──plan──▶ OpenPlan ──attempt──▶ SealedPlan ──commit──▶ Completed ──plan──▶ OpenPlan …
                         ▲                                             │
                         └──── Aborted, Void: plan again               └──▶ Covered, Refused: the end

The state is read from the store, so a process may stop at any state and another process may continue from there, given
the plan's slot. The tasks of a DAG do exactly that: `plan` stops at an open plan, `fold` at the sealed plan that covers
the interval, and `complete` commits it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.failure_policy import FailureReport
from tidemark.coordinator.plans.initial_offsets import to_ms
from tidemark.coordinator.plans.runs import id_of
from tidemark.coordinator.plans.sink_inputs import SentRecords, Undelivered
from tidemark.coordinator.records.states import (
    Aborted,
    Completed,
    Covered,
    NothingOpen,
    OpenPlan,
    PlanState,
    Refused,
    SealedPlan,
    Subsumed,
)
from tidemark.coordinator.records.timelines import Head, is_outdated
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import ConflictError, TidemarkError
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.object_keys import delivery_key
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.store_objects import Closing, DeliveryRecord, Genesis
from tidemark.ports import PlanRequest

_REFUSALS = (FailureReason.EXPECTATION_FAILED, FailureReason.GATE_ERROR, FailureReason.DECLINED)
"""Why a plan was given up for which the same run may make no other one."""

Execute = Callable[[OwnedAttempt], Sealed]
"""Executes one attempt up to its seal; `CheckpointJob.execute`, passed by the context."""

LoopState = PlanState | Covered | Refused
"""The state of the loop. The loop ends at Covered and Refused; a caller may end it earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the loop got.

    Attributes:
        state: the state at which the loop stopped.
        checkpoints: checkpoints completed on the way, oldest first; if `state` is Completed, the last one is its own.
    """

    state: LoopState
    checkpoints: tuple[Checkpoint, ...] = ()

    @property
    def ended(self) -> Covered | Refused | None:
        """Why nothing more was planned; None if the loop stopped because it reached its goal."""
        return self.state if isinstance(self.state, Covered | Refused) else None


def _ignore_failure(report: FailureReport) -> None:
    """Ignores reports of failures: the error itself is raised."""


def _ignore_checkpoint(checkpoint: Checkpoint) -> None:
    """Ignores single checkpoints: `Progress` lists them."""


@dataclass(frozen=True, kw_only=True)
class CheckpointLoop:
    """Makes the checkpoints of one pipeline.

    Attributes:
        coordinator: of the pipeline.
        pipeline: the declaration.
        execute: executes one attempt.
        on_failure: called with every failure before its error is raised, to pause and alert.
        on_completed: called with each completed checkpoint before the next one is planned. The caller handles the last
            one itself, after the loop.
        timeline: the timeline to plan on; by default the live one.

    Example:
        loop = CheckpointLoop(coordinator=coordinator, pipeline=pipeline, execute=job.execute)
        loop.run_once(PlanRequest(origin="cli")).checkpoints    # plan, attempt and commit in this process

        planned = loop.plan(request).state.plan                 # the same, in a process for each line
        sealed = loop.fold(planned, request).state.plan
        loop.complete(sealed)
    """

    coordinator: CheckpointCoordinator
    pipeline: Pipeline
    execute: Execute
    on_failure: Callable[[FailureReport], None] = _ignore_failure
    on_completed: Callable[[Checkpoint], None] = _ignore_checkpoint
    timeline: str | None = None

    def run_once(self, request: PlanRequest, seen: Head | None = None) -> Progress:
        """Completes one checkpoint: the open plan if there is one, else a new one.

        Args:
            request: the request.
            seen: the head of the timeline, if the caller has just read it; see `CheckpointCoordinator.trigger`.

        Returns:
            Progress with that checkpoint; with none, and the reason, if the interval is covered or no plan may be made.

        Raises:
            TidemarkError: planning or execution failed. If a retry cannot help, the plan was aborted; otherwise it
                stays open, and the next call takes its next attempt.
        """
        return self._drive(self._plan(request, seen), request, lambda state: isinstance(state, Completed))

    def make_checkpoints(
        self,
        request: PlanRequest,
        is_last: Callable[[Checkpoint], bool] = lambda made: False,
        seen: Head | None = None,
    ) -> Progress:
        """Completes checkpoints until the request is satisfied: one, or as many as the bounds of a checkpoint make it.

        Args:
            request: the request.
            is_last: called with each completed checkpoint before the next one is planned; True ends the run there.
            seen: as in `run_once`.

        Raises:
            TidemarkError: as in `run_once`; the checkpoints completed so far stay.
        """

        def is_done(state: LoopState) -> bool:
            if not isinstance(state, Completed):
                return False
            return is_last(state.checkpoint) or covers(state.checkpoint.plan, request)

        return self._drive(self._plan(request, seen), request, is_done)

    def plan(self, request: PlanRequest, seen: Head | None = None) -> Progress:
        """Stops at an open plan, new or adopted; a plan that was left sealed is published on the way.

        Args:
            request: the request.
            seen: as in `run_once`.

        Returns:
            OpenPlan, Covered or Refused.

        Raises:
            DataLostError, NotFoundError, BrokerError: the ranges cannot be planned; nothing was written.
            ConflictError: the declaration does not fit the state, or the named timeline was closed.
        """
        return self._drive(self._plan(request, seen), request, lambda state: isinstance(state, OpenPlan))

    def fold(self, plan: CheckpointPlan, request: PlanRequest) -> Progress:
        """Executes a plan and those after it; completes all but the sealed plan that covers the request's interval.

        Returns:
            SealedPlan, or Completed if another process published the sealed plan in the meantime. Aborted or Void if a
            plan was given up: the caller reports that, because it asked for this plan and not for another one.
            Covered or Refused if no further plan was made.

        Raises:
            ConflictError: the plan repeats recorded checkpoints and is outdated: only its backfill can plan it again.
            TidemarkError: as in `run_once`; the checkpoints completed so far stay.
        """
        begins = self._resume(plan, request)
        if isinstance(begins, Completed) and not _is_folded(begins, request):
            # A repeated task, whose earlier try got further: a refused plan is not planned again.
            begins = self._ended_by_refusal(request) or begins
        return self._drive(begins, request, lambda state: _is_folded(state, request))

    def complete(self, plan: CheckpointPlan, own: SealedPlan | None = None) -> PlanState:
        """Publishes a plan if it is sealed, and returns its state. A repeated call finds its own manifest.

        Args:
            plan: the plan.
            own: the plan as this process has just sealed it; see `CheckpointCoordinator.complete`.

        Raises:
            ConflictError, StoreError: the manifest could not be put; the failure was reported.
        """
        try:
            return self.coordinator.complete(plan, own)
        except Exception as error:
            self._report(plan, error, publishing=True)
            raise

    def _drive(self, state: LoopState, request: PlanRequest, is_reached: Callable[[LoopState], bool]) -> Progress:
        made: list[Checkpoint] = []
        while True:
            if isinstance(state, Completed):
                made.append(state.checkpoint)
            if isinstance(state, Covered | Refused) or is_reached(state):
                return Progress(state=state, checkpoints=tuple(made))
            if isinstance(state, Completed):
                self.on_completed(state.checkpoint)
            state = self._next(state, request)

    def _next(self, state: PlanState, request: PlanRequest) -> LoopState:
        if isinstance(state, OpenPlan):
            return self._attempt(state)
        if isinstance(state, SealedPlan):
            return self.complete(state.plan, state)
        # Completed; or aborted by another process, or void because the timeline ended: plan at the current head.
        return self._plan(replace(request, continues=isinstance(state, Completed)))

    def _plan(self, request: PlanRequest, seen: Head | None = None) -> LoopState:
        return self.coordinator.trigger(self.pipeline, request, self.timeline, seen)

    def _attempt(self, found: OpenPlan) -> PlanState:
        plan = found.plan
        owned = self.coordinator.begin(plan, self.pipeline.checkpoint_timeout, is_first=found.attempt == 0)
        if not isinstance(owned, OwnedAttempt):
            return owned
        try:
            sealed = self.execute(owned)
        except Exception as error:
            self._report(plan, error, publishing=False)
            raise
        return SealedPlan(plan=plan, sealed=sealed, before=owned.before)

    def _resume(self, plan: CheckpointPlan, request: PlanRequest) -> LoopState:
        """Returns the state of a plan that another process made, or of the plan that replaces an outdated one.

        In the meantime other code may have been deployed, a key erased, or the timeline ended.
        """
        state = self.coordinator.state(plan)
        if not self._is_replaced(state):
            return state
        if plan.replays and not self._repeats_cuts(plan):
            raise ConflictError(
                f"{plan.name} is outdated: it was planned by other code, a key was erased, or its timeline has ended",
                safe="every completed checkpoint is intact.",
                next=f"tidemark timeline list {self.pipeline.name}; then repeat the backfill.",
            )
        found = self._plan(request)
        return self.coordinator.state(plan) if isinstance(found, Refused) else found

    def _repeats_cuts(self, plan: CheckpointPlan) -> bool:
        """Whether a plan continues what a restore has to repeat (adr/0057), which every run plans again."""
        before = self.coordinator.timelines.entry_at(plan.slot.timeline, plan.slot.sequence - 1)
        if isinstance(before, Checkpoint):
            return bool(before.plan.repeats_to)
        return isinstance(before, Genesis) and bool(before.repeats_to)

    def _ended_by_refusal(self, request: PlanRequest) -> Aborted | None:
        """The last plan of the request's run, if the gate or a person refused it and nothing was planned since."""
        found, run = self.coordinator.open_plan(self.timeline), id_of(request)
        if not run or not isinstance(found, NothingOpen) or not found.aborted:
            return None
        last = found.aborted[-1]
        plan = self.coordinator.objects.plan(last.slot)
        is_end = plan is not None and plan.run == run and last.failure.reason in _REFUSALS
        return Aborted(plan=plan, record=last) if plan is not None and is_end else None

    def _is_replaced(self, state: PlanState) -> bool:
        if isinstance(state, OpenPlan):
            plan = state.plan
            return plan.fingerprint != self.pipeline.fingerprint or is_outdated(self.coordinator.objects, plan)
        if isinstance(state, Aborted):
            return state.record.failure.reason in (FailureReason.CODE_CHANGED, FailureReason.STATE_ERASED)
        return isinstance(state, Subsumed)

    def _report(self, plan: CheckpointPlan, error: Exception, *, publishing: bool) -> None:
        try:
            report = self.coordinator.record_failure(self.pipeline, plan, error, publishing=publishing)
        except TidemarkError as second:
            error.add_note(f"the failure itself could not be recorded: {second.what}")
            return
        self.on_failure(report)


def covers(plan: CheckpointPlan, request: PlanRequest) -> bool:
    """Whether completing a plan satisfies a request; an adopted plan may be for an earlier interval, or another run."""
    if request.interval_end is not None:
        return plan.covers and plan.interval is not None and plan.interval.end_ms >= to_ms(request.interval_end)
    if plan.replays and request.replay_to is None:
        return False  # a restored timeline repeats checkpoints, and then reads new records
    if not request.run or (not plan.run and (plan.covers or plan.replays)):
        return True
    return plan.covers and plan.run == id_of(request)


def _is_folded(state: LoopState, request: PlanRequest) -> bool:
    if isinstance(state, Completed):
        return covers(state.checkpoint.plan, request)
    if isinstance(state, SealedPlan):
        return covers(state.plan, request)
    return isinstance(state, Aborted | Subsumed)


# Deliveries that are due: checkpoints of the live timeline whose outbox rows have no delivery record.
def list_undelivered(coordinator: CheckpointCoordinator) -> Sequence[Undelivered]:
    """Lists undelivered checkpoints, oldest first; sinks that the pipeline no longer declares are included.

    A sink that attempts send to has an outbox only if it had another guarantee before, or if its timeline was a fork.
    The rows of such an outbox are sent too.
    """
    timelines = coordinator.timelines
    head = timelines.live_head()
    if head.entry is None or isinstance(head.entry, Closing):
        return []
    sent = SentRecords(timelines)
    found = sent.list_undelivered(head.entry, timelines.chain(head.timeline), lambda: sent.of(head.timeline))
    return [replace(due, timeline=head.timeline) for due in found if not due.is_gone]


def is_live(coordinator: CheckpointCoordinator, due: Undelivered) -> bool:
    """Whether the timeline of a delivery is still live; asked before each checkpoint is sent.

    A restore or a promote may have ended the timeline in the meantime. Its successor then decides which rows are due,
    and sends them.
    """
    return coordinator.timelines.live() == due.timeline


def record_delivery(coordinator: CheckpointCoordinator, done: Undelivered) -> None:
    """Records that Kafka acknowledged all of it; a second, equal record loses the put without harm."""
    record = DeliveryRecord(
        sink=done.table.name,
        checkpoint=done.checkpoint.id,
        records=done.records,
        at_ms=coordinator.clock.now_ms(),
        write_id=coordinator.write_ids(),
        sent=done.sent,
    )
    coordinator.objects.put(delivery_key(done.table.name, done.checkpoint.id), record)
