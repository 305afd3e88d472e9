"""The DAGs that promote, close, hold and erase: dry runs unless asked, the real verbs, and what the verbs refuse."""

from typing import Any

import pytest

from tests.airflow.conftest import LogText, Trigger, load_dag
from tests.airflow.test_dag_runs import states
from tests.support.airflow import AirflowPipeline
from tests.support.airflow_disk import AirflowDiskPipeline
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.errors import DeclarationError, StoreError
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import checkpoints, erasure, reads, savepoints, timelines
from tidemark.operations.dead_letters import redriving
from tidemark.ports import PlanRequest

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
DRY = {"promote", "close", "erase", "redrive"}


@pytest.fixture
def disk(world: AirflowPipeline, monkeypatch: pytest.MonkeyPatch) -> AirflowDiskPipeline:
    """Two checkpoints of two buses, a savepoint `june` of the first, and a fork `bugfix` that begins there."""
    made = AirflowDiskPipeline()
    monkeypatch.setattr("tidemark.context.open_context", made.open_context)
    opened = made.open_context()
    for day in range(2):
        made.drive("a", 1, day=day)
        made.drive("b", 5, day=day)
        checkpoints.run_once(opened, "trips", PlanRequest(origin="test"))
    request = SavepointRequest(name="june", owner="me", origin="test", checkpoint=1)
    savepoints.open_savepoints(opened, "trips").create(request)
    timelines.fork(opened, "trips", "bugfix", RestoreRequest(savepoint="june", request="test"))
    return made


def fate(disk: AirflowDiskPipeline, timeline: str = "bugfix") -> str:
    return timelines.get_timeline(disk.open_context(), "trips", timeline).fate


def holds(disk: AirflowDiskPipeline) -> list[str]:
    return [why for why in savepoints.open_savepoints(disk.open_context(), "trips").needed_by("june") if "hold" in why]


def buses(disk: AirflowDiskPipeline) -> list[list[str]]:
    """The keys at each checkpoint of the live line."""
    opened = disk.open_context()
    return [sorted(reads.read_state(opened, "trips", "buses", checkpoint=n).column("bus").to_pylist()) for n in (1, 2)]


@pytest.mark.parametrize("verb", ["promote", "close", "hold", "erase", "redrive"])
def test_each_is_a_form_and_two_tasks_and_dry_where_something_may_be_lost(verb: str, airflow_home: object) -> None:
    import tidemark.airflow

    dag = load_dag(verb)
    assert {t.task_id: sorted(t.downstream_task_ids) for t in dag.tasks} == {"plan": [verb], verb: []}
    assert (dag.timetable.can_be_scheduled, dag.max_active_runs) == (False, 1)
    assert dag.params.get("execute") == (False if verb in DRY else None)
    with pytest.raises(DeclarationError, match="without pipelines"):
        getattr(tidemark.airflow, f"{verb}_dag")([])


def test_a_fork_is_closed_only_where_it_is_asked_for(
    disk: AirflowDiskPipeline, trigger_dag: Trigger, log_text: LogText
) -> None:
    before = fate(disk)
    assert states(trigger_dag("close", name="bugfix")) == {"plan": "success", "close": "skipped"}
    assert "timeline: bugfix" in log_text()
    assert fate(disk) == before
    assert states(trigger_dag("close", name="bugfix", execute=True)) == {"plan": "success", "close": "success"}
    assert fate(disk).startswith("closed")
    again = trigger_dag("close", name="bugfix", execute=True)
    assert states(again) == {"plan": "success", "close": "success"}, "a repetition finds it"
    assert states(trigger_dag("close", name="t1", execute=True)) == {"plan": "failed", "close": "upstream_failed"}
    assert "timeline t1 is live" in log_text()


def test_a_fork_that_lacks_records_is_promoted_only_with_discard(
    disk: AirflowDiskPipeline,
    trigger_dag: Trigger,
    log_text: LogText,
) -> None:
    assert states(trigger_dag("promote", name="bugfix", execute=True)) == {
        "plan": "failed",
        "promote": "upstream_failed",
    }
    assert "timeline bugfix lacks offsets of the live one: chk-2" in log_text()
    assert states(trigger_dag("promote", name="bugfix", discard=True)) == {"plan": "success", "promote": "skipped"}
    assert not timelines.get_timeline(disk.open_context(), "trips", "bugfix").is_live
    done = trigger_dag("promote", name="bugfix", discard=True, execute=True)
    assert states(done) == {"plan": "success", "promote": "success"}
    assert timelines.get_timeline(disk.open_context(), "trips", "bugfix").is_live
    assert states(trigger_dag("promote", execute=True)) == {"plan": "failed", "promote": "upstream_failed"}
    assert "name is missing" in log_text()


