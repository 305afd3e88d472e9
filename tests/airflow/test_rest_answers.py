"""The bodies of all REST answers as they were recorded: fields, their order and types, and the OpenAPI schema of each.

Delete `rest_answers.json` and run this file to record them again.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.conftest import Client
from tests.airflow.pipelines.trips import trips
from tests.support.airflow_disk import AirflowDiskPipeline
from tidemark.coordinator.records.states import OpenPlan
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.store_objects import Failure
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import checkpoints, savepoints, timelines
from tidemark.ports import PlanRequest

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
RECORDED = Path(__file__).with_name("rest_answers.json")
ONE = "checkpoints/details"
PATHS = (
    "checkpoints", "checkpoints/config", "checkpoints/series", f"{ONE}/1", f"{ONE}/2", f"{ONE}/3", f"{ONE}/4",
    f"{ONE}/1/subtasks/buses", f"{ONE}/1/subtasks/buses/due",
    "checkpoints/lineage/1", "checkpoints/lineage/3", "checkpoints/lineage/4",
    "lineage/columns", "lineage/columns?column=buses.miles&checkpoint=1",
    f"{ONE}/1/records", f"{ONE}/1/records?uid=buses&key=b1&limit=1", f"{ONE}/1/dead-letters?uid=buses",
    f"{ONE}/1/rejections",
    "timelines",
    "publications", "dead-letters", "dead-letters/buses", "event-time", "backlog",
    "savepoints", "savepoints/kept/disposal", "savepoints/alone/disposal",
    "restore-plan?checkpoint=1",
    "restore-plan?savepoint=kept", "backfill-plan?checkpoint=1", "backfill-plan?savepoint=kept", "retention-plan",
    "states?checkpoint=1", "states?savepoint=kept",
    "retention-calendar", "retention-calendar?keep=keep_last(1)&sizes=true", "actions",
    "state/buses/origin?key=b1", "compare", "compare?left=chk-1&right=kept&limit=1", "checkpoints/details/99",
    "restore-plan", "sinks/none/origin?checkpoint=1",
)  # fmt: skip


def story(disk: AirflowDiskPipeline) -> None:
    """Two checkpoints with a dead letter, two savepoints, a failed checkpoint, an open plan."""
    opened = disk.open_context()
    for bus, miles, day in (("b1", 3, 0), ("b2", 5, 0), (None, 1, 0)):
        disk.drive(bus, miles, day)
    checkpoints.run_once(opened, "trips", PlanRequest(origin="r1"))
    for name, checkpoint in (("kept", 1), ("alone", 1)):
        request = SavepointRequest(name=name, owner="me", origin="trips r1", checkpoint=checkpoint)
        savepoints.open_savepoints(opened, "trips").create(request)
    disk.drive("b1", 4, day=1)
    checkpoints.run_once(opened, "trips", PlanRequest(origin="r2"))
    disk.drive("b1", 2, day=2)
    coordinator = opened.coordinator("trips")
    failure = Failure(reason=FailureReason.ENGINE_ERROR, message="Spark failed", next="run it again.")
    found = coordinator.trigger(trips, PlanRequest(origin="r3"))
    assert isinstance(found, OpenPlan)
    coordinator.abort(found.plan, failure)
    coordinator.trigger(trips, PlanRequest(origin="r4"))


def shape(value: Any) -> Any:
    """A body with the type of each value in its place."""
    if isinstance(value, dict):
        return {name: shape(v) for name, v in value.items()}
    if isinstance(value, list):
        return [shape(v) for v in value]
    return type(value).__name__


def schemas(app: Any) -> dict[str, Any]:
    """Per route the OpenAPI schema of its answer, without references, titles and descriptions."""
    whole = app.openapi()

    def resolved(found: Any) -> Any:
        if isinstance(found, list):
            return [resolved(v) for v in found]
        if not isinstance(found, dict):
            return found
        if "$ref" in found:
            return resolved(whole["components"]["schemas"][found["$ref"].rpartition("/")[2]])
        names = {name: resolved(v) for name, v in found.get("properties", {}).items()}
        rest = {k: resolved(v) for k, v in found.items() if k not in ("properties", "title", "description")}
        return {**rest, "properties": names} if names else rest

    return {
        f"{method.upper()} {path}": resolved(route["responses"]["200"].get("content", {}).get("application/json"))
        for path, methods in whole["paths"].items()
        for method, route in methods.items()
    }


def test_the_bodies_of_all_answers_are_those_that_were_recorded(
    plugin: Any, client: Client, disk: AirflowDiskPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The recorded pipeline has no DAG; tests that ran before in this process may have stored one.
    monkeypatch.setattr("tidemark.airflow.ui.dags.dags_of", lambda pipeline, session: [])
    monkeypatch.setattr("tidemark.airflow.ui.action_dags.find_dags", lambda pipeline, session: [])
    story(disk)
    found: dict[str, Any] = {path: shape(client("GET", f"/pipelines/trips/{path}", "admin").json()) for path in PATHS}
    found["pipelines"] = shape(client("GET", "/pipelines").json())
    found["run"] = shape(client("GET", "/dags/other/checkpoints?run_id=r1", role="admin").json())
    send = client("POST", "/pipelines/trips/savepoints/alone/disposal", "admin", json={"execute": True})
    found["disposed"] = shape(send.json())
    timelines.restore(disk.open_context(), "trips", RestoreRequest(savepoint="kept", request="r5", claim=True))
    for path in ("checkpoints", "timelines", "savepoints?disposed=true"):
        found[f"restored {path}"] = shape(client("GET", f"/pipelines/trips/{path}").json())
    found |= schemas(plugin.app.create_app())
    if not RECORDED.exists():
        lines = (f"{json.dumps(name)}: {json.dumps(body)}" for name, body in found.items())
        RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    recorded = json.loads(RECORDED.read_text())
    assert list(found) == list(recorded)
    different = {name: body for name, body in found.items() if json.dumps(body) != json.dumps(recorded[name])}
    assert different == {}
