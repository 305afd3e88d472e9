"""The routes behind the forms: the actions a user may start, how runs ended, and what is refused unread."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.airflow.conftest import HERE, Client, load_dag
from tests.support.airflow_disk import AirflowDiskPipeline
from tidemark.coordinator.records.redrive_requests import RedriveRequests
from tidemark.coordinator.records.states import Aborted
from tidemark.declare.retention import Retention
from tidemark.errors import StoreError
from tidemark.operations import checkpoints, retention
from tidemark.ports import PlanRequest

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
VERBS = {"restore", "fork", "redrive", "promote", "close", "patch", "transform", "stop", "resume", "erase", "hold"}
Asked = Callable[..., Any]


@pytest.fixture
def made(disk: AirflowDiskPipeline, dag_run: Callable[..., Any]) -> AirflowDiskPipeline:
    """One checkpoint, by a DAG run; so all DAGs of the folder are in Airflow's database."""
    disk.drive("b1", 3)
    assert dag_run(1).state == "success"
    return disk


@pytest.fixture
def asked(airflow_home: object) -> Asked:
    """`asked("fork", name="x")`: a run of a DAG with a conf."""
    return lambda dag_id, **conf: load_dag(dag_id).test(run_conf={"pipeline": "trips", **conf})


def outcome(client: Client, run: Any) -> Any:
    return client("GET", f"/dags/{run.dag_id}/outcome", params={"run_id": run.run_id}).json()


def test_one_answer_has_all_actions_each_with_its_dag(client: Client, made: AirflowDiskPipeline) -> None:
    found = client("GET", "/pipelines/trips/actions", role="admin").json()
    there = {file.stem for file in (HERE / "dags").glob("*.py")}
    assert VERBS & there <= found["dags"].keys()
    assert {kind: dag["dag_id"] for kind, dag in found["dags"].items() if kind in VERBS} == {
        verb: verb for verb in VERBS & there
    }
    assert found["dags"]["savepoint"]["dag_id"] == "savepoint"
    assert found["may_dispose"] and all(dag["may_unpause"] for dag in found["dags"].values())
    assert client("GET", "/pipelines/trips/actions").json() == {
        "pipeline": "trips", "may_dispose": False, "dags": {}
    }, "a viewer may start nothing"  # fmt: skip


def test_forms_are_not_paused_when_they_are_created_and_a_pause_is_told(
    client: Client, made: AirflowDiskPipeline
) -> None:
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    assert load_dag("restore").is_paused_upon_creation is False
    assert load_dag("trips").is_paused_upon_creation is None, "a schedule begins when a person unpauses it"
    with create_session() as session:
        model = session.get(DagModel, "fork")
        assert model is not None
        model.is_paused = True
    dags = client("GET", "/pipelines/trips/actions", role="admin").json()["dags"]
    assert (dags["fork"]["is_paused"], dags["restore"]["is_paused"]) == (True, False)


def test_a_failed_form_says_what_is_wrong_what_is_safe_and_what_to_do(
    client: Client, made: AirflowDiskPipeline, asked: Asked
) -> None:
    run = asked("fork", source="nothing", name="x")
    found = outcome(client, run)
    (failure,) = found.pop("failures")
    assert (found["kind"], found["state"], found["swept"]) == ("fork", "failed", [])
    assert (failure["task"], failure["is_final"], failure["map_index"]) == ("plan", True, -1)
    assert failure["what"] == "no savepoint 'nothing'"
    assert failure["safe"] == "nothing was written." and failure["next"]


def test_a_run_that_succeeds_has_no_failure_and_a_dry_run_says_so(
    client: Client, made: AirflowDiskPipeline, asked: Asked
) -> None:
    run = asked("fork", source="chk-1", name="what-if")
    assert outcome(client, run) == {
        "kind": "fork", "state": "success", "completed": [], "covered_by": None, "skipped": [], "failures": [],
        "swept": [], "redrive": None, "written": None,
    }  # fmt: skip
    (reported,) = client("GET", "/dags/fork/checkpoints", params={"run_id": run.run_id}).json()
    assert reported["timelines"] == ["what-if"]
    assert outcome(client, asked("restore", checkpoint="chk-1"))["skipped"] == ["restore"]


def test_a_transform_says_what_it_would_write_and_what_it_wrote(
    client: Client, made: AirflowDiskPipeline, asked: Asked
) -> None:
    moved = "buses=SELECT if(n = 1, bus || '!', bus) AS bus, trips, miles FROM buses, range(2) AS twice(n)"
    conf = {"source": "chk-1", "fork": "twice", "queries": [moved], "key_groups": 8}
    dry = outcome(client, asked("transform", **conf))
    counts = {"before": 1, "after": 2, "inserted": 1, "changed": 0, "deleted": 0, "unchanged": 1, "key_groups": 8}
    wanted = {
        "pipeline": "trips", "source": "chk-1", "timeline": "twice", "savepoint": "twice", "checkpoint": None,
        "states": [{"uid": "buses", "counts": counts}],
    }  # fmt: skip
    assert (dry["kind"], dry["state"], dry["skipped"], dry["written"]) == (
        "transform", "success", ["transform"], wanted
    )  # fmt: skip
    done = outcome(client, asked("transform", **conf, execute=True))
    assert (done["skipped"], done["written"]) == ([], wanted | {"checkpoint": "chk-2"})
    wrong = conf | {"fork": "wrong", "queries": ["buses=FROM buses, buses AS b"]}
    refused = outcome(client, asked("transform", **wrong))
    assert (refused["state"], refused["written"]) == ("failed", None)
    assert refused["failures"][0]["task"] == "plan" and refused["failures"][0]["next"]


