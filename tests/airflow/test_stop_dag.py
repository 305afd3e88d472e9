"""The DAGs that stop and resume: they call the real verbs, and the plugin's listener pauses the pipeline's schedule."""

import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.conftest import LogText, Trigger, load_dag
from tests.airflow.test_dag_runs import DagRun, states
from tests.support.airflow import AirflowPipeline
from tests.support.cli import Command
from tidemark.errors import DeclarationError
from tidemark.model.checkpoint.manifest import Verdict
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import savepoints, stop

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
BOTH = ["trips", "trips_called"]
"""The DAGs of tests/airflow/dags that checkpoint the pipeline."""


@pytest.fixture(autouse=True)
def listeners(world: AirflowPipeline, trips: Any) -> Iterator[None]:
    """The listeners are registered, as the plugin registers them in the scheduler, and no DAG is paused."""
    from airflow.listeners.listener import get_listener_manager
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    from tidemark.airflow.ui.plugin import TidemarkPlugin

    manager = get_listener_manager()
    trips.test(logical_date=None, run_conf={"max_record": 1})  # it is in the database now
    for listener in TidemarkPlugin.listeners:
        manager.add_listener(listener)
    with create_session() as session:
        for model in session.query(DagModel):
            model.is_paused = False
    yield
    manager.clear()


def paused_dags() -> set[str]:
    """The ids of paused DAGs, without a second one that checkpoints the same pipeline and is paused with the first."""
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    with create_session() as session:
        found = {model.dag_id for model in session.query(DagModel) if model.is_paused}
    return found - {"trips_called"}


def is_stopped(world: AirflowPipeline) -> object:
    return stop.plan_stop(world.open_context(), "trips")["stopped"]


@pytest.mark.parametrize("verb", ["stop", "resume"])
def test_each_is_a_form_and_two_tasks(verb: str, airflow_home: object) -> None:
    import tidemark.airflow
    from tidemark.airflow.stop_dags import ResumeConf, StopConf

    dag = load_dag(verb)
    assert {t.task_id: sorted(t.downstream_task_ids) for t in dag.tasks} == {"plan": [verb], verb: []}
    assert dag.timetable.can_be_scheduled is False
    assert set(dag.params) == set((StopConf if verb == "stop" else ResumeConf).model_fields)
    with pytest.raises(DeclarationError, match="without pipelines"):
        getattr(tidemark.airflow, f"{verb}_dag")([])


def test_a_stop_pauses_the_schedule_and_a_resume_unpauses_it(
    world: AirflowPipeline, dag_run: DagRun, trigger_dag: Trigger
) -> None:
    world.drive("a", 3)
    assert str(dag_run(day=1).state) == "success"
    assert states(trigger_dag("stop", note="disk swap")) == {"plan": "success", "stop": "success"}
    assert (is_stopped(world), paused_dags()) == (True, {"trips"}), "only the DAG that makes checkpoints"
    world.drive("a", 4, day=1)
    assert str(dag_run(day=2).state) == "failed", "a run of a stopped pipeline"
    assert len(world.checkpoints()) == 1, "it made nothing"
    assert states(trigger_dag("stop")) == {"plan": "success", "stop": "success"}, "a repetition finds the stop"
    assert stop.plan_stop(world.open_context(), "trips")["why"] == "disk swap"
    assert states(trigger_dag("resume")) == {"plan": "success", "resume": "success"}
    assert (is_stopped(world), paused_dags()) == (False, set())
    assert str(dag_run(day=2).state) == "success"
    assert len(world.checkpoints()) == 2


def test_a_stop_with_a_savepoint_completes_a_last_checkpoint(
    world: AirflowPipeline,
    trigger_dag: Trigger,
    log_text: LogText,
) -> None:
    world.drive("a", 3)
    assert states(trigger_dag("stop", savepoint="last", drain=True)) == {"plan": "success", "stop": "success"}
    (made,) = world.checkpoints()
    pinned = savepoints.open_savepoints(world.open_context(), "trips").get("last")
    assert (pinned.checkpoint, pinned.drained) == (made.id, True)
    assert paused_dags() == {"trips"}
    assert states(trigger_dag("resume"))["resume"] == "failed"
    assert "it was meant to end" in log_text()
    assert (is_stopped(world), paused_dags()) == (True, {"trips"})
    assert str(trigger_dag("resume", force=True).state) == "success"
    assert (is_stopped(world), paused_dags()) == (False, set())


