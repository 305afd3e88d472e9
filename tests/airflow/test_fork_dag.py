"""The fork DAG: its shape, and runs of it by `dag.test()`; the store and the verbs are the real ones."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.airflow.conftest import LogText, load_dag
from tests.airflow.test_dag_runs import states
from tests.support.airflow import AirflowPipeline
from tidemark.errors import DeclarationError, StoreError
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import savepoints, timelines

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def asked(airflow_home: object) -> Callable[..., Any]:
    """A run with a conf; of a DAG of its own, because `dag.test()` keeps a conf as the DAG's defaults."""
    return lambda **conf: load_dag("fork").test(run_conf={"pipeline": "trips", **conf})


def forks(world: AirflowPipeline) -> dict[str, tuple[str | None, int | None, str, str]]:
    """Savepoint, checkpoint and note that each fork began with."""
    begun = [b.genesis for b in timelines.list_timelines(world.open_context(), "trips") if b.genesis is not None]
    return {g.timeline: (g.savepoint or None, g.parent, g.note, g.why) for g in begun}


def test_a_fork_is_a_form_and_two_tasks(airflow_home: object) -> None:
    from tidemark.airflow import fork_dag
    from tidemark.airflow.fork_dags import ForkConf

    dag = load_dag("fork")
    assert {t.task_id: sorted(t.downstream_task_ids) for t in dag.tasks} == {"plan": ["fork"], "fork": []}
    assert dag.timetable.can_be_scheduled is False
    assert set(dag.params) == set(ForkConf.model_fields)
    request = ForkConf(pipeline="trips", source="chk-2", name="x", note="why").request("run-1")
    assert (request.checkpoint, request.savepoint, request.request, request.note) == (2, None, "run-1", "why")
    assert ForkConf(pipeline="trips", source="june", name="x").request("run-1").savepoint == "june"
    with pytest.raises(DeclarationError, match="without pipelines"):
        fork_dag([])


def test_a_run_begins_a_timeline_beside_the_live_one(
    two: AirflowPipeline,
    asked: Callable[..., Any],
    log_text: LogText,
) -> None:
    context = two.open_context()
    savepoints.open_savepoints(context, "trips").create(
        SavepointRequest(name="june", owner="me", origin="test", checkpoint=2)
    )
    made = asked(source="chk-1", name="what-if", note="with other fares")
    assert states(made) == {"plan": "success", "fork": "success"}
    assert "tidemark run trips --timeline what-if" in log_text()
    assert asked(source="june", name="bugfix").state == "success"
    assert forks(two) == {"what-if": (None, 1, "with other fares", "fork"), "bugfix": ("june", 2, "", "fork")}
    assert [b.timeline for b in timelines.list_timelines(context, "trips") if b.is_live] == ["t1"]
    genesis = timelines.get_timeline(context, "trips", "what-if").genesis
    assert genesis is not None and genesis.request == made.run_id, "so that the run's page tells what it made"


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"source": "chk-1", "name": "t7"}, "t<n> is reserved for restores"),
        ({"source": "chk-1", "name": "../x"}, "timeline name refused"),
        ({"source": "chk-1"}, "timeline name refused"),
        ({"name": "what-if"}, "give source: a savepoint, or a checkpoint"),
        ({"source": "chk-9", "name": "what-if"}, "no completed checkpoint chk-9"),
        ({"source": "nothing", "name": "what-if"}, "no savepoint 'nothing'"),
        ({"source": "chk-1", "name": "what-if", "nmae": "x"}, "nmae: Extra inputs are not permitted"),
    ],
)
def test_what_does_not_fit_is_answered_by_the_plan(
    two: AirflowPipeline,
    asked: Callable[..., Any],
    log_text: LogText,
    conf: dict[str, str],
    words: str,
) -> None:
    assert states(asked(**conf)) == {"plan": "failed", "fork": "upstream_failed"}
    assert words in log_text()
    assert forks(two) == {}


def test_a_name_is_taken_once_and_a_task_that_died_finds_its_own_fork(
    two: AirflowPipeline,
    asked: Callable[..., Any],
    log_text: LogText,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accidents = [StoreError("the store went away behind the put", next="wait")]

    def crash(step: str, moment: str) -> None:
        if (step, moment) == ("genesis", "after") and accidents:
            raise accidents.pop()

    monkeypatch.setattr(two, "crash", crash)
    run = asked(source="chk-1", name="what-if")
    assert run.state == "success"
    assert {ti.task_id: ti.try_number for ti in run.get_task_instances()} == {"plan": 1, "fork": 2}
    assert states(asked(source="chk-1", name="what-if")) == {"plan": "failed", "fork": "upstream_failed"}
    assert "timeline what-if exists already: it began at chk-1" in log_text()
    assert set(forks(two)) == {"what-if"}