def test_a_hold_is_put_and_released(disk: AirflowDiskPipeline, trigger_dag: Trigger, log_text: LogText) -> None:
    assert states(trigger_dag("hold", savepoint="june")) == {"plan": "failed", "hold": "upstream_failed"}
    assert "name the case, or who asked for the hold" in log_text()
    assert states(trigger_dag("hold", savepoint="june", why="case 4711")) == {"plan": "success", "hold": "success"}
    (why,) = holds(disk)
    assert "case 4711" in why
    assert str(trigger_dag("hold", savepoint="june", release=True).state) == "success"
    assert holds(disk) == []
    assert states(trigger_dag("hold", savepoint="june", release=True)) == {"plan": "success", "hold": "failed"}
    assert "no legal hold on savepoint 'june'" in log_text()


def test_a_key_is_erased_only_where_it_is_asked_for_and_a_task_that_died_finishes(
    disk: AirflowDiskPipeline,
    trigger_dag: Trigger,
    log_text: LogText,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert states(trigger_dag("erase", uid="buses", key=["a"])) == {"plan": "success", "erase": "skipped"}
    assert buses(disk) == [["a", "b"], ["a", "b"]]
    real, accidents = erasure.erase, [StoreError("the store went away behind the erasure", next="wait")]

    def dies(*arguments: Any) -> Any:
        done = real(*arguments)
        if accidents:
            raise accidents.pop()
        return done

    monkeypatch.setattr(erasure, "erase", dies)
    run = trigger_dag("erase", uid="buses", key=["a"], execute=True)
    assert states(run) == {"plan": "success", "erase": "success"}
    assert {ti.task_id: ti.try_number for ti in run.get_task_instances()} == {"plan": 1, "erase": 2}
    assert buses(disk) == [["b"], ["b"]]
    for conf, words in (
        ({"uid": "buses", "key": ["a", "b"]}, "key"),
        ({"uid": "routes", "key": ["a"]}, "no checkpoint of trips has an operator 'routes'"),
        ({"uid": "buses"}, "uid or key is missing"),
    ):
        assert states(trigger_dag("erase", execute=True, **conf)) == {"plan": "failed", "erase": "upstream_failed"}
        assert words in log_text()


def test_letters_are_redriven_only_where_it_is_asked_for_and_a_task_that_died_asks_once(
    disk: AirflowDiskPipeline,
    trigger_dag: Trigger,
    log_text: LogText,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = disk.open_context()
    disk.drive("a", 1, day=2)
    disk.drive(None, 1, day=2)
    checkpoints.run_once(opened, "trips", PlanRequest(origin="test"))

    def asked() -> list[tuple[int, str]]:
        found = redriving.list_letters(opened, "trips").requests
        return [(request.letters, request.state) for request in found]

    assert states(trigger_dag("redrive", uid="buses")) == {"plan": "success", "redrive": "skipped"}
    shown = log_text()
    assert "letters: 1" in shown and "refused: {'null_key': 1}" in shown
    assert asked() == []
    real, accidents = redriving.redrive, [StoreError("the store went away behind the request", next="wait")]

    def dies(*arguments: Any) -> Any:
        done = real(*arguments)
        if accidents:
            raise accidents.pop()
        return done

    monkeypatch.setattr(redriving, "redrive", dies)
    run = trigger_dag("redrive", uid="buses", reason="null_key", note="case 12", execute=True)
    assert states(run) == {"plan": "success", "redrive": "success"}
    assert {ti.task_id: ti.try_number for ti in run.get_task_instances()} == {"plan": 1, "redrive": 2}
    assert asked() == [(1, "waiting")]
    for conf, words in (
        ({"uid": "buses", "reason": "malformed_json"}, "no such dead letters"),
        ({"uid": "routes"}, "no operator 'routes'"),
        ({"uid": ""}, "uid is missing"),
    ):
        assert states(trigger_dag("redrive", execute=True, **conf)) == {"plan": "failed", "redrive": "upstream_failed"}
        assert words in log_text()
