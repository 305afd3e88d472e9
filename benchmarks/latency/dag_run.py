"""Triggers a DAG run over REST, waits for it, and times the phases of its tasks and its checkpoint."""

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote

from tidemark.cli.airflow_api import AirflowApi
from tidemark.context import open_context
from tidemark.model.checkpoint.object_keys import external_path
from tidemark.operations import reads
from tidemark.settings import Settings

Row = dict[str, Any]
TASKS = ("plan", "fold", "validate", "complete")
POLL, PATIENCE = 0.5, 300.0


def timed_run(settings: Settings, api: AirflowApi, dag: str) -> Row:
    """Triggers a run of the DAG and waits for its end.

    Returns:
        Seconds from the trigger until `completed` (the manifest has its final name) and `ended` (Airflow marks the run
        as successful); `phases`, see `_marks`; `steps`, the seconds of the engine's steps, from the manifest;
        `records`, the number of records that the checkpoint read.
    """
    triggered = time.time()
    run = api.post(f"dags/{dag}/dagRuns", {"logical_date": None, "conf": {}})["dag_run_id"]
    accepted = time.time()
    ended = _waited(api, dag, run)
    made = reads.get_checkpoint(open_context(settings), dag)
    assert made.plan.origin == run, f"{run} of {dag} made no checkpoint"
    phases, before = {}, triggered
    for name, at in [("accept", accepted), *_marks(settings, api, ended), ("end", _at(ended["end_date"]))]:
        phases[name], before = round(at - before, 3), at
    manifest = settings.home / "warehouse" / external_path(dag, made.plan.slot)
    return {
        # Linking the file to its final name updates the inode's change time, so it is the time of the commit point.
        "completed": round(manifest.stat().st_ctime - triggered, 3),
        "ended": round(_at(ended["end_date"]) - triggered, 3),
        "phases": phases,
        "steps": {name: ms / 1000 for name, ms in made.sealed.timings_ms.items()},
        "records": made.sealed.facts.records,
    }


def _marks(settings: Settings, api: AirflowApi, run: Row) -> Iterator[tuple[str, float]]:
    """Yields the end of each phase of a run, in order: `queued`, then five phases per task.

    `schedule`: the scheduler has found the task and given it to its executor. `start`: the task's process has reported
    its start. `prepare`: the DAG file is parsed and `execute` begins. `work`: `execute` has returned. `report`: Airflow
    has recorded the task's state.
    """
    dag, name = run["dag_id"], run["dag_run_id"]
    found = api.get(f"dags/{dag}/dagRuns/{quote(name, safe='')}/taskInstances")["task_instances"]
    tasks = {task["task_id"]: task for task in found}
    yield "queued", _at(run["start_date"])
    for task in TASKS:
        log = settings.home / f"airflow/logs/dag_id={dag}/run_id={name}/task_id={task}/attempt=1.log"
        said = [(line["event"], _at(line["timestamp"])) for line in map(json.loads, log.read_text().splitlines())]
        yield f"{task}.schedule", _at(tasks[task]["queued_when"])
        yield f"{task}.start", _at(tasks[task]["start_date"])
        yield f"{task}.prepare", next(at for event, at in said if event == "::endgroup::")
        yield f"{task}.work", next(at for event, at in said if event == "::group::Post Execute")
        yield f"{task}.report", _at(tasks[task]["end_date"])


def _waited(api: AirflowApi, dag: str, run: str) -> Row:
    deadline = time.monotonic() + PATIENCE
    while True:
        found = api.get(f"dags/{dag}/dagRuns/{quote(run, safe='')}")
        if found["state"] in ("success", "failed"):
            assert found["state"] == "success", f"{run} of {dag} failed"
            return found
        assert time.monotonic() < deadline, f"{run} of {dag} is still {found['state']}"
        time.sleep(POLL)


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
