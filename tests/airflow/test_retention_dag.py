"""The retention DAG: its shape, and runs of it by `dag.test()`; store, tables on disk and verbs are the real ones."""

import os
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.conftest import HERE
from tests.airflow.human_in_the_loop import human_answers
from tests.airflow.test_dag_runs import events
from tests.support.airflow import DAY
from tests.support.airflow_disk import AirflowDiskPipeline
from tidemark import Retention
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.errors import DeclarationError, UsageError
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import checkpoints, reads, retention, savepoints, timelines, verification
from tidemark.ports import PlanRequest

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
_serial = count(1)


@pytest.fixture
def disk(world: Any, monkeypatch: pytest.MonkeyPatch) -> AirflowDiskPipeline:
    """Four checkpoints."""
    made = AirflowDiskPipeline()
    monkeypatch.setattr("tidemark.context.open_context", made.open_context)
    for day in range(4):
        made.drive("a", day + 1, day=day)
        checkpoints.run_once(made.open_context(), "trips", PlanRequest(origin="test"))
    return made


@pytest.fixture
def dags(airflow_home: Path) -> dict[str, Any]:
    from airflow.dag_processing.dagbag import DagBag

    return dict(DagBag(HERE / "dags").dags)


@pytest.fixture
def run(dags: dict[str, Any]) -> Callable[[str], Any]:
    def one(dag_id: str, **conf: str) -> Any:
        after = DAY + timedelta(days=900 + next(_serial))
        return dags[dag_id].test(logical_date=None, run_after=after, run_conf=conf or None)

    return one


def states(found: Any) -> dict[str, str]:
    return {ti.task_id: str(ti.state) for ti in found.get_task_instances()}


def outcomes(found: Any) -> dict[str, list[str]]:
    """States of a task over the pipelines, in the order in which the DAG names them."""
    seen = sorted(found.get_task_instances(), key=lambda ti: ti.map_index)
    tasks = dict.fromkeys(ti.task_id for ti in seen)
    return {task: [str(ti.state) for ti in seen if ti.task_id == task] for task in tasks}


def test_plan_sweep_verify_are_a_group_that_is_mapped_over_pipelines(dags: dict[str, Any]) -> None:
    dag = dags["retention"]
    assert {t.task_id: sorted(t.downstream_task_ids) for t in dag.tasks} == {
        "plan": ["sweep"], "sweep": ["verify"], "verify": [],
    }  # fmt: skip
    assert dags["asking"].get_task("plan").downstream_task_ids == {"approve"}
    assert {"tidemark", "trips"} == set(dag.tags)
    assert "legal holds" in dag.doc_md
    assert all(task.get_closest_mapped_task_group().group_id == "pipelines" for task in dag.tasks)


