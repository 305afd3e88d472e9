"""Controls one DAG through Airflow's REST API: unpauses and triggers it, shows its tasks, explains failures."""

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
        api: a session of Airflow's REST API.
        id: the DAG's id.
    """

    api: AirflowApi
    id: str

    def pause(self, paused: bool) -> None:
        """Pauses or unpauses the DAG, as soon as Airflow has parsed it.

        Raises:
            TidemarkError: Airflow has not found the DAG; the message has the import errors.
        """
        deadline = time.monotonic() + PARSED_WITHIN
        while not self._is_set(paused):
            if time.monotonic() > deadline:
                raise self._not_parsed()
            time.sleep(POLL)

    def trigger(self, conf: Json) -> str:
        """Triggers a run with a form, or finds a running one with the same form.

        Returns:
            The run's id.
        """
        self.pause(False)
        for run in self.api.get(f"dags/{self.id}/dagRuns", state=["queued", "running"], limit=100)["dag_runs"]:
            if conf.items() <= (run["conf"] or {}).items():
                return str(run["dag_run_id"])
        return str(self.api.post(f"dags/{self.id}/dagRuns", {"logical_date": None, "conf": conf})["dag_run_id"])

    def run(self, run: str) -> Json:
        """Returns one run.

        Raises:
            TidemarkError: the run failed; the message has the end of each failed task's log.
        """
        found = self.api.get(f"dags/{self.id}/dagRuns/{quote(run, safe='')}")
        if found["state"] == "failed":
            raise self.failure(
                run, "completed checkpoints are intact.", "fix the error in the log, then make demo again."
            )
        return found

    def succeeded(self, run: str) -> bool:
        """Returns whether a run has succeeded.

        Raises:
            TidemarkError: as for `run`.
        """
        return bool(self.run(run)["state"] == "success")

    def tasks(self, run: str) -> list[Json]:
        """Returns the task instances of a run; mapped ones in order of their index."""
        found: list[Json] = self.api.get(f"dags/{self.id}/dagRuns/{quote(run, safe='')}/taskInstances", limit=200)[
            "task_instances"
        ]
        return sorted(found, key=lambda task: int(task["map_index"]))

    def log_tail(self, run: str, task: Json) -> list[str]:
        """Returns the last log lines of a task instance's last try."""
        return self.api.log_tail(
            self.id, run, task["task_id"], task["try_number"], map_index=int(task.get("map_index", -1))
        )

    def answer(self, run: str, task: str, option: str) -> None:
        """Answers a task's question, like the form under "Required Actions"."""
        where = f"dags/{self.id}/dagRuns/{quote(run, safe='')}/taskInstances/{task}/-1/hitlDetails"
        self.api.patch(where, {"chosen_options": [option], "params_input": {}})

    def failure(self, run: str, safe: str, next_: str) -> TidemarkError:
        """Returns the error for a failed run.

        Args:
            run: the run's id.
            safe: the error's `safe` part.
            next_: the error's `next` part.
        """
        failed = [task for task in self.tasks(run) if task["state"] == "failed"]
        lines: list[str] = []
        for task in failed:
            lines.append(f"--- {task['task_id']}, try {task['try_number']}, the end of its log:")
            lines += self.log_tail(run, task)
        names = ", ".join(dict.fromkeys(task["task_id"] for task in failed)) or "no task"
        return TidemarkError(
            "\n".join([*lines, f"DAG run {run} of {self.id} failed in {names}"]), safe=safe, next=next_
        )

    def page(self, run: str) -> str:
        """Returns the address of a run's page."""
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
        reasons = "\n".join(f"{e['filename']}: {e['stack_trace'].strip().splitlines()[-1]}" for e in errors)
        return TidemarkError(
            f"Airflow has not found the DAG {self.id} within {PARSED_WITHIN:.0f} s\n{reasons}".rstrip(),
            next="tidemark logs airflow-dag-processor",
        )
