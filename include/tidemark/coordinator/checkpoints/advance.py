"""The whole straight line in one process: trigger, begin, execute, publish; again until an interval is covered."""

from collections.abc import Callable
from dataclasses import dataclass

from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.failure_policy import FailureReport
from tidemark.coordinator.records.states import Completed, Covered, OpenPlan, PlanState, Refused
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import TidemarkError
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.ports import PlanRequest

Execute = Callable[[OwnedAttempt], Sealed]
"""Executes one attempt up to its seal; `CheckpointJob.execute`, passed by the context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced:
    """What an advance did: the checkpoints completed, in order, and why it ended where it did not just succeed."""

    checkpoints: tuple[Checkpoint, ...]
    ended: Covered | Refused | None = None


def _ignore(report: FailureReport) -> None:
    """The caller has no use for reports of failures: the error itself is raised."""


@dataclass(frozen=True, kw_only=True)
class Advance:
    """Advances one pipeline.

    Attributes:
        coordinator: of the pipeline.
        pipeline: the declaration.
        execute: executes one attempt.
        on_failure: told of every failure before its error is raised, to pause and alert.
        timeline: the live one by default.
    """

    coordinator: CheckpointCoordinator
    pipeline: Pipeline
    execute: Execute
    on_failure: Callable[[FailureReport], None] = _ignore
    timeline: str | None = None

    def once(self, request: PlanRequest) -> Advanced:
        """Completes one checkpoint: the open plan if there is one, else a new one.

        Raises:
            TidemarkError: planning or execution failed. Where a retry cannot help the plan was aborted, else it stays
                open and the next call takes its next attempt.
        """
        found = self._step(request)
        if isinstance(found, Completed):
            return Advanced(checkpoints=(found.checkpoint,))
        return Advanced(checkpoints=(), ended=found)

    def until_covered(self, request: PlanRequest) -> Advanced:
        """Completes checkpoints until the request's interval is covered; without an interval, one.

        Raises:
            TidemarkError: as `once`; the checkpoints completed so far stay.
        """
        done: list[Checkpoint] = []
        while isinstance(found := self._step(request), Completed):
            done.append(found.checkpoint)
            if request.interval_end is None:
                return Advanced(checkpoints=tuple(done))
        return Advanced(checkpoints=tuple(done), ended=found)

    def _step(self, request: PlanRequest) -> Completed | Covered | Refused:
        while True:
            found = self.coordinator.trigger(self.pipeline, request, self.timeline)
            if not isinstance(found, OpenPlan):
                return found
            state = self._execute(found.plan)
            if isinstance(state, Completed):
                return state
            # Aborted by somebody, or void because the timeline ended: plan anew where the live timeline is.

    def _execute(self, plan: CheckpointPlan) -> PlanState:
        owned = self.coordinator.begin(plan, self.pipeline.checkpoint_timeout)
        if isinstance(owned, OwnedAttempt):
            try:
                self.execute(owned)
            except Exception as error:
                self._tell(plan, error, publishing=False)
                raise
        try:
            return self.coordinator.complete(plan)
        except Exception as error:
            self._tell(plan, error, publishing=True)
            raise

    def _tell(self, plan: CheckpointPlan, error: Exception, *, publishing: bool) -> None:
        try:
            report = self.coordinator.record_failure(self.pipeline, plan, error, publishing=publishing)
        except TidemarkError as second:
            error.add_note(f"the failure itself could not be recorded: {second.what}")
            return
        self.on_failure(report)
