"""The plugin's routes with Airflow's real auth manager and database: who gets in, what is capped, what is answered."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from tests.airflow.conftest import PLUGINS, Client
from tests.support.airflow_disk import AirflowDiskPipeline
from tidemark.airflow.ui.bundle import STATIC, VERSION, join_modules
from tidemark.answers.row_sources import RowOrigin, ShownText
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import checkpoints, savepoints
from tidemark.ports import PlanRequest
from tidemark.web import history_cache, retention_calendar

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
HOSTILE = "<script>alert('1')</script>\u202e\"" + "x" * 200
SAMPLE = {
    "pipeline": "trips", "checkpoint": "1", "uid": "buses", "name": "kept", "dag_id": "trips",
    "publication": "nothing", "version": "0123456789ab", "number": "1",
}  # fmt: skip
QUERIES = {
    "sinks": {"checkpoint": 1},
    "origin": {"key": "b1"},
    "dead-letters": {"uid": "buses"},
    "dags": {"run_id": "r1"},
    "/runs": {"run_id": "r1"},
    "restore-plan": {"savepoint": "kept"},
    "backfill-plan": {"savepoint": "kept"},
    "states": {"savepoint": "kept"},
    "compare": {"left": "chk-1"},
}
"""What a route needs, by a part of its path."""
BELOW = "/pipelines/{pipeline}"
DETAILS = f"{BELOW}/checkpoints/details/{{checkpoint}}"
PAYLOADS = {
    f"{DETAILS}/records", f"{DETAILS}/dead-letters", f"{BELOW}/state/{{uid}}/origin", f"{BELOW}/sinks/{{name}}/origin",
    f"{BELOW}/dead-letters/{{uid}}",
}  # fmt: skip
"""Routes that answer with records, dead letters, or rows of states and sinks."""
LEFT_OUT = {f"{DETAILS}/subtasks/{{uid}}/due", f"{BELOW}/compare"}
"""Routes that leave payloads out of their answer for users who may not see them."""
PLAIN = {
    "/static/{name}", "/static/{version}/{name}", "/pipelines", f"{BELOW}/checkpoints",
    f"{BELOW}/checkpoints/config",
    f"{BELOW}/checkpoints/series",
    DETAILS, f"{DETAILS}/subtasks/{{uid}}", f"{DETAILS}/rejections", f"{BELOW}/checkpoints/lineage/{{checkpoint}}",
    f"{BELOW}/timelines", f"{BELOW}/publications", f"{BELOW}/dead-letters", f"{BELOW}/savepoints",
    f"{BELOW}/savepoints/{{name}}/disposal", f"{BELOW}/restore-plan", f"{BELOW}/backfill-plan",
    f"{BELOW}/retention-plan", "/dags/{dag_id}/checkpoints", "/verdicts", f"{BELOW}/lineage/columns",
    f"{BELOW}/retention-calendar", f"{BELOW}/actions", f"{BELOW}/checkpoints/details/{{checkpoint}}/abort",
    "/dags/{dag_id}/outcome", "/runs", f"{BELOW}/publications/{{publication}}",
    f"{BELOW}/event-time", f"{BELOW}/backlog",
    f"{BELOW}/states", f"{BELOW}/dead-letters/requests/{{number}}/withdrawal",
}  # fmt: skip
"""Routes whose answers hold no records, rows or keys."""
SEEN_BY = {
    "trigger": {"viewer": False, "user": True, "admin": True},
    "read": {"viewer": True, "user": True, "admin": True},
    "nobody": {"viewer": False, "user": False, "admin": False},
}
"""By the value of TIDEMARK_PAYLOADS, the roles that see payloads."""


@pytest.fixture
def filled(disk: AirflowDiskPipeline) -> AirflowDiskPipeline:
    """A checkpoint, and a savepoint of it, with hostile names wherever names are free."""
    disk.drive("b1", 3)
    disk.drive(HOSTILE, 5)
    opened = disk.open_context()
    checkpoints.run_once(opened, "trips", PlanRequest(origin=HOSTILE))
    request = SavepointRequest(name="kept", owner=HOSTILE, origin="test", checkpoint=1, note=HOSTILE)
    savepoints.open_savepoints(opened, "trips").create(request)
    return disk


def leaves(app: Any, below: str = "") -> Iterator[tuple[str, str, Any]]:
    """Every route of an application with its method and path, those below mounts too."""
    from fastapi.routing import APIRoute

    for route in app.routes:
        if isinstance(route, APIRoute):
            yield from ((method, below + route.path, route) for method in sorted(route.methods))
        elif getattr(route, "routes", None):
            yield from leaves(route, below + route.path)
        else:
            yield "GET", below + getattr(route, "path", "?"), route


def asked(method: str, path: str) -> dict[str, Any]:
    """What a call of a route has beside its path."""
    query = next((query for part, query in QUERIES.items() if part in path), {})
    return {"params": query} | ({"json": {"execute": False}} if method == "POST" else {})


def unguarded(app: Any, send: Client) -> list[str]:
    """Routes that answer somebody who is not logged in with anything but 401."""
    found = []
    for method, path, _ in leaves(app):
        answer = send(method, path.format(**SAMPLE), role=None, **asked(method, path))
        if answer.status_code != 401:
            found.append(f"{method} {path}: {answer.status_code}")
    return found


def test_every_route_refuses_who_is_not_logged_in(plugin: Any, client: Client, filled: AirflowDiskPipeline) -> None:
    app = plugin.app.create_app()
    assert len(list(leaves(app))) >= 15
    assert unguarded(app, client) == []


def test_an_unguarded_route_and_an_unguarded_mount_are_found(plugin: Any, tmp_path: Path) -> None:
    from fastapi import FastAPI
    from fastapi.staticfiles import StaticFiles
    from fastapi.testclient import TestClient

    (tmp_path / "page.js").write_text("1")
    app = plugin.app.create_app()
    bare = FastAPI(openapi_url=None)
    bare.add_api_route("/hello", lambda: "hello")
    app.mount("/more", bare)
    app.mount("/files", StaticFiles(directory=tmp_path))
    made = TestClient(app)

    def send(method: str, path: str, role: str | None, **more: Any) -> Any:
        return made.request(method, path, **more)

    assert [found.split(":")[0] for found in unguarded(app, send)] == ["GET /more/hello", "GET /files"]


def test_a_viewer_reads_everything_but_payloads_and_changes_nothing(
    plugin: Any, client: Client, filled: AirflowDiskPipeline
) -> None:
    for method, path, _ in leaves(plugin.app.create_app()):
        answer = client(method, path.format(**SAMPLE), **asked(method, path))
        nothing = path.startswith("/static") or path.endswith(("/outcome", "/{publication}"))
        expected = 403 if method == "POST" or path in PAYLOADS else 404 if nothing else 200
        if path.endswith("/due"):
            expected = 422  # the operator has neither windows nor timers
        assert answer.status_code == expected, f"{method} {path}: {answer.text}"


def has_payloads(kind: Any) -> bool:
    """Whether a type of an answer holds bytes of records, or rows of any columns, at any depth."""
    if kind in (ShownText, Any):
        return True
    parts = [*get_args(kind), *(get_type_hints(kind).values() if is_dataclass(kind) else ())]
    return any(has_payloads(part) for part in parts)


def needs(dependant: Any, call: Any) -> bool:
    """Whether a route depends on a function, directly or not."""
    return any(found.call is call or needs(found, call) for found in dependant.dependencies)


def forgotten(plugin: Any, app: Any) -> list[str]:
    """Routes that are not listed above, and those that do not ask for the right that their answer needs."""
    found = []
    for method, path, route in leaves(app):
        if path not in PAYLOADS | LEFT_OUT | PLAIN:
            found.append(f"{method} {path}: has it records, rows or keys? Take its pipeline as Payloads; list it here.")
        if needs(route.dependant, plugin.access.with_payloads) != (path in PAYLOADS):
            found.append(f"{method} {path}: its pipeline is Payloads if, and only if, it answers with payloads.")
        if needs(route.dependant, plugin.access.sees_payloads) != (path in PAYLOADS | LEFT_OUT):
            found.append(f"{method} {path}: asks whether payloads are seen, or does not.")
        if has_payloads(get_type_hints(route.endpoint)["return"]) and path not in PAYLOADS | LEFT_OUT:
            found.append(f"{method} {path}: its answer has a type that holds payloads.")
    return found


def test_every_route_with_payloads_asks_for_the_right_to_see_them(plugin: Any) -> None:
    assert forgotten(plugin, plugin.app.create_app()) == []


def test_a_route_with_payloads_that_does_not_ask_is_found(plugin: Any) -> None:
    from tidemark.airflow.ui.access import Readable

    app = plugin.app.create_app()

    def newest(pipeline: Readable) -> RowOrigin:
        raise NotImplementedError

    app.add_api_route("/pipelines/{pipeline}/newest-rows", newest)
    assert [found.split(":")[0] for found in forgotten(plugin, app)] == ["GET /pipelines/{pipeline}/newest-rows"] * 2


@pytest.mark.parametrize("setting", SEEN_BY)
@pytest.mark.parametrize("role", ["viewer", "user", "admin"])
def test_payloads_are_seen_by_permission(
    plugin: Any,
    client: Client,
    filled: AirflowDiskPipeline,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    role: str,
) -> None:
    monkeypatch.setenv("TIDEMARK_PAYLOADS", setting)
    plugin.shared.shared_context.cache_clear()
    seen = SEEN_BY[setting][role]
    for path in sorted(PAYLOADS):
        answer = client("GET", path.format(**SAMPLE), role, **asked("GET", path))
        expected = 403 if not seen else 404 if "/sinks/" in path else 200  # the pipeline has no sink
        assert answer.status_code == expected, f"{path}: {answer.text}"
        if not seen:
            body = answer.json()
            assert set(body) == {"error", "what", "safe", "next"} and all(body.values())
            assert "trips" in body["what"] and ("trigger" in body["next"]) == (setting == "trigger")
            assert "b1" not in answer.text
    for path in (
        "/pipelines/trips/checkpoints",
        "/pipelines/trips/checkpoints/details/1",
        "/pipelines/trips/dead-letters",
    ):
        assert client("GET", path, role).status_code == 200
    [facts] = client("GET", "/pipelines", role).json()
    assert facts["may_see_payloads"] is seen


def test_a_comparison_has_counts_for_users_who_may_not_see_rows(client: Client, filled: AirflowDiskPipeline) -> None:
    filled.drive("b1", 2)
    checkpoints.run_once(filled.open_context(), "trips", PlanRequest(origin="twice"))
    asked = {"params": {"left": "chk-1"}}
    bodies = [client("GET", "/pipelines/trips/compare", role, **asked).json() for role in ("user", "viewer")]
    seen, hidden = [body["operators"] for body in bodies]
    assert [row["key"]["bus"] for operator in seen for row in operator["rows"]] == ["b1"]
    assert all(operator["rows"] == [] for operator in hidden)
    assert all(column["sum"] is column["largest"] is None for operator in hidden for column in operator["columns"])
    counts = ("uid", "inserted", "changed", "deleted", "equal")
    assert [[o[name] for name in counts] for o in hidden] == [[o[name] for name in counts] for o in seen]


def test_payloads_of_an_unknown_pipeline_are_not_found_and_those_of_a_hidden_one_forbidden(
    client: Client, filled: AirflowDiskPipeline
) -> None:
    for path in sorted(PAYLOADS):
        unknown = path.format(**SAMPLE | {"pipeline": "unknown"})
        assert client("GET", unknown, "admin", **asked("GET", path)).status_code == 404, path
        assert client("GET", path.format(**SAMPLE), role=None, **asked("GET", path)).status_code == 401, path


def test_who_has_no_role_sees_no_pipeline(client: Client, filled: AirflowDiskPipeline) -> None:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="nobody", role=None))
    bearer = {"Authorization": f"Bearer {token}"}
    assert client("GET", "/pipelines", role=None, headers=bearer).json() == []
    assert client("GET", "/pipelines/trips/checkpoints", role=None, headers=bearer).status_code == 403


def test_nothing_tells_what_the_routes_are(client: Client) -> None:
    for path in ("/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect", "/", "/static/../plugin.py"):
        assert client("GET", path, role="admin").status_code in (404, 405), path


def test_names_that_nobody_knows_are_not_found(client: Client, filled: AirflowDiskPipeline) -> None:
    for path in (
        "/pipelines/nobody/checkpoints",
        "/pipelines/%2e%2e/checkpoints",
        "/pipelines/trips%00/checkpoints",
        "/pipelines/trips/checkpoints/details/99",
        "/pipelines/trips/checkpoints/lineage/99",
        "/pipelines/trips/checkpoints/details/1/subtasks/nothing",
        "/pipelines/trips/savepoints/nothing/disposal",
        "/pipelines/trips/state/nothing/origin?key=b1",
        "/pipelines/trips/state/buses/origin?key=nobody",
        "/pipelines/trips/checkpoints/details/99/records",
        "/pipelines/trips/checkpoints/details/1/records?uid=nothing",
        "/pipelines/trips/checkpoints/details/1/records?partition=secrets-0",
        "/pipelines/trips/checkpoints/details/1/dead-letters?uid=nothing",
        "/pipelines/trips/sinks/nothing/origin?checkpoint=1",
        "/pipelines/nobody/compare",
        "/pipelines/trips/compare",
        "/pipelines/trips/compare?left=nothing",
        "/pipelines/trips/states?checkpoint=99",
        "/pipelines/trips/compare?left=%3Cscript%3E",
        "/pipelines/trips/compare?left=chk-1&right=chk-9",
        "/pipelines/trips/compare?left=chk-1&uid=nothing",
        "/static/nothing.js",
        "/static/0123456789ab/nothing.js",
    ):
        assert client("GET", path, role="admin").status_code == 404, path


def test_browsers_keep_the_bundle_below_its_version_only(client: Client) -> None:
    plain = client("GET", "/static/page.js", role="viewer")
    kept = client("GET", f"/static/{VERSION}/page.js", role="viewer")
    other = client("GET", "/static/0123456789ab/page.js", role="viewer")
    assert plain.text == (STATIC / "page.js").read_text()
    assert kept.text == other.text == join_modules(STATIC / "page.js")
    assert kept.headers["content-type"] == plain.headers["content-type"] == "text/javascript; charset=utf-8"
    icons = [client("GET", f"/static/{below}icon.svg", role="viewer") for below in ("", f"{VERSION}/")]
    assert icons[0].content == icons[1].content == (STATIC / "icon.svg").read_bytes()
    found = [answer.headers["cache-control"] for answer in (plain, other, kept)]
    assert found == ["no-cache", "no-cache", "private, max-age=31536000, immutable"]


def test_sizes_and_pages_are_capped(client: Client, filled: AirflowDiskPipeline) -> None:
    below = "/pipelines/trips"
    for path in (
        f"{below}/checkpoints?limit=101",
        f"{below}/checkpoints?offset=1000001",
        f"{below}/checkpoints?unknown=1",
        f"{below}/checkpoints?text={'x' * 251}",
        f"{below}/checkpoints/series?last=1001",
        f"{below}/state/buses/origin",
        f"{below}/state/buses/origin?key={'x' * 1001}",
        f"{below}/state/buses/origin?{'&'.join(['key=x'] * 17)}",
        f"{below}/restore-plan",
        f"{below}/backfill-plan",
        f"{below}/states",
        f"{below}/checkpoints/details/1/records?limit=101",
        f"{below}/checkpoints/details/1/records?topic=other",
        f"{below}/checkpoints/details/1/records?partition=trips-0&start=0&end=99",
        f"{below}/checkpoints/details/1/records?start=0",
        f"{below}/checkpoints/details/1/records?key=b1",
        f"{below}/checkpoints/details/1/records?after=trips-0:x",
        f"{below}/checkpoints/details/1/dead-letters",
        f"{below}/checkpoints/details/1/dead-letters?uid=buses&limit=101",
        f"{below}/sinks/kept/origin",
        f"{below}/compare?left=chk-1&limit=101",
        f"{below}/compare?left={'x' * 81}",
        f"{below}/compare?left=chk-1&more=1",
        f"{below}/sinks/kept/origin?checkpoint=1&where=nothing",
    ):
        assert client("GET", path, role="admin").status_code == 422, path


def test_only_json_of_a_known_size_changes_anything(client: Client, filled: AirflowDiskPipeline) -> None:
    path = "/pipelines/trips/savepoints/kept/disposal"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert client("POST", path, "admin", content="execute=true", headers=form).status_code == 415
    assert (
        client("POST", path, "admin", content='{"execute":true}', headers={"Content-Type": "text/plain"}).status_code
        == 415
    )
    assert client("POST", path, "admin", json={"execute": True, "x": "y" * 70_000}).status_code == 413
    chunks = {"content": iter([b'{"execute":true}']), "headers": {"Content-Type": "application/json"}}
    assert client("POST", path, "admin", **chunks).status_code == 411
    assert client("POST", path, "admin", json={"execute": True, "more": 1}).status_code == 422
    assert client("POST", path, "admin", json={"execute": "yes please"}).status_code == 422
    assert not savepoints.open_savepoints(filled.open_context(), "trips").get("kept").disposed
    assert client("POST", path, "admin", json={"execute": False}).json()["disposed"] is False
    assert client("POST", path, "admin", json={"execute": True}).json()["disposed"] is True
    assert client("POST", path, "admin", json={"execute": True}).status_code == 404


def test_a_run_is_told_what_it_made_and_the_pipeline_its_dag(
    client: Client, disk: AirflowDiskPipeline, dag_run: Callable[..., Any]
) -> None:
    disk.drive("b1", 3)
    run = dag_run(1)
    assert run.state == "success"
    [told] = client("GET", "/dags/trips/checkpoints", params={"run_id": run.run_id}).json()
    assert told == {"pipeline": "trips", "checkpoints": [1], "timelines": [], "savepoints": []}
    [facts] = client("GET", "/pipelines").json()
    assert (facts["name"], facts["dag_id"], facts["may_trigger"]) == ("trips", "trips", False)
    [facts] = client("GET", "/pipelines", role="admin").json()
    assert facts["may_trigger"]
    config = client("GET", "/pipelines/trips/checkpoints/config").json()
    assert (config["tolerable_failed_checkpoints"], config["retries"]) == (2, 2)
    assert config["timeout"] > 0
    assert (config["interval"], config["next_run"]) == (facts["interval"], facts["next_run"])
    assert (config["min_pause"], config["deadline"]) == (0, None)


def test_the_answers_are_the_same_when_the_database_of_airflow_was_lost(
    client: Client, plugin: Any, disk: AirflowDiskPipeline, dag_run: Callable[..., Any]
) -> None:
    """Lost, and made anew; then a new API server, and the DAGs are parsed and run again."""
    from airflow.utils.db import resetdb

    disk.drive("b1", 3)
    run = dag_run(1).run_id
    disk.drive("b2", 4, day=1)
    checkpoints.run_once(disk.open_context(), "trips", PlanRequest(origin="cli"))
    request = SavepointRequest(name="kept", owner="me", origin="test", checkpoint=1)
    savepoints.open_savepoints(disk.open_context(), "trips").create(request)
    parts = ("", "/series", "/details/1", "/details/2", "/lineage/1", "/lineage/2")
    below = [*(f"checkpoints{part}" for part in parts), "timelines", "savepoints", "state/buses/origin?key=b1"]

    def answers() -> list[Any]:
        found = [client("GET", f"/pipelines/trips/{path}", "admin") for path in below]
        assert {answer.status_code for answer in found} == {200}
        told = [answer.json() for answer in found]
        del told[0]["verdict"]  # it follows the schedule of the DAG
        told[0]["health"] = {name: told[0]["health"][name] for name in ("live", "newest", "lag", "failures_in_row")}
        return told

    before = answers()
    resetdb()
    plugin.shared.shared_context.cache_clear()
    assert client("GET", "/pipelines").json()[0]["dag_id"] is None, "Airflow knows nothing any more"
    assert answers() == before
    assert [line["origin"] for line in before[0]["history"]] == ["cli", run]
    assert client("GET", "/dags/another/checkpoints", params={"run_id": "cli"}).json()[0]["checkpoints"] == [2]
    disk.drive("b1", 5, day=2)
    assert dag_run(3).state == "success"
    assert client("GET", "/pipelines").json()[0]["dag_id"] == "trips"
    assert [line["id"] for line in client("GET", "/pipelines/trips/checkpoints").json()["history"]] == [3, 2, 1]


def test_hostile_names_are_data_in_json_that_no_browser_takes_for_a_page(
    client: Client, filled: AirflowDiskPipeline
) -> None:
    answer = client("GET", "/pipelines/trips/savepoints")
    assert answer.json()[0]["note"] == answer.json()[0]["owner"] == HOSTILE
    row = client("GET", "/pipelines/trips/state/buses/origin", "admin", params={"key": HOSTILE}).json()
    assert row["row"]["bus"] == HOSTILE
    records = client("GET", "/pipelines/trips/checkpoints/details/1/records?after=trips-0:1", "admin")
    [record] = records.json()["records"]
    assert "<script>" in record["value"]["text"] and "\u202e" not in record["value"]["text"]
    assert answer.headers["content-type"] == "application/json"
    assert client("GET", "/pipelines/trips/checkpoints").json()["history"][0]["origin"] == HOSTILE
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_the_bundle_is_served_as_modules(client: Client, plugin: Any) -> None:
    for app in plugin.plugin.TidemarkPlugin.react_apps:
        answer = client("GET", "/" + app["bundle_url"].partition("/")[2])
        assert answer.headers["content-type"].startswith("text/javascript")
        assert f"globalThis.{app['name']} = " in answer.text
        for name in {"icon", "icon_dark_mode"} & app.keys():
            answer = client("GET", "/" + app[name].partition("/")[2])
            assert answer.headers["content-type"] == "image/svg+xml" and answer.text.startswith("<svg")


def test_airflow_finds_one_plugin_and_imports_none_of_its_parts_alone(
    plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed Tidemark registers by its entry point, and one that is only on the path by the folder's loader."""
    from airflow import plugins_manager
    from airflow._shared.plugins_manager.plugins_manager import _load_plugins_from_plugin_directory

    def in_folder() -> list[str | None]:
        found, errors = _load_plugins_from_plugin_directory(str(PLUGINS), ignore_file_syntax="glob")
        assert errors == {}
        return [p.name for p in found]

    installed, errors = getattr(plugins_manager, "_load_entrypoint_plugins")()  # noqa: B009  (not exported)
    assert (errors, [p.name for p in installed if p.name == "tidemark"]) == ({}, ["tidemark"])
    assert in_folder() == [], "Airflow would report that it is registered twice"
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: ())
    assert in_folder() == ["tidemark"]
    assert "routes" not in sys.modules


@pytest.mark.parametrize(
    ("path", "query", "read"),
    [("checkpoints", {"limit": 0}, [1, 1, 3, 4]), ("retention-calendar", {}, [1, 2, 4, 4])],
)
def test_an_answer_reads_on_unless_it_is_asked_not_to(
    client: Client,
    filled: AirflowDiskPipeline,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    query: dict[str, int],
    read: list[int],
) -> None:
    for day in range(3):
        filled.drive("b1", 1, day=day)
        checkpoints.run_once(filled.open_context(), "trips", PlanRequest(origin="test"))
    for name, size in {"PORTION": 2, "FIRST_PORTION": 1, "PART": 1}.items():
        monkeypatch.setattr(history_cache, name, size)
    monkeypatch.setattr(retention_calendar, "FEW", 1)
    queries = [{"more": False} | query, {"more": False} | query, query, query]
    found = [client("GET", f"/pipelines/trips/{path}", params=one).json()["indexed"] for one in queries]
    assert found == [{"read": number, "of": 4} for number in read]