def test_a_run_releases_deletes_verifies_and_tells_the_asset(
    disk: AirflowDiskPipeline, run: Any, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    opened = disk.open_context()
    retention.declare_rule(opened, "trips", Retention.keep_last(2))
    done = run("retention")
    assert states(done) == {"plan": "success", "sweep": "success", "verify": "success"}
    (event,) = events(done)
    assert event.asset.uri == "x-tidemark://trips/retention"
    assert event.extra["released"] == ["chk-1", "chk-2"]
    assert event.extra["rule"] == "keep_last(2)"
    assert event.extra["deleted_bytes"] >= 0
    logged = caplog.text + "".join(capfd.readouterr())
    assert "released: ['chk-1', 'chk-2']" in logged
    assert reads.list_released(opened, "trips") == {"chk-1", "chk-2"}
    assert verification.verify(opened, "trips").damages == ()


def test_a_form_may_ask_for_another_grace_time(disk: AirflowDiskPipeline, run: Any) -> None:
    opened = disk.open_context()
    retention.declare_rule(opened, "trips", Retention.keep_last(1))
    timelines.restore(opened, "trips", RestoreRequest(checkpoint=1))
    checkpoints.run_once(opened, "trips", PlanRequest(origin="test"))
    (later,) = events(run("retention", grace="7d"))
    assert later.extra["released"] == ["chk-1", "chk-2", "chk-3", "chk-4"]
    assert later.extra["deleted_files"] == 0
    free = {f.path for f in retention.plan_sweep(opened, "trips").free}
    assert free, "what is free waits"
    (now,) = events(run("retention", grace="0"))
    assert now.extra["deleted_files"] == len(free)


def test_a_grace_time_that_is_none_is_answered(disk: AirflowDiskPipeline, run: Any) -> None:
    retention.declare_rule(disk.open_context(), "trips", Retention.keep_last(1))
    done = run("retention", grace="soon")
    assert states(done)["plan"] == "failed"
    assert reads.list_released(disk.open_context(), "trips") == frozenset()


def damaged_savepoint(opened: Any, pipeline: str) -> Path:
    savepoints.open_savepoints(opened, pipeline).create(SavepointRequest(name="june", owner="test", origin="test"))
    (found,) = (opened.settings.warehouse / pipeline / "savepoints" / "june").glob("*.json")
    found.chmod(0o644)
    found.write_text("{}")
    return Path(found)


def test_a_fault_of_one_pipeline_stops_no_other_and_the_run_is_red(
    disk: AirflowDiskPipeline, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [str(HERE / "pipelines"), str(HERE / "more_pipelines")]
    monkeypatch.setenv("TIDEMARK_PIPELINES", os.pathsep.join(folders))
    opened = disk.open_context()
    for name in ("trams", "trains"):
        for _ in range(3):
            disk.drive("a", 1)
            checkpoints.run_once(opened, name, PlanRequest(origin="test"))
    names = ("trips", "trams", "trains")
    for name in names:
        retention.declare_rule(opened, name, Retention.keep_last(1))
    damaged_savepoint(opened, "trams")
    with human_answers("Approve", questions=2):
        done = run("several")
    assert done.state == "failed"
    assert outcomes(done) == {
        "plan": ["success", "failed", "success"],
        "approve": ["success", "upstream_failed", "success"],
        "sweep": ["success", "upstream_failed", "success"],
        "verify": ["success", "upstream_failed", "success"],
    }
    assert [len(reads.list_released(opened, name)) for name in names] == [3, 0, 2]
    assert {event.asset.uri for event in events(done)} == {
        "x-tidemark://trips/retention", "x-tidemark://trains/retention",
    }  # fmt: skip


def test_each_pipeline_is_asked_for_by_itself(
    disk: AirflowDiskPipeline, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [str(HERE / "pipelines"), str(HERE / "more_pipelines")]
    monkeypatch.setenv("TIDEMARK_PIPELINES", os.pathsep.join(folders))
    opened = disk.open_context()
    checkpoints.run_once(opened, "trams", PlanRequest(origin="test"))
    checkpoints.run_once(opened, "trains", PlanRequest(origin="test"))
    retention.declare_rule(opened, "trips", Retention.keep_last(1))
    with human_answers("Reject"):
        done = run("several")
    assert outcomes(done)["sweep"] == ["skipped", "success", "success"], "nothing is due of the other two"


def test_without_a_declared_retention_it_keeps_everything(disk: AirflowDiskPipeline, run: Any) -> None:
    done = run("retention")
    assert set(states(done).values()) == {"success"}
    assert reads.list_released(disk.open_context(), "trips") == frozenset()


@pytest.mark.parametrize(("answer", "gone"), [("Approve", {"chk-1", "chk-2", "chk-3"}), ("Reject", set())])
def test_somebody_is_asked_before_anything_goes(
    disk: AirflowDiskPipeline, run: Any, answer: str, gone: set[str]
) -> None:
    retention.declare_rule(disk.open_context(), "trips", Retention.keep_last(1))
    with human_answers(answer):
        done = run("asking")
    assert states(done)["sweep"] == ("success" if gone else "skipped")
    assert reads.list_released(disk.open_context(), "trips") == gone


def test_nobody_is_asked_where_nothing_goes(disk: AirflowDiskPipeline, run: Any) -> None:
    assert set(states(run("asking")).values()) == {"success"}


def test_a_dag_without_pipelines_or_with_another_grace_time_is_refused(airflow_home: Path) -> None:
    from tests.airflow.pipelines.trips import trips
    from tidemark.airflow import retention_dag

    with pytest.raises(DeclarationError, match="without pipelines"):
        retention_dag([])
    with pytest.raises(UsageError, match="not a span of time"):
        retention_dag([trips], grace="soon")
