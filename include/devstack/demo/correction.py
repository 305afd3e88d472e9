"""The second half of the demo: a savepoint, a release with a bug, its correction by the DAG `backfill`, the promote.

All progress is in the store and in Airflow, so a demo that was killed continues at the same place.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile

from devstack.demo.dag_runs import Dag
from devstack.demo.native import Say
from tidemark.cli.airflow_api import AirflowApi
from tidemark.cli.output import note
from tidemark.context import Context
from tidemark.coordinator.recovery.backfill import Backfill, BackfillRequest
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.errors import NotFoundError, TidemarkError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.operations import backfill, savepoints
from tidemark.operations.backfill import Differences

SAVEPOINT = "end-of-june"
BACKFILL, SAVEPOINTS = "backfill", "savepoint"
APPROVE = "approve"


@dataclass(kw_only=True)
class Correction:
    """One correction of one pipeline.

    Attributes:
        api: a session of Airflow's REST API.
        context: the context for reading the store.
        pipeline: the pipeline's name.
        said: ids of the fork's checkpoints that were reported.
    """

    api: AirflowApi
    context: Context
    pipeline: str
    said: set[int] = field(default_factory=set)

    @property
    def has_savepoint(self) -> bool:
        """Whether the savepoint exists."""
        return savepoints.open_savepoints(self.context, self.pipeline).find(SAVEPOINT) is not None

    @property
    def begun(self) -> bool:
        """Whether the fork exists."""
        return _is_begun(self._backfill())

    def save(self, checkpoint: Checkpoint, wait: Callable[[Callable[[], bool]], None]) -> None:
        """Pins a checkpoint with the DAG `savepoint`, unless the savepoint exists.

        Args:
            checkpoint: the checkpoint of June.
            wait: waits until a condition holds.
        """
        if self.has_savepoint:
            note(f"savepoint {SAVEPOINT} exists already")
            return
        form = {"pipeline": self.pipeline, "name": SAVEPOINT, "checkpoint": checkpoint.plan.name}
        dag = Dag(api=self.api, id=SAVEPOINTS)
        run = dag.trigger(form)
        wait(lambda: dag.succeeded(run))
        note(f"savepoint {SAVEPOINT} pins {checkpoint.plan.name}")

    def trigger(self) -> str:
        """Triggers the DAG `backfill`, or finds its run. The DAG asks before it promotes.

        Returns:
            The run's id.
        """
        form = {"pipeline": self.pipeline, "savepoint": SAVEPOINT, "mode": "approve"}
        dag = Dag(api=self.api, id=BACKFILL)
        run = dag.trigger(form)
        note(f"backfill: {dag.page(run)}")
        return run

    def asks(self, run: str, say: Say) -> bool:
        """Returns whether the run has compared and waits for approval; reports the steps that it has repeated.

        Raises:
            TidemarkError: the run failed, or ended without an approval.
        """
        state, asking = Dag(api=self.api, id=BACKFILL).run(run)["state"], self._is_asking(run)
        self._tell(say)
        if state == "success" and not asking and not self._backfill().promoted:
            raise TidemarkError(
                f"the run {run} of {BACKFILL} has ended, and its fork was not promoted",
                safe="the fork and the live timeline are intact.",
                next="make demo again: it triggers the backfill again, which continues where it stopped.",
            )
        return asking or state == "success"

    def approve(self, run: str) -> None:
        """Approves the promote, unless it is approved already."""
        if self._is_asking(run):
            Dag(api=self.api, id=BACKFILL).answer(run, APPROVE, "Approve")

    def succeeded(self, run: str, say: Say) -> bool:
        """Returns whether the run has ended and promoted the fork; reports the steps that it has repeated meanwhile."""
        over = Dag(api=self.api, id=BACKFILL).succeeded(run)
        self._tell(say)
        return over

    def differences(self) -> Differences:
        """Returns the differences between the fork's newest checkpoint and the checkpoint that it repeats.

        Raises:
            NotFoundError: the fork has repeated no checkpoint.
        """
        found = backfill.compare(self.context, self._backfill())
        if found is None:
            raise NotFoundError("the backfill has repeated nothing", next="this is a bug in the demo: report it.")
        return found

    def _backfill(self) -> Backfill:
        begins = RestoreRequest(savepoint=SAVEPOINT)
        return backfill.open_backfill(self.context, self.pipeline, BackfillRequest(begins=begins))

    def _is_asking(self, run: str) -> bool:
        tasks = Dag(api=self.api, id=BACKFILL).tasks(run)
        return any(task["task_id"] == APPROVE and task["state"] == "awaiting_input" for task in tasks)

    def _tell(self, say: Say) -> None:
        one = self._backfill()
        chain = one.coordinator.checkpoints(one.fork) if _is_begun(one) else ()
        own = list(takewhile(lambda found: found.plan.slot.timeline == one.fork, chain))
        for made in reversed(own):
            if made.id not in self.said:
                self.said.add(made.id)
                say(f"backfill: {made.plan.name} repeats {', '.join(f'chk-{number}' for number in made.plan.replays)}")


def _is_begun(one: Backfill) -> bool:
    return one.coordinator.objects.slot(one.fork, 1) is not None
