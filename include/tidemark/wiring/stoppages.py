"""The verbs that stop and resume a pipeline; what Airflow's DAGs do then is the command line's business."""

from tidemark.coordinator.recovery.stopping import STOP, Stopped, Stopping
from tidemark.errors import ConflictError
from tidemark.faults import no_crash
from tidemark.model.checkpoint import Checkpoint
from tidemark.model.records import StopRecord
from tidemark.model.savepoint import SavepointRequest
from tidemark.ports import CrashPoints, PlanRequest
from tidemark.wiring.core import both
from tidemark.wiring.pins import Pins
from tidemark.wiring.steps import Steps


class Stoppages(Steps, Pins):
    """Stops a pipeline, with a savepoint or without, and lets it go on."""

    def stop(self, name: str, why: str) -> Stopped:
        """Stops a pipeline at once: no plan is made any more, a checkpoint in progress may end.

        Raises:
            NotFoundError: no such pipeline.
            StoreError: it was not recorded.
        """
        return Stopping(self.coordinator(self.known(name))).stop(why)

    def stop_with_savepoint(
        self, name: str, request: SavepointRequest, why: str, steps: CrashPoints = no_crash
    ) -> Stopped:
        """Completes a last checkpoint, pins it, then stops (G3).

        Raises:
            NotFoundError: no such pipeline.
            ConflictError: the name is taken, somebody else is at it, or the pipeline is stopped already.
            TidemarkError: as `run_once` raises. The pipeline runs on, and the error says so (G4).
        """

        def complete() -> Checkpoint:
            made = self.run_once(name, PlanRequest(origin=STOP), steps).checkpoint
            if made is None:
                raise ConflictError(f"{name}: no last checkpoint was made", next=f"tidemark run {name}")
            return made

        coordinator = self.coordinator(self.known(name), both(steps, self.crash))
        return Stopping(coordinator).stop_with_savepoint(request, why, complete)

    def resume(self, name: str, why: str, *, force: bool = False) -> StopRecord | None:
        """Lets plans be made again; None where the pipeline was not stopped.

        Raises:
            NotFoundError: no such pipeline.
            ConflictError: it was drained, and `force` is not given.
        """
        return Stopping(self.coordinator(self.known(name))).resume(why, force=force)
