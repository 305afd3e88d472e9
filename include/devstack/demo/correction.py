"""The second half of the demo: a savepoint, a release with a bug, its correction by the DAG `backfill`, the promote.

Where it stands is read from the store and from Airflow alone, so a demo that was killed goes on at the same place.
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
        api: a session of Airflow's.
        context: reads the store.
        pipeline: its name.
        said: ids of the checkpoints of the fork that were told.
    """

    api: AirflowApi
    context: Context
    pipeline: str
    said: set[int] = field(default_factory=set)

    @property
    def has_savepoint(self) -> bool:
        """Whether the savepoint was made."""
        return savepoints.open_savepoints(self.context, self.pipeline).find(SAVEPOINT) is not None

    @property
    def begun(self) -> bool:
        """Whether the fork was begun."""
        return _is_begun(self._backfill())

    def save(self, checkpoint: Checkpoint, wait: Callable[[Callable[[], bool]], None]) -> None:
        """Pins a checkpoint by the DAG `savepoint`, unless that was done before.

        Args:
            checkpoint: the one of June.
            wait: waits until something is so.
        """
        if self.has_savepoint:
            note(f"savepoint {SAVEPOINT} was made before")
            return
        form = {"pipeline": self.pipeline, "name": SAVEPOINT, "checkpoint": checkpoint.plan.name}
        dag = Dag(api=self.api, id=SAVEPOINTS)
        run = dag.trigger(form)
        wait(lambda: dag.succeeded(run))
        note(f"savepoint {SAVEPOINT} pins {checkpoint.plan.name}")

    def trigger(self) -> str:
        """Triggers the DAG `backfill`, or finds its run; it asks before it promotes.

        Returns:
            The id of the run.
        """
        form = {"pipeline": self.pipeline, "savepoint": SAVEPOINT, "mode": "approve"}
        dag = Dag(api=self.api, id=BACKFILL)
        run = dag.trigger(form)
        note(f"backfill: {dag.page(run)}")
        return run

    def asks(self, run: str, say: Say) -> bool:
        """Whether the run has compared and asks for approval; tells the steps that it has repeated.

        Raises:
            TidemarkError: the run failed, or is over although nobody has approved.
        """
        state, asking = Dag(api=self.api, id=BACKFILL).run(run)["state"], self._is_asking(run)
        self._tell(say)
        if state == "success" and not asking and not self._backfill().promoted:
            raise TidemarkError(
                f"the run {run} of {BACKFILL} has ended, and its fork was not promoted",
                safe="the fork and the live timeline are intact.",
                next="make demo again: it triggers the backfill anew, which finds what is done.",
            )
        return asking or state == "success"

    def approve(self, run: str) -> None:
        """Answers the question, unless it is answered already."""
        if self._is_asking(run):
            Dag(api=self.api, id=BACKFILL).answer(run, APPROVE, "Approve")

    def succeeded(self, run: str, say: Say) -> bool:
        """Whether the run is over, the fork promoted; tells the steps that it has repeated meanwhile."""
        over = Dag(api=self.api, id=BACKFILL).succeeded(run)
        self._tell(say)
        return over

    def differences(self) -> Differences:
        """How the fork differs from what it repeats, as of its newest checkpoint.

        Raises:
            NotFoundError: it has repeated nothing.
        """
        found = backfill.compare(self.context, self._backfill())
        if found is None:
            raise NotFoundError("the backfill has repeated nothing", next="this is a defect of the demo: report it.")
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
