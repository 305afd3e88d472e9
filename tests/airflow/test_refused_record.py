"""A DAG run whose attempt sends a record that Kafka refuses: one try, and the plan waits with its ids."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.airflow.test_dag_runs import states, tries
from tests.support.airflow import AirflowPipeline
from tidemark.coordinator.records.states import OpenPlan
from tidemark.errors import RecordRefusedError

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


def test_a_refused_record_is_not_retried_and_the_next_run_finishes_the_same_plan(
    world: AirflowPipeline, dag_run: Callable[..., Any], capfd: Any, caplog: Any
) -> None:
    world.drive("a", 3)
    world.accidents = [("read", RecordRefusedError("too large", next="tidemark sink skip"))]
    run = dag_run(day=1)
    assert run.state == "failed" and states(run)["fold"] == "failed"
    assert tries(run)["fold"] == 1
    captured = capfd.readouterr()
    assert "RECORD_REFUSED" in captured.out + captured.err + caplog.text
    left = world.open_context().coordinator("trips").open_plan()
    assert isinstance(left, OpenPlan) and left.plan.id == 1
    assert dag_run(day=1).state == "success"
    assert [c.id for c in world.checkpoints()] == [1]
    assert world.buses() == {"a": (1, 3)}
