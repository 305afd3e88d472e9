"""The restore DAG: its shape, and runs of it by `dag.test()`; the store and the verbs are the real ones."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.airflow.conftest import LogText, load_dag
from tests.airflow.test_dag_runs import DagRun, states
from tests.support.airflow import AirflowPipeline
from tidemark.errors import DeclarationError, UsageError
from tidemark.operations import timelines

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def asked(airflow_home: object) -> Callable[..., Any]:
    """A run with a conf; of a DAG of its own, because `dag.test()` keeps a conf as the DAG's defaults."""
    return lambda **conf: load_dag("restore").test(run_conf={"pipeline": "trips", **conf})


def fates(world: AirflowPipeline) -> dict[str, str]:
    return {b.timeline: b.fate for b in timelines.list_timelines(world.open_context(), "trips")}


def test_a_restore_is_a_form_and_two_tasks(airflow_home: object) -> None:
    from tidemark.airflow import restore_dag
    from tidemark.airflow.form_answers import validate_conf
    from tidemark.airflow.restore_dags import RestoreConf

    dag = load_dag("restore")
    assert {t.task_id: sorted(t.downstream_task_ids) for t in dag.tasks} == {"plan": ["restore"], "restore": []}
    assert (dag.timetable.can_be_scheduled, dag.max_active_runs) == (False, 1)
    assert set(dag.params) == set(RestoreConf.model_fields)
    assert dag.params["execute"] is False, "a dry run, unless it is asked for"
    request = validate_conf(RestoreConf, {"pipeline": "trips", "checkpoint": "chk-2", "rename": {"a": "b"}}).request(
        "run-1"
    )
    assert (request.checkpoint, request.renamed, request.request) == (2, {"a": "b"}, "run-1")
    request = validate_conf(RestoreConf, {"pipeline": "trips", "newest_whole": True, "max_fallback": 1}).request(
        "run-1"
    )
    assert (request.newest_whole, request.max_fallback, request.checkpoint) == (True, 1, None)
    with pytest.raises(UsageError, match="chekpoint: Extra inputs are not permitted"):
        validate_conf(RestoreConf, {"pipeline": "trips", "chekpoint": "chk-2"})
    with pytest.raises(DeclarationError, match="without pipelines"):
        restore_dag([])


def test_a_run_tells_its_plan_and_restores_only_where_it_is_asked_to(
    two: AirflowPipeline,
    asked: Callable[..., Any],
    log_text: LogText,
    dag_run: DagRun,
) -> None:
    dry = asked(checkpoint="chk-1")
    assert states(dry) == {"plan": "success", "restore": "skipped"}
    text = log_text()
    assert "left: ['chk-2']" in text
    assert "read_again: {'trips-0': {'start': 1, 'end': 2}}" in text
    assert fates(two) == {"t1": "live"}
    assert states(asked(checkpoint="chk-1", execute=True)) == {"plan": "success", "restore": "success"}
    assert fates(two) == {"t1": "closed for t2", "t2": "live"}
    two.drive("a", 1, day=2)
    assert dag_run(day=3).state == "success"
    newest = two.checkpoints()[-1]
    assert (str(newest.plan.slot), newest.plan.parent, two.buses()) == ("t2/2.1", 1, {"a": (3, 3)})
    assert states(asked(newest_whole=True, execute=True)) == {"plan": "success", "restore": "success"}
    assert fates(two) == {"t1": "closed for t2", "t2": "closed for t3", "t3": "live"}
    for conf, words in (
        ({}, "name one restore point"),
        ({"checkpoint": "chk-9"}, "no completed checkpoint chk-9"),
        ({"savepoint": "june"}, "no savepoint 'june'"),
        ({"checkpoint": "chk-1", "claim": True}, "claim without a savepoint"),
        ({"checkpoint": "chk-1", "newest_whole": True}, "name one restore point"),
    ):
        assert states(asked(execute=True, **conf)) == {"plan": "failed", "restore": "upstream_failed"}
        assert words in log_text()
    assert set(fates(two)) == {"t1", "t2", "t3"}


def test_a_restore_that_died_between_its_puts_is_repeated_and_finishes(
    two: AirflowPipeline,
    asked: Callable[..., Any],
) -> None:
    from tidemark.errors import StoreError

    two.accidents.append(("closing", StoreError("the store went away", next="wait")))
    run = asked(checkpoint="chk-1", execute=True)
    assert run.state == "success"
    assert {ti.task_id: ti.try_number for ti in run.get_task_instances()} == {"plan": 1, "restore": 2}
    assert fates(two) == {"t1": "closed for t2", "t2": "live"}
