"""The savepoint DAG: its shape, and runs of it by `dag.test()`; the store and the verbs are the real ones."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.conftest import LogText, load_dag
from tests.airflow.test_dag_runs import events, states
from tests.support.airflow import AirflowPipeline
from tidemark.errors import DeclarationError, NameRefusedError, UsageError
from tidemark.operations import savepoints

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def dag(airflow_home: Path) -> Any:
    return load_dag("savepoint")


@pytest.fixture
def asked(airflow_home: Path) -> Callable[..., Any]:
    """A run with a conf; of a DAG of its own, because `dag.test()` keeps a conf as the DAG's defaults."""
    return lambda **conf: load_dag("savepoint").test(run_conf={"pipeline": "trips", **conf})


def pins(world: AirflowPipeline) -> dict[int, tuple[str, ...]]:
    return dict(savepoints.open_savepoints(world.open_context(), "trips").pins())


def test_the_form_is_planned_then_pinned(dag: Any) -> None:
    assert {t.task_id: sorted(t.downstream_task_ids) for t in dag.tasks} == {"plan": ["create"], "create": []}
    assert dag.params.dump() == {
        "pipeline": "trips", "name": "", "checkpoint": None, "note": None, "expires": None,
    }  # fmt: skip
    assert dag.params.get_param("pipeline").schema["enum"] == ["trips"]
    assert [a.uri for a in dag.get_task("create").outlets] == ["x-tidemark://trips/savepoint"]
    assert dag.timetable.can_be_scheduled is False
    assert "dagRuns" in dag.doc_md


def test_a_run_pins_and_tells_the_asset(two: AirflowPipeline, asked: Callable[..., Any]) -> None:
    run = asked(name="june", checkpoint="chk-1", note="half", expires="30d")
    assert states(run) == {"plan": "success", "create": "success"}
    (made,) = savepoints.open_savepoints(two.open_context(), "trips").list()
    assert (made.name, made.checkpoint, made.note) == ("june", 1, "half")
    assert made.expires_at_ms is not None
    assert abs(made.expires_at_ms - made.created_at_ms - 30 * 86_400_000) < 300_000
    assert made.owner
    (event,) = events(run)
    assert (event.asset.uri, event.partition_key, event.source_task_id) == (
        "x-tidemark://trips/savepoint", "june", "create",
    )  # fmt: skip
    assert event.extra["checkpoint"] == "chk-1"
    assert event.extra["full_bytes"] > 0
    assert asked(name="newest").state == "success"
    assert pins(two) == {1: ("june",), 2: ("newest",)}


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"name": ""}, "use letters, digits"),
        ({"name": "a/b"}, "savepoint name refused: 'a/b'"),
        ({"name": "chk-1"}, "reads as a checkpoint id"),
        ({"name": "ok", "checkpoint": "chk-9"}, "no completed checkpoint chk-9"),
        ({"name": "ok", "checkpoint": "newest"}, "write chk-17 or 17"),
        ({"name": "ok", "expires": "soon"}, "write 30d, 12h"),
        ({"name": "ok", "nmae": "x"}, "nmae: Extra inputs"),
        ({"name": "taken"}, "use another name"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else None,
)
def test_a_form_that_does_not_fit_is_answered_with_what_to_type(
    two: AirflowPipeline, asked: Callable[..., Any], log_text: LogText, conf: dict[str, str], words: str
) -> None:
    if conf["name"] == "taken":
        assert asked(name="taken").state == "success"
    before = pins(two)
    run = asked(**conf)
    assert states(run) == {"plan": "failed", "create": "upstream_failed"}
    assert words in log_text()
    assert pins(two) == before


def test_a_create_that_died_after_its_pin_is_repeated_and_finds_it(
    two: AirflowPipeline, asked: Callable[..., Any]
) -> None:
    from tidemark.errors import StoreError

    world = two
    crash = world.crash

    def once(step: str, moment: str) -> None:
        crash(step, moment)
        if (step, moment) == ("savepoint", "after") and not world.accidents:
            world.accidents.append(("never", RuntimeError()))
            raise StoreError("the store went away", next="wait")

    world.crash = once  # type: ignore[method-assign]
    run = asked(name="june")
    assert run.state == "success"
    assert {ti.task_id: ti.try_number for ti in run.get_task_instances()} == {"plan": 1, "create": 2}
    assert pins(world) == {2: ("june",)}


def test_a_schedule_names_its_savepoints_by_date_and_lets_them_expire(two: AirflowPipeline, airflow_home: Path) -> None:
    from airflow.sdk.api.datamodels._generated import DagRun, DagRunState, DagRunType

    from tidemark.airflow.savepoint_dags import PlanSavepointOperator

    dag = load_dag("daily")
    assert dag.params.dump()["expires"] == "30d"
    plan = dag.get_task("plan")
    assert isinstance(plan, PlanSavepointOperator)

    at = datetime(2024, 3, 2, tzinfo=UTC)
    run = DagRun(
        dag_id="daily",
        run_id="scheduled__x",
        run_type=DagRunType.SCHEDULED,
        state=DagRunState.RUNNING,
        conf={},
        logical_date=at,
        data_interval_start=at,
        data_interval_end=at,
        run_after=at,
        start_date=at,
        end_date=None,
        consumed_asset_events=[],
        partition_key=None,
    )
    name, request = plan.read_form({"dag_run": run, "params": dag.params.dump()})
    assert (name, request.name, request.owner) == ("trips", "daily-2024-03-02T0000", "airflow")
    assert request.expires_at_ms is not None
    run.run_type = DagRunType.MANUAL
    with pytest.raises(NameRefusedError):
        plan.read_form({"dag_run": run, "params": dag.params.dump()})


def test_declarations_that_make_no_sense_are_refused(airflow_home: Path) -> None:
    from tests.airflow.pipelines.trips import trips
    from tidemark.airflow import savepoint_dag

    with pytest.raises(DeclarationError, match="without pipelines"):
        savepoint_dag([])
    with pytest.raises(DeclarationError, match="2 pipelines"):
        savepoint_dag([trips, trips], schedule="@daily")
    with pytest.raises(UsageError, match="not an expiry"):
        savepoint_dag([trips], expires="soon")
