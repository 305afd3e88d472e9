"""The DAGs that checkpoint a pipeline, paused and unpaused through Airflow's REST API, where a login to it is known."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from tidemark.cli.airflow_api import AirflowApi, AirflowError
from tidemark.settings import Settings

Login = Callable[[Settings], AirflowApi | None]
POLL = 1.0
TASKS = frozenset({"plan", "fold", "validate", "complete"})
"""What tells a DAG that makes checkpoints from others of the same pipeline."""
_LOGINS: list[Login] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDags:
    """The DAGs that checkpoint one pipeline.

    Attributes:
        api: a session of Airflow's.
        pipeline: its name, which is a tag of its DAGs.
    """

    api: AirflowApi
    pipeline: str

    def ids(self) -> list[str]:
        """Their ids; those that compact are left out, because checkpoints alone set them going."""
        tags = ["tidemark", self.pipeline]
        found = self.api.get("dags", tags=tags, tags_match_mode="all", limit=100)["dags"]
        return [dag["dag_id"] for dag in found if self._tasks(dag["dag_id"]) >= TASKS]

    def pause(self, patience: float, say: Callable[[str], None]) -> list[str]:
        """Pauses them as soon as no DAG run is under way: pausing alone would stall it half-done.

        Runs that are only queued are left queued, and start when the DAG is unpaused.

        Args:
            patience: seconds to wait for runs to end.
            say: told what is waited for.

        Returns:
            The ids of those that are paused now.

        Raises:
            AirflowError: a run did not end in time, or Airflow did not answer.
        """
        deadline, paused = time.monotonic() + patience, self.ids()
        for dag in paused:
            told = False
            while running := self._running(dag):
                if time.monotonic() > deadline:
                    raise AirflowError(
                        f"DAG {dag} is not paused: {', '.join(running)} did not end within {patience:.0f} s",
                        safe=f"{self.pipeline} is stopped: no plan is made.",
                        next=f"tidemark stop {self.pipeline} once more, or pause {dag} in Airflow's pages.",
                    )
                if not told:
                    say(f"waiting for {', '.join(running)} of {dag} to end")
                told = True
                time.sleep(POLL)
            self._set(dag, paused=True)
        return paused

    def unpause(self) -> list[str]:
        """Unpauses them; returns their ids."""
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


def add_login(login: Login) -> None:
    """Adds a way to an Airflow: a function of the settings that returns a session, or None where it knows of none."""
    _LOGINS.append(login)


def dags_of(settings: Settings, pipeline: str) -> PipelineDags | None:
    """The DAGs of a pipeline in the first Airflow that a login leads to; None where there is none."""
    sessions = (login(settings) for login in _LOGINS)
    return next((PipelineDags(api=api, pipeline=pipeline) for api in sessions if api is not None), None)
