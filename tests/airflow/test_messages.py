"""What tasks tell each other: ids, however much was read and however many keys there are (F2)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.airflow import AirflowPipeline

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


def told(run: Any) -> dict[str, Any]:
    """The return value of every task, as the metadata database keeps it."""
    return {ti.task_id: ti.xcom_pull(task_ids=ti.task_id) for ti in run.get_task_instances()}


def test_tasks_pass_ids_and_no_data(world: AirflowPipeline, dag_run: Callable[..., Any]) -> None:
    world.drive("a", 1)
    small = told(dag_run(day=1))
    for n in range(500):
        world.drive(f"bus-{n}", n, day=1)
    large = told(dag_run(day=2))
    assert large == {
        "plan": {"slot": "t1/2.1", "checkpoint": "chk-2"},
        "fold": {"slot": "t1/2.1", "checkpoint": "chk-2", "completed": []},
        "validate": {"slot": "t1/2.1", "checkpoint": "chk-2", "completed": []},
        "complete": {"checkpoint": "chk-2", "completed": ["chk-2"]},
    }
    assert len(world.buses()) == 501
    assert len(json.dumps(large)) == len(json.dumps(small))
