"""The DAG that publishes: after checkpoints, a task and an asset for each publication, and a failure of its own."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from sqlalchemy import select

from tests.airflow.conftest import Client, LogText, load_dag
from tests.airflow.pipelines.trips import trips
from tests.airflow.test_dag_runs import states
from tests.publications.published_ward import read_counts
from tests.support.airflow import AirflowPipeline
from tests.support.airflow_disk import AirflowDiskContext, AirflowDiskPipeline
from tidemark.declare.operators import Fold
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import DeclarationError, TargetChangedError
from tidemark.operations import checkpoints
from tidemark.operations.publications import publishing
from tidemark.ports import PlanRequest
from tidemark.targets import DeltaMirror

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
TASK = "buses-mirror"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "buses"


@pytest.fixture
def disk(world: AirflowPipeline, lake: Path, monkeypatch: pytest.MonkeyPatch) -> AirflowDiskPipeline:
    """A checkpoint of two buses, which are published to `lake`."""
    made, (buses,) = AirflowDiskPipeline(), trips.operators
    assert isinstance(buses, Fold)
    published = replace(trips, operators=[replace(buses, publish=[DeltaMirror(str(lake))])])

    def pipeline(self: AirflowDiskContext, name: str) -> Pipeline:
        return published

    monkeypatch.setattr(AirflowDiskContext, "pipeline", pipeline)
    monkeypatch.setattr("tidemark.context.open_context", made.open_context)
    drive(made, 0)
    return made


def drive(disk: AirflowDiskPipeline, day: int) -> None:
    """A checkpoint of a day."""
    disk.drive("a", 1, day=day)
    disk.drive("b", 5, day=day)
    checkpoints.run_once(disk.open_context(), "trips", PlanRequest(origin="test"))


def events(dag_run: Any) -> list[dict[str, Any]]:
    """The events of the publication's asset, oldest first."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        mine = found.filter(AssetModel.name == f"trips/publication/{TASK}", AssetEvent.source_run_id == dag_run.run_id)
        return [dict(event.extra) for event in mine.order_by(AssetEvent.id)]


def test_it_has_a_task_for_each_publication_and_follows_checkpoints(airflow_home: object) -> None:
    from tidemark.airflow import publication_dag

    dag = load_dag("trips_publish")
    assert [task.task_id for task in dag.tasks] == [TASK]
    assert dag.max_active_runs == 1
    assert dag.timetable.asset_condition.uri == "x-tidemark://trips/completed"
    with pytest.raises(DeclarationError, match="declares no publication"):
        publication_dag(trips)


def test_a_run_publishes_and_tells_the_asset(disk: AirflowDiskPipeline, lake: Path, log_text: LogText) -> None:
    run = load_dag("trips_publish").test()
    assert states(run) == {TASK: "success"}
    (event,) = events(run)
    assert (event["mode"], event["checkpoint"], event["version"]) == ("rebuild", "chk-1", "0")
    assert read_counts(lake, "bus") == 2
    again = load_dag("trips_publish").test()
    assert (states(again), events(again)) == ({TASK: "success"}, [])
    drive(disk, 1)
    run = load_dag("trips_publish").test()
    assert [event["mode"] for event in events(run)] == ["difference"]


def test_a_changed_table_fails_its_run_only_and_is_not_tried_again(
    disk: AirflowDiskPipeline, lake: Path, log_text: LogText
) -> None:
    load_dag("trips_publish").test()
    DeltaTable(str(lake)).delete("bus = 'a'")
    drive(disk, 1)
    assert states(load_dag("trips_publish").test()) == {TASK: "failed"}
    told = log_text()
    assert "MIRROR_CHANGED" in told and f"tidemark publication rebuild trips {TASK}" in told
    drive(disk, 2)
    assert len(disk.checkpoints()) == 3


def lag(client: Client, role: str = "viewer") -> Any:
    """The answer of the pages on the publication."""
    (found,) = client("GET", "/pipelines/trips/publications", role).json()
    return found


def test_the_pages_show_its_lag_its_run_and_its_error(disk: AirflowDiskPipeline, lake: Path, client: Client) -> None:
    before = lag(client)
    # Airflow may know a failed run of the DAG from another test.
    assert (before["state"], before["publication"], before["place"]) == ("new", TASK, str(lake))
    assert client("GET", f"/pipelines/trips/publications/{TASK}").json()["steps"] == []
    run = load_dag("trips_publish").test()
    first = lag(client)
    assert (first["verdict"], first["behind"], first["task"]["state"]) == ("UP_TO_DATE", 0, "success")
    assert (first["task"]["dag_id"], first["task"]["run_id"]) == ("trips_publish", run.run_id)
    DeltaTable(str(lake)).delete("bus = 'a'")
    drive(disk, 1)
    failed = load_dag("trips_publish").test()
    found = lag(client)
    assert (found["verdict"], found["behind"], found["records"], found["checkpoint"]) == ("BLOCKED", 1, 2, "chk-1")
    assert found["why"] == "others have changed the target; the error of its task names the next step"
    error = found["task"]["failure"]
    assert found["task"]["run_id"] == failed.run_id and error["is_final"] and error["try_number"] == 1
    assert error["error"] == "TargetChangedError"
    assert "MIRROR_CHANGED" in error["what"] and "publication rebuild trips" in error["next"]
    publishing.rebuild(disk.open_context(), "trips", TASK)
    assert lag(client)["verdict"] == "UP_TO_DATE", "a rebuild by the command line ends it, although the run failed"
    answer = client("GET", f"/pipelines/trips/publications/{TASK}").json()
    assert [step["mode"] for step in answer["steps"]] == ["rebuild", "rebuild"]
    assert client("GET", "/pipelines/trips/publications/nothing").status_code == 404


def test_a_changed_target_is_known_by_the_class_of_the_error_not_by_its_words(
    disk: AirflowDiskPipeline, lake: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TargetChangedError, "__str__", lambda self: "other words\nSafe: all.\nNext: another step.")
    load_dag("trips_publish").test()
    DeltaTable(str(lake)).delete("bus = 'a'")
    drive(disk, 1)
    run = load_dag("trips_publish").test()
    found = lag(client)
    assert found["task"]["failure"]["next"] == "another step." and found["verdict"] == "BLOCKED"
    forget_class(run)
    old = lag(client)
    assert (old["verdict"], old["task"]["failure"]["error"]) == ("FAILING", None)
    assert old["task"]["failure"]["next"] == "another step.", "the record of an earlier release keeps its lines"


def forget_class(run: Any) -> None:
    """Makes the stored error one of an earlier release."""
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session

    with create_session() as session:
        mine = TaskStateStoreModel.run_id == run.run_id, TaskStateStoreModel.key == "error"
        stored = session.scalars(select(TaskStateStoreModel).where(*mine)).one()
        stored.value = json.dumps({k: v for k, v in json.loads(stored.value).items() if k != "error"})