def test_a_patch_says_the_same(client: Client, made: AirflowDiskPipeline, asked: Asked, tmp_path: Path) -> None:
    table = tmp_path / "right.parquet"
    pq.write_table(pa.table({"bus": ["b1", "b9"], "trips": [5, 1], "miles": [7, 2]}), table)
    done = outcome(client, asked("patch", source="chk-1", name="right", set_tables=[f"buses={table}"], execute=True))
    [state] = done["written"].pop("states")
    assert done["written"] == {
        "pipeline": "trips", "source": "chk-1", "timeline": "right", "savepoint": "right", "checkpoint": "chk-2",
    }  # fmt: skip
    expected = {"new": 1, "changed": 1, "equal": 0, "deleted": 0, "absent": 0, "rows": 2}
    assert state["uid"] == "buses" and state["counts"].pop("bytes") > 0 and state["counts"] == expected


def test_a_checkpoint_run_names_what_it_completed_or_what_had_covered_it(
    client: Client, made: AirflowDiskPipeline, dag_run: Callable[..., Any]
) -> None:
    made.drive("b2", 1, day=1)
    found = outcome(client, dag_run(2))
    assert (found["kind"], found["completed"], found["covered_by"]) == ("checkpoint", ["chk-2"], None)
    late = outcome(client, dag_run(1))
    assert (late["completed"], late["covered_by"]) == ([], "chk-1")


