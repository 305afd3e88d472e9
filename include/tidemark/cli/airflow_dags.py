"""Pauses and unpauses the DAGs that checkpoint a pipeline, over the REST API of an Airflow whose login is known."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from tidemark.cli.airflow_api import AirflowApi, AirflowError
from tidemark.cli.extensions import added_logins
from tidemark.settings import Settings

Login = Callable[[Settings], AirflowApi | None]
POLL = 1.0
TASKS = frozenset({"plan", "fold", "validate", "complete"})
"""The tasks by which a checkpoint DAG differs from the pipeline's other DAGs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDags:
    """The DAGs that checkpoint one pipeline.

    Attributes:
        api: a session of Airflow's REST API.
        pipeline: the pipeline's name, which each of its DAGs carries as a tag.
    """

    api: AirflowApi
    pipeline: str

    def ids(self) -> list[str]:
        """Returns the DAGs' ids. Compaction DAGs are left out: only a finished checkpoint starts them."""
        tags = ["tidemark", self.pipeline]
        found = self.api.get("dags", tags=tags, tags_match_mode="all", limit=100)["dags"]
        return [dag["dag_id"] for dag in found if self._tasks(dag["dag_id"]) >= TASKS]

    def pause(self, patience: float, say: Callable[[str], None]) -> list[str]:
        """Pauses each DAG once its running DAG runs have ended, because pausing would stall a run halfway.

        Queued runs stay queued, and start when the DAG is unpaused.

        Args:
            patience: how long to wait for DAG runs to end, in seconds.
            say: called with a message when it starts to wait.

        Returns:
            The ids of the paused DAGs.

        Raises:
            AirflowError: a DAG run did not end in time, or Airflow did not answer.
        """
        deadline, paused = time.monotonic() + patience, self.ids()
        for dag in paused:
            is_reported = False
            while running := self._running(dag):
                if time.monotonic() > deadline:
                    raise AirflowError(
                        f"DAG {dag} is not paused: {', '.join(running)} did not end within {patience:.0f} s",
                        safe=f"{self.pipeline} is stopped: no plan is made.",
                        next=f"run tidemark stop {self.pipeline} again, or pause {dag} in Airflow's UI.",
                    )
                if not is_reported:
                    say(f"waiting for DAG {dag} to finish {', '.join(running)}")
                is_reported = True
                time.sleep(POLL)
            self._set(dag, paused=True)
        return paused

    def unpause(self) -> list[str]:
        """Unpauses the DAGs and returns their ids."""
        found = self.ids()
        for dag in found:
            self._set(dag, paused=False)
        return found

    def _tasks(self, dag: str) -> set[str]:
        return {task["task_id"] for task in self.api.get(f"dags/{quote(dag, safe='')}/tasks")["tasks"]}

    def _running(self, dag: str) -> list[str]:
        runs = self.api.get(f"dags/{quote(dag, safe='')}/dagRuns", state="running", limit=100)["dag_runs"]
        return [run["dag_run_id"] for run in runs]

    def _set(self, dag: str, *, paused: bool) -> None:
        self.api.patch(f"dags/{quote(dag, safe='')}", {"is_paused": paused})


def dags_of(settings: Settings, pipeline: str) -> PipelineDags | None:
    """Returns a pipeline's DAGs in the Airflow that `TIDEMARK_AIRFLOW_URL` names.

    Without it, in the first Airflow that a login finds; None if none finds one.

    Raises:
        UsageError: the file with the token cannot be read.
    """
    if settings.airflow_url:
        api = AirflowApi(settings.airflow_url, token=settings.airflow_bearer)
        return PipelineDags(api=api, pipeline=pipeline)
    sessions = (login(settings) for login in added_logins())
    return next((PipelineDags(api=api, pipeline=pipeline) for api in sessions if api is not None), None)
