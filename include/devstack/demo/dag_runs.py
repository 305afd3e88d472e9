"""One DAG through Airflow's REST API: unpause it, trigger it, look at its tasks, explain what failed."""

import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tidemark.cli.airflow_api import AirflowApi, AirflowError, Json
from tidemark.errors import TidemarkError

PARSED_WITHIN = 180.0
POLL = 1.0
NOT_FOUND = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class Dag:
    """A DAG.

    Attributes:
        api: a session of Airflow's.
        id: as Airflow calls it.
    """

    api: AirflowApi
    id: str

    def pause(self, paused: bool) -> None:
        """Pauses or unpauses it, as soon as Airflow has parsed it.

        Raises:
            TidemarkError: Airflow has not found it; the message has the import errors.
        """
        deadline = time.monotonic() + PARSED_WITHIN
        while not self._is_set(paused):
            if time.monotonic() > deadline:
                raise self._not_parsed()
            time.sleep(POLL)

    def trigger(self, conf: Json) -> str:
        """Triggers a run with a form, or finds the one that is under way with the same form.

        Returns:
            Its id.
        """
        self.pause(False)
        for run in self.api.get(f"dags/{self.id}/dagRuns", state=["queued", "running"], limit=100)["dag_runs"]:
            if conf.items() <= (run["conf"] or {}).items():
                return str(run["dag_run_id"])
        return str(self.api.post(f"dags/{self.id}/dagRuns", {"logical_date": None, "conf": conf})["dag_run_id"])

    def run(self, run: str) -> Json:
        """One run.

        Raises:
            TidemarkError: it failed; the message has the end of the log of each task that did.
        """
        found = self.api.get(f"dags/{self.id}/dagRuns/{quote(run, safe='')}")
        if found["state"] == "failed":
            raise self.failure(run, "what was completed stays.", "mend what the log says, then make demo again.")
        return found

    def succeeded(self, run: str) -> bool:
        """Whether a run is over.

        Raises:
            TidemarkError: as `run`.
        """
        return bool(self.run(run)["state"] == "success")

    def tasks(self, run: str) -> list[Json]:
        """The task instances of a run; mapped ones in order of their index."""
        found: list[Json] = self.api.get(f"dags/{self.id}/dagRuns/{quote(run, safe='')}/taskInstances", limit=200)[
            "task_instances"
        ]
        return sorted(found, key=lambda task: int(task["map_index"]))

    def log_tail(self, run: str, task: Json) -> list[str]:
        """The last lines of what a task instance said in its last try."""
        return self.api.log_tail(
            self.id, run, task["task_id"], task["try_number"], map_index=int(task.get("map_index", -1))
        )

    def answer(self, run: str, task: str, option: str) -> None:
        """Answers the question that a task asks, as the form under "Required Actions" does."""
        where = f"dags/{self.id}/dagRuns/{quote(run, safe='')}/taskInstances/{task}/-1/hitlDetails"
        self.api.patch(where, {"chosen_options": [option], "params_input": {}})

    def failure(self, run: str, safe: str, next_: str) -> TidemarkError:
        """The error of a run that failed.

        Args:
            run: its id.
            safe: what is safe.
            next_: what to do.
        """
        failed = [task for task in self.tasks(run) if task["state"] == "failed"]
        told: list[str] = []
        for task in failed:
            told.append(f"--- {task['task_id']}, try {task['try_number']}, the end of its log:")
            told += self.log_tail(run, task)
        names = ", ".join(dict.fromkeys(task["task_id"] for task in failed)) or "no task"
        return TidemarkError("\n".join([*told, f"DAG run {run} of {self.id} failed in {names}"]), safe=safe, next=next_)

    def page(self, run: str) -> str:
        """The address of a run's page."""
        return f"{self.api.address}/dags/{self.id}/runs/{quote(run, safe='')}"

    def _is_set(self, paused: bool) -> bool:
        try:
            self.api.patch(f"dags/{self.id}", {"is_paused": paused})
        except AirflowError as error:
            if error.status != NOT_FOUND:
                raise
            return False
        return True

    def _not_parsed(self) -> TidemarkError:
        errors: list[dict[str, Any]] = self.api.get("importErrors").get("import_errors", [])
        told = "\n".join(f"{e['filename']}: {e['stack_trace'].strip().splitlines()[-1]}" for e in errors)
        return TidemarkError(
            f"Airflow has not found the DAG {self.id} within {PARSED_WITHIN:.0f} s\n{told}".rstrip(),
            next="tidemark logs airflow-dag-processor",
        )
