"""Runs of the DAG `backfill`, for the tests of a few steps and of many."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.airflow_disk import AirflowDiskPipeline
from tidemark.operations import checkpoints
from tidemark.ports import PlanRequest


def states_by_task(run: Any) -> dict[str, list[str]]:
    """States per task, by map index."""
    found: dict[str, list[str]] = {}
    for ti in sorted(run.get_task_instances(), key=lambda ti: ti.map_index):
        found.setdefault(ti.task_id, []).append(str(ti.state))
    return found


def list_repeats(disk: AirflowDiskPipeline) -> list[tuple[int, ...]]:
    """What the live line repeats, oldest first."""
    return [c.plan.replays for c in disk.checkpoints()]


def run_long_backfill(intervals: int, tasks: int, trigger: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Few intervals have records. The API server refuses to map a list of more items than the limit."""
    made = AirflowDiskPipeline()
    monkeypatch.setattr("tidemark.context.open_context", made.open_context)
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", str(tasks))
    opened = made.open_context()
    for n in range(intervals + 1):
        if n % (intervals // 5) == 0:
            made.drive("a", 1, day=n * 5 // intervals)
        checkpoints.run_once(opened, "trips", PlanRequest(origin="test"))
    before = made.buses()
    made.accidents = [("publish", RuntimeError("killed"))]
    run = trigger(checkpoint="chk-1", mode="promote", name="long")
    assert (str(run.state), states_by_task(run)["repeat"]) == ("success", ["success"] * tasks)
    assert list_repeats(made) == [(), *((n,) for n in range(2, intervals + 2))]
    assert made.buses() == before == {"a": (6, 6)}
    assert made.accidents == [], "one step was repeated"
