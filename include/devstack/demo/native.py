"""The demo's months: runs a native Airflow backfill over some of them, and waits for its end or another condition."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from devstack.demo.dag_runs import POLL, Dag
from tidemark.cli.airflow_api import AirflowApi, AirflowError, Json
from tidemark.errors import TidemarkError

FINISHED_WITHIN = 1500.0
ACTIVE_WITHIN = 90.0
CONFLICT = 409

Say = Callable[[str], None]
Until = Callable[[list[Json], Say], bool]
"""Called with the DAG runs and a function that prints a line; returns whether the wait is over."""


@dataclass(kw_only=True)
class Backfill:
    """One backfill of a DAG.

    Attributes:
        api: a session of Airflow's REST API.
        dag: the DAG's id.
        first: logical date of the first run.
        last: logical date of the last run, inclusive.
        runs: the number of runs.
        dead: called while waiting; returns a service that the runs need and that has ended, or None.
        said: the reports about each run, so that nothing is reported twice.
    """

    api: AirflowApi
    dag: str
    first: datetime
    last: datetime
    runs: int
    dead: Callable[[], str | None] = lambda: None
    said: set[tuple[str, str]] = field(default_factory=set)

    def start(self, *, held: bool = False) -> int:
        """Creates the backfill, or finds it active; waits until Airflow has recorded the end of another one.

        Runs that succeeded are left alone; failed ones are repeated, one run at a time. The DAG is paused meanwhile: if
        SQLite refuses part of the request, Airflow deletes the runs that it has created, and a scheduler that holds one
        of them crashes (seen in 3.3.2).

        Args:
            held: see `hold`.

        Returns:
            The backfill's id.
        """
        self._dag.pause(True)
        try:
            made = self._created()
            self._put(made, "pause" if held else "unpause")
            return made
        finally:
            self._dag.pause(False)

    def hold(self, backfill: int) -> None:
        """Starts no more runs of the backfill; the current one continues."""
        self._put(backfill, "pause")

    def done(self, runs: list[Json]) -> int:
        """The number of runs that have succeeded."""
        return sum(run["state"] == "success" for run in runs)

    def wait(self, backfill: int | None, until: Until | None = None) -> list[Json]:
        """Waits until all runs have ended, or until another condition holds; shows progress on stderr.

        Args:
            backfill: the backfill's id, to cancel it; None if Airflow has ended it already.
            until: the condition to wait for.

        Raises:
            TidemarkError: a run failed, or the runs take too long; the backfill is cancelled.
        """
        over = until or (lambda runs, say: self.done(runs) == self.runs)
        deadline = time.monotonic() + FINISHED_WITHIN
        with _progress(self.runs) as (say, advance):
            while True:
                runs = self.dag_runs()
                self._tell(runs, say)
                advance(self.done(runs))
                self._refuse_failed(runs, backfill)
                if over(runs, say):
                    return runs
                self._refuse_endless(deadline, backfill)
                time.sleep(POLL)

    def dag_runs(self) -> list[Json]:
        """Returns the DAG runs of the months, oldest first."""
        bounds: dict[str, str | int] = {
            "logical_date_gte": self.first.isoformat(),
            "logical_date_lte": self.last.isoformat(),
        }
        found = self.api.get(f"dags/{self.dag}/dagRuns", order_by="logical_date", limit=100, **bounds)
        runs: list[Json] = found["dag_runs"]
        return runs

    @property
    def _dag(self) -> Dag:
        return Dag(api=self.api, id=self.dag)

    def _refuse_failed(self, runs: list[Json], backfill: int | None) -> None:
        for run in runs:
            if run["state"] == "failed":
                self._cancel(backfill)
                raise self._dag.failure(
                    run["dag_run_id"],
                    "completed checkpoints are intact; the backfill is cancelled.",
                    "fix the error in the log, then make demo again: it continues where it stopped.",
                )

    def _refuse_endless(self, deadline: float, backfill: int | None) -> None:
        dead = self.dead()
        if dead:
            raise TidemarkError(
                f"{dead} ended while DAG runs were waiting for it",
                safe="completed checkpoints are intact; the backfill continues when the service is back.",
                next=f"tidemark logs {dead}; then make demo again.",
            )
        if time.monotonic() > deadline:
            self._cancel(backfill)
            raise TidemarkError(
                f"the backfill did not end within {FINISHED_WITHIN:.0f} s",
                safe="completed checkpoints are intact; the backfill is cancelled.",
                next="tidemark logs airflow-scheduler; then make demo again, which continues.",
            )

    def _created(self) -> int:
        deadline = time.monotonic() + ACTIVE_WITHIN
        while True:
            active = self._active()
            if active is not None and len(self.dag_runs()) == self.runs:
                return active
            # SQLite was locked while Airflow created the runs, and again while it removed the backfill.
            self._cancel(active)
            try:
                return int(self.api.post("backfills", self._body())["id"])
            except AirflowError as error:
                # Another one is active, or ended so recently that Airflow has not recorded it yet.
                if error.status != CONFLICT or time.monotonic() > deadline:
                    raise
                time.sleep(POLL)

    def _active(self) -> int | None:
        for found in self.api.get("backfills", dag_id=self.dag).get("backfills", []):
            if found["completed_at"] is None and datetime.fromisoformat(found["from_date"]) == self.first:
                return int(found["id"])
        return None

    def _body(self) -> Json:
        return {
            "dag_id": self.dag,
            "from_date": self.first.isoformat(),
            "to_date": self.last.isoformat(),
            # Airflow's default of 10 would replace the DAG's own limit.
            "max_active_runs": 1,
            "reprocess_behavior": "failed",
            "run_backwards": False,
            "dag_run_conf": {},
        }

    def _cancel(self, backfill: int | None) -> None:
        if backfill is None:
            return
        try:
            self.api.put(f"backfills/{backfill}/cancel")
        except AirflowError as error:
            sys.stderr.write(f"the backfill could not be cancelled, it may have ended: {error.what}\n")

    def _put(self, backfill: int, what: str) -> None:
        """Pauses or unpauses the backfill, unless it has ended."""
        try:
            self.api.put(f"backfills/{backfill}/{what}")
        except AirflowError as error:
            if error.status != CONFLICT:
                raise

    def _tell(self, runs: list[Json], say: Say) -> None:
        for run in runs:
            month = run["logical_date"][:7]
            if run["state"] in ("success", "failed") and (month, "ended") not in self.said:
                self.said.add((month, "ended"))
                say(f"{month}: {run['state']} after {_seconds(run):.1f} s")
            if run["state"] == "running":
                for task in self._dag.tasks(run["dag_run_id"]):
                    self._tell_retry(run, task, say)

    def _tell_retry(self, run: Json, task: Json, say: Say) -> None:
        seen = (run["dag_run_id"], f"{task['task_id']} try {task['try_number']}")
        if task["state"] != "up_for_retry" or seen in self.said:
            return
        self.said.add(seen)
        lines = self._dag.log_tail(run["dag_run_id"], task)
        say(f"{run['logical_date'][:7]}: {task['task_id']} is retried after: {lines[-1] if lines else '?'}")


def _seconds(run: dict[str, Any]) -> float:
    if not run.get("start_date") or not run.get("end_date"):
        return 0.0
    return (datetime.fromisoformat(run["end_date"]) - datetime.fromisoformat(run["start_date"])).total_seconds()


@contextmanager
def _progress(total: int) -> Iterator[tuple[Say, Callable[[int], None]]]:
    """Shows a bar on a terminal and plain lines elsewhere, both on stderr."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield (lambda line: print(line, file=sys.stderr, flush=True)), (lambda done: None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("checkpoints", total=total)
        yield bar.console.print, lambda done: bar.update(task, completed=done)