def test_an_error_of_a_checkpoint_is_stored_too(
    client: Client, made: AirflowDiskPipeline, dag_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise StoreError("the bucket is away", next="try again.")

    monkeypatch.setattr("tidemark.operations.checkpoints.plan", broken)
    found = outcome(client, dag_run(2))
    assert found["state"] != "success"
    assert found["failures"][0]["what"].endswith("the bucket is away")
    assert found["failures"][0]["next"] == "try again."


def test_a_retention_run_says_what_it_released_and_freed(
    client: Client, made: AirflowDiskPipeline, asked: Asked
) -> None:
    opened = made.open_context()
    made.drive("b2", 1, day=1)
    checkpoints.run_once(opened, "trips", PlanRequest(origin="cli"))
    retention.declare_rule(opened, "trips", Retention.keep_last(1))
    before = client("GET", "/pipelines/trips/retention-calendar?sizes=true").json()
    assert (before["dag_id"], before["released"], before["rule"]) == ("retention", ["chk-1"], "keep_last(1)")
    assert before["grace_ms"] == 0, "as the form of the DAG has it"
    run = load_dag("retention").test(run_conf={})
    (swept,) = [one for one in outcome(client, run)["swept"] if one["pipeline"] == "trips"]
    assert swept["released"] == ["chk-1"] and swept["waiting_files"] == 0
    assert swept["deleted_bytes"] == before["freed_bytes"]
    assert client("GET", "/pipelines/trips/restore-plan?checkpoint=1").status_code == 409
    assert "released" in client("GET", "/pipelines/trips/restore-plan?checkpoint=1").json()["what"]


def test_a_redrive_counts_what_the_code_would_apply_and_names_its_request(
    client: Client, made: AirflowDiskPipeline, asked: Asked
) -> None:
    for bus in ("b1", "b2", None, None):
        made.drive(bus, 1, day=1)
    checkpoints.run_once(made.open_context(), "trips", PlanRequest(origin="cli"))
    counts = {"letters": 2, "applied": 0, "refused": {"null_key": 2}}
    dry = outcome(client, asked("redrive", uid="buses", reason="null_key"))
    assert (dry["kind"], dry["skipped"], dry["redrive"]) == ("redrive", ["redrive"], {**counts, "request": None})
    assert outcome(client, asked("redrive", uid="buses", execute=True))["redrive"] == {**counts, "request": 1}
    refused = outcome(client, asked("redrive", uid="buses", reason="nothing", execute=True))
    assert (refused["state"], refused["redrive"]) == ("failed", None)
    assert outcome(client, asked("fork", source="chk-1", name="other"))["redrive"] is None


def test_a_redrive_is_withdrawn_until_a_checkpoint_takes_it_up(
    client: Client, made: AirflowDiskPipeline, asked: Asked
) -> None:
    for bus in ("b1", None):
        made.drive(bus, 1, day=1)
    checkpoints.run_once(made.open_context(), "trips", PlanRequest(origin="cli"))
    below = "/pipelines/trips/dead-letters"
    path, wanted = f"{below}/requests/1/withdrawal", {"json": {"execute": True}}
    assert client("POST", path, "admin", **wanted).status_code == 404
    asked("redrive", uid="buses", execute=True)
    assert client("POST", path, **wanted).status_code == 403
    looked = client("POST", path, "admin", json={"execute": False}).json()
    assert (looked["number"], looked["uid"], looked["letters"], looked["state"]) == (1, "buses", 1, "waiting")
    assert client("POST", path, "admin", **wanted).json() == looked | {"state": "withdrawn"}
    again = client("POST", path, "admin", **wanted)
    assert again.status_code == 409 and "it is withdrawn" in again.json()["what"]
    asked("redrive", uid="buses", execute=True)
    for bus in ("b1", "b2"):
        made.drive(bus, 1, day=2)
    checkpoints.run_once(made.open_context(), "trips", PlanRequest(origin="cli"))
    late = client("POST", path.replace("1", "2"), "admin", **wanted)
    assert late.status_code == 409 and "it is redriven" in late.json()["what"]
    states = [request["state"] for request in client("GET", below).json()["requests"]]
    assert states == ["redriven", "withdrawn"]
    stored = RedriveRequests(made.open_context().coordinator("trips").objects).withdrawal(1)
    assert stored is not None and stored.owner == "ann"


def test_the_owner_of_a_run_is_found_and_that_of_the_command_line_is_nobody(
    client: Client, made: AirflowDiskPipeline, asked: Asked
) -> None:
    run = asked("fork", source="chk-1", name="what-if")
    found = client("GET", "/runs", params={"run_id": run.run_id, "dag_id": "trips"}).json()
    assert found == {"dag_id": "fork", "state": "success", "may_fail": False}
    assert client("GET", "/runs", role="admin", params={"run_id": run.run_id}).json()["may_fail"]
    unknown = {"dag_id": None, "state": None, "may_fail": False}
    assert client("GET", "/runs", params={"run_id": "cli"}).json() == unknown


def test_times_and_rules_reach_the_planners(client: Client, made: AirflowDiskPipeline) -> None:
    below = "/pipelines/trips"
    plan = client("GET", f"{below}/restore-plan", params={"as_of": "2199-01-01T00:00:00Z"}).json()
    assert (plan["checkpoint"], plan["left"]) == ("chk-1", [])
    assert client("GET", f"{below}/restore-plan", params={"as_of": "1999-01-01T00:00:00Z"}).status_code == 404
    assert client("GET", f"{below}/restore-plan", params={"as_of": "2024-01-01T00:00:00"}).status_code == 422, "no zone"
    assert client("GET", f"{below}/restore-plan?checkpoint=1&savepoint=x").status_code == 422
    assert client("GET", f"{below}/backfill-plan", params={"as_of": "2199-01-01T00:00:00Z"}).json()["repeats"] == []
    assert client("GET", f"{below}/retention-calendar?keep=nonsense").status_code == 422
    assert client("GET", f"{below}/retention-calendar?keep=keep_last(1)").json()["is_declared"] is False


def test_a_checkpoint_in_progress_is_aborted_once(client: Client, made: AirflowDiskPipeline) -> None:
    made.drive("b2", 1, day=1)
    opened = made.open_context()
    planned = checkpoints.plan(opened, "trips", PlanRequest(origin="r2"))
    assert planned.name == "chk-2"
    path = "/pipelines/trips/checkpoints/details/2/abort"
    assert client("POST", path, json={"execute": True}).status_code == 403
    looked = client("POST", path, "admin", json={"execute": False}).json()
    assert (looked["checkpoint"], looked["aborted"], looked["offsets"]) == ("chk-2", False, 1)
    assert client("POST", path, "admin", json={"execute": True}).json()["aborted"]
    coordinator = opened.coordinator("trips")
    assert isinstance(coordinator.state(coordinator.timelines.plan(2)), Aborted)
    again = client("POST", path, "admin", json={"execute": True})
    assert again.status_code == 409 and "it is failed" in again.json()["what"]
    completed = client("POST", "/pipelines/trips/checkpoints/details/1/abort", "admin", json={"execute": True})
    assert completed.status_code == 409
    missing = client("POST", "/pipelines/trips/checkpoints/details/99/abort", "admin", json={"execute": True})
    assert missing.status_code == 404


def test_a_body_is_refused_before_it_is_read(client: Client, made: AirflowDiskPipeline) -> None:
    path = "/pipelines/trips/savepoints/kept/disposal"
    sent = {"content": "{broken", "headers": {"Content-Type": "application/json"}}
    assert client("POST", path, None, **sent).status_code == 401, "not 422: the login is checked first"
    read: list[int] = []

    def chunks() -> Any:
        for n in range(30):
            read.append(n)
            yield b"x" * 1_000_000

    large = {"Content-Type": "application/json", "Content-Length": "30000000"}
    assert client("POST", path, "admin", content=chunks(), headers=large).status_code == 413
    assert client("POST", path, None, content=chunks(), headers=large).status_code == 401
    assert client("POST", path, "admin", content="{}", headers={"Content-Type": "text/plain"}).status_code == 415
