"""The watch DAG by `dag.test()`: who is late is told at the asset, by the notifier and in red; no DAG run is needed."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.test_dag_runs import events
from tests.support.airflow import DAY, AirflowPipeline
from tidemark.errors import DeclarationError
from tidemark.operations import checkpoints, stop
from tidemark.ports import PlanRequest

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
HERE = Path(__file__).parent
HOUR = 3_600_000
DAYS = 24 * HOUR
_serial = count(1)
Run = Callable[[], Any]


@pytest.fixture
def watch(airflow_home: Path) -> Any:
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(HERE / "dags").dags["watch"]


@pytest.fixture
def run(watch: Any) -> Run:
    return lambda: watch.test(logical_date=None, run_after=DAY + timedelta(days=1900 + next(_serial)))


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """What the notifier was told."""
    path = tmp_path / "notes.jsonl"
    monkeypatch.setenv("TIDEMARK_TEST_NOTES", str(path))
    return lambda: [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def old(world: AirflowPipeline, monkeypatch: pytest.MonkeyPatch) -> AirflowPipeline:
    """A checkpoint; then the clock goes on for three hours, and nothing runs."""
    from tidemark.environment import SystemClock

    world.drive("a", 1)
    checkpoints.run_once(world.open_context(), "trips", PlanRequest(origin="test"))
    real = SystemClock.now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: real(self) + 3 * HOUR)
    return world


def states(found: Any) -> dict[str, str]:
    return {ti.task_id: str(ti.state) for ti in found.get_task_instances()}


def test_a_late_pipeline_is_told_by_asset_notifier_and_a_red_task(
    old: AirflowPipeline, run: Run, notes: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any, caplog: Any
) -> None:
    monkeypatch.setenv("TIDEMARK_CHECKPOINT_DEADLINE", "2h")
    found = run()
    assert states(found) == {"look": "success", "late": "failed"}
    (event,) = events(found)
    assert event.asset.uri == "x-tidemark://trips/late"
    (told,) = notes()
    assert told == event.extra
    assert (told["pipeline"], told["late"], told["newest"], told["deadline_ms"]) == ("trips", True, "chk-1", 2 * HOUR)
    assert 3 * HOUR <= told["age_ms"] < 3 * HOUR + 600_000
    logged = caplog.text + "".join(capfd.readouterr())
    assert "trips is late: no checkpoint was completed for 3:0" in logged
    assert "tidemark checkpoint list trips" in logged


@pytest.mark.parametrize("deadline", ["", "4h", "other=1h"])
def test_who_is_on_time_or_has_no_deadline_is_green(
    old: AirflowPipeline, run: Run, notes: Any, monkeypatch: pytest.MonkeyPatch, deadline: str
) -> None:
    monkeypatch.setenv("TIDEMARK_CHECKPOINT_DEADLINE", deadline)
    found = run()
    assert states(found) == {"look": "success", "late": "success"}
    assert events(found) == []
    assert notes() == []


@pytest.fixture
def pause(airflow_home: Path) -> Iterator[Callable[[bool], None]]:
    """Pauses or unpauses the DAG of the trips, which runs daily; at the end it is as it was."""
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    def write(paused: bool) -> bool:
        with create_session() as session:
            dag = session.get(DagModel, "trips")
            assert dag is not None
            was = bool(dag.is_paused)
            dag.is_paused = paused
        return was

    was: list[bool] = []
    yield lambda paused: was.append(write(paused))
    if was:
        write(was[0])


def test_without_a_deadline_the_schedule_decides_unless_the_dag_is_paused(
    world: AirflowPipeline, run: Run, notes: Any, pause: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any, caplog: Any
) -> None:
    from tidemark.environment import SystemClock

    monkeypatch.delenv("TIDEMARK_CHECKPOINT_DEADLINE", raising=False)
    world.drive("a", 1)
    checkpoints.run_once(world.open_context(), "trips", PlanRequest(origin="test"))
    assert states(run())["late"] == "success"
    now = SystemClock().now_ms()
    midnight = (now // DAYS + 1) * DAYS
    pause(False)
    for ahead, late in ((midnight - now + 1, "success"), (midnight - now + DAYS + HOUR, "failed")):
        with monkeypatch.context() as later:
            later.setattr(SystemClock, "now_ms", lambda self, ahead=ahead: now + ahead)
            assert states(run())["late"] == late
            pause(True)
            assert states(run())["late"] == "success", "a DAG that is paused is not late"
            pause(False)
    (told,) = notes()
    assert (told["deadline_ms"], told["due_ms"]) == (None, midnight)
    assert midnight + DAYS <= told["late_since_ms"] < midnight + DAYS + HOUR
    assert "a run of its DAG has been due since" in caplog.text + "".join(capfd.readouterr())


def test_the_dag_of_a_pipeline_may_have_another_name(airflow_home: Path) -> None:
    from airflow.sdk.definitions.mappedoperator import MappedOperator

    from tests.airflow.pipelines.trips import trips
    from tidemark.airflow import watch_dag
    from tidemark.airflow.deadline_dags import LookOperator

    (look, _) = watch_dag([trips], dags={"trips": "nightly"}, dag_id="watch_nightly").tasks
    assert isinstance(look, MappedOperator)
    assert look.partial_kwargs["dags"] == {"trips": "nightly"} and look.operator_class is LookOperator
    with pytest.raises(DeclarationError, match="names rides"):
        watch_dag([trips], dags={"rides": "nightly"})


def test_a_checkpoint_ends_it_and_a_stop_too(
    old: AirflowPipeline, run: Run, notes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_CHECKPOINT_DEADLINE", "2h")
    opened = old.open_context()
    stop.stop(opened, "trips", "enough")
    assert states(run())["late"] == "success"
    stop.resume(opened, "trips", "go on")
    assert states(run())["late"] == "failed"
    old.drive("a", 1)
    checkpoints.run_once(old.open_context(), "trips", PlanRequest(origin="test"))
    assert states(run())["late"] == "success"


def test_a_notifier_that_fails_is_logged_and_fails_nothing(
    old: AirflowPipeline, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any, caplog: Any
) -> None:
    monkeypatch.setenv("TIDEMARK_CHECKPOINT_DEADLINE", "2h")
    monkeypatch.setenv("TIDEMARK_TEST_NOTES", str(tmp_path / "no-such-folder" / "notes"))
    found = run()
    assert states(found) == {"look": "success", "late": "failed"}
    assert "on_late failed" in caplog.text + "".join(capfd.readouterr())
    assert len(events(found)) == 1


def test_the_watch_runs_on_a_schedule_of_its_own_and_survives_serialisation(watch: Any) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    assert {t.task_id: sorted(t.downstream_task_ids) for t in watch.tasks} == {"look": ["late"], "late": []}
    assert all(task.is_mapped for task in watch.tasks)
    assert watch.max_active_runs == 1
    first, second = (DagSerialization.to_dict(watch) for _ in range(2))
    assert first == second
    assert DagSerialization.from_dict(first).task_dict.keys() == {"look", "late"}


def test_a_watch_over_nothing_is_refused(airflow_home: Path) -> None:
    from tidemark.airflow import watch_dag

    with pytest.raises(DeclarationError, match="without pipelines"):
        watch_dag([])