@pytest.mark.parametrize(
    ("conf", "wrong"),
    [
        ({"drain": True}, "drain requires a savepoint"),
        ({"savepoint": "chk-1"}, "chk-1"),
        ({"savepoint": "taken"}, "exists already"),
        ({"savepoin": "x"}, "savepoin: Extra inputs are not permitted"),
    ],
)
def test_a_form_that_does_not_fit_is_answered_by_the_first_task(
    world: AirflowPipeline,
    dag_run: DagRun,
    trigger_dag: Trigger,
    log_text: LogText,
    conf: dict[str, Any],
    wrong: str,
) -> None:
    for day in (1, 2):
        world.drive("a", 3, day=day - 1)
        dag_run(day=day)
    request = SavepointRequest(name="taken", owner="me", origin="test", checkpoint=1)
    savepoints.open_savepoints(world.open_context(), "trips").create(request)
    assert states(trigger_dag("stop", **conf)) == {"plan": "failed", "stop": "upstream_failed"}
    text = log_text()
    assert wrong in text and "Next: " in text
    assert (is_stopped(world), paused_dags()) == (False, set())


def test_a_stop_that_fails_pauses_nothing(world: AirflowPipeline, trigger_dag: Trigger) -> None:
    world.drive("a", 3)
    world.verdict = Verdict(passed=False)
    assert str(trigger_dag("stop", savepoint="last").state) == "failed"
    assert (is_stopped(world), paused_dags()) == (False, set())


def test_a_dag_with_a_running_run_is_paused_after_it(
    world: AirflowPipeline, dag_run: DagRun, trigger_dag: Trigger
) -> None:
    """The stop arrives while the run folds."""
    world.drive("a", 3)
    seen: list[set[str]] = []
    real = world.crash

    def stops(step: str, moment: str) -> None:
        if (step, moment) == ("read", "before") and not seen:
            with_conf = trigger_dag("stop", note="in the middle")
            assert str(with_conf.state) == "success"
            seen.append(paused_dags())
        real(step, moment)

    world.crash = stops  # type: ignore[method-assign]
    assert str(dag_run(day=1).state) == "success", "the checkpoint in progress is completed"
    assert seen == [set()], "pausing would have stalled the run"
    assert paused_dags() == {"trips"}


def test_a_run_that_began_after_a_resume_by_other_means_is_not_paused(
    world: AirflowPipeline, trips: Any, trigger_dag: Trigger
) -> None:
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    assert str(trigger_dag("stop").state) == "success"
    stop.resume(world.open_context(), "trips", "by the command line")
    with create_session() as session:
        session.get(DagModel, "trips").is_paused = False  # type: ignore[union-attr]
    world.drive("a", 3)
    run = trips.test(logical_date=None, run_after=datetime.now(UTC) + timedelta(seconds=1), run_conf={})
    assert (str(run.state), paused_dags()) == ("success", set())


@pytest.fixture
def api(airflow_home: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], tuple[str, str]]]:
    """Airflow's own API server on a port; `api(role)` is its address, and a token of a user with that role."""
    import uvicorn

    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", "admin:admin,ann:viewer")
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "s" * 64)
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(apps="core"), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()

    def login(role: str) -> tuple[str, str]:
        token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=role, role=role))
        return f"http://127.0.0.1:{listener.getsockname()[1]}", token

    yield login
    server.should_exit = True
    thread.join(30)
    listener.close()


def test_the_command_line_pauses_the_dags_of_an_airflow_that_is_named(
    world: AirflowPipeline, api: Callable[[str], tuple[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://nowhere:1")
    tidemark.declare(Path(__file__).parent / "pipelines" / "trips.py", file="trips.py")
    address, token = api("admin")
    (tmp_path / "token").write_text(f"{token}\n")
    named = {"TIDEMARK_AIRFLOW_URL": address, "TIDEMARK_AIRFLOW_TOKEN_FILE": str(tmp_path / "token")}
    done = tidemark.process("stop", "trips", "--json", **named).ok()
    assert (done.json["stopped"], done.json["paused_dags"], paused_dags()) == (True, BOTH, {"trips"})
    assert token not in done.out + done.err
    done = tidemark.process("resume", "trips", "--json", **named).ok()
    assert (done.json["resumed"], done.json["unpaused_dags"], paused_dags()) == (True, BOTH, set())
    viewer = {"TIDEMARK_AIRFLOW_URL": address, "TIDEMARK_AIRFLOW_TOKEN": api("viewer")[1]}
    failed = tidemark.process("stop", "trips", **viewer).failed(1, "Airflow answered PATCH", "403")
    assert failed.lines[1] == "Safe: trips is stopped: no plan is made."
    assert viewer["TIDEMARK_AIRFLOW_TOKEN"] not in failed.err
    wrong = tidemark.process(
        "resume", "trips", **named | {"TIDEMARK_AIRFLOW_TOKEN_FILE": "", "TIDEMARK_AIRFLOW_TOKEN": "canary"}
    )
    wrong.failed(1, "Airflow answered GET", "take a token whose user may read and edit the DAGs")
    assert paused_dags() == set()
