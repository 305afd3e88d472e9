"""Pausing and unpausing a pipeline's DAGs, over HTTP: which ones, and when; tests/e2e has the real Airflow."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.cli import Command
from tidemark.cli import airflow_dags
from tidemark.cli.airflow_api import AirflowApi, AirflowError
from tidemark.cli.airflow_dags import PipelineDags, dags_of


class _Airflow(BaseHTTPRequestHandler):
    """Knows two DAGs of a pipeline and how many more times a run of the first is found running."""

    running: ClassVar[int] = 0
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        at = urlsplit(self.path)
        query = parse_qs(at.query)
        path = at.path.removeprefix("/api/v2/")
        if path == "dags":
            assert sorted(query["tags"]) == ["flights", "tidemark"]
            assert query["tags_match_mode"] == ["all"]
            return self._answer({"dags": [{"dag_id": "by month"}, {"dag_id": "flights_compact"}]})
        if path.endswith("/tasks"):
            names = ["compact"] if "compact" in path else ["plan", "fold", "validate", "complete"]
            return self._answer({"tasks": [{"task_id": name} for name in names]})
        assert (path, query["state"]) == ("dags/by%20month/dagRuns", ["running"])
        type(self).running -= 1
        return self._answer({"dag_runs": [{"dag_run_id": "r1"}] if self.running >= 0 else []})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({"access_token": "t"})

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(f"{self.path} {body['is_paused']}")
        self._answer({})

    def _answer(self, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def dags(monkeypatch: pytest.MonkeyPatch) -> Iterator[PipelineDags]:
    monkeypatch.setattr(airflow_dags, "POLL", 0.0)
    _Airflow.running, _Airflow.asked = 0, []
    server = HTTPServer(("127.0.0.1", 0), _Airflow)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    api = AirflowApi(f"http://127.0.0.1:{server.server_port}", "admin", "secret")
    yield PipelineDags(api=api, pipeline="flights")
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_dags_that_make_checkpoints_are_paused_when_their_runs_have_ended(dags: PipelineDags) -> None:
    said: list[str] = []
    _Airflow.running = 3
    assert dags.pause(60, said.append) == ["by month"]
    assert _Airflow.running == -1, "asked until nothing ran"
    assert said == ["waiting for DAG by month to finish r1"]
    assert _Airflow.asked == ["/api/v2/dags/by%20month True"]


def test_a_run_that_does_not_end_leaves_its_dag_unpaused_and_says_what_is_safe(dags: PipelineDags) -> None:
    _Airflow.running = 10**9
    with pytest.raises(AirflowError, match="DAG by month is not paused: r1 did not end") as caught:
        dags.pause(0, lambda _: None)
    assert caught.value.safe == "flights is stopped: no plan is made."
    assert "tidemark stop flights" in caught.value.next
    assert _Airflow.asked == []


def test_they_are_unpaused_without_waiting(dags: PipelineDags) -> None:
    _Airflow.running = 10**9
    assert dags.unpause() == ["by month"]
    assert _Airflow.asked == ["/api/v2/dags/by%20month False"]


def test_an_airflow_that_is_not_up_has_no_dags_to_pause(tmp_path: Any) -> None:
    assert dags_of(Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1").settings, "flights") is None


class _Elsewhere(BaseHTTPRequestHandler):
    """Redirects each request to `/other` of the same server, and keeps what it was sent there."""

    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(f"{self.path} {self.headers['Authorization']}")
        self.send_response(302)
        self.send_header("Location", "/other")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


def test_a_token_follows_no_redirect_and_is_in_no_error() -> None:
    with HTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        api = AirflowApi(f"http://127.0.0.1:{server.server_port}", token="canary")
        with pytest.raises(AirflowError, match="302") as refused:
            api.get("dags")
        server.shutdown()
    assert _Elsewhere.seen == ["/api/v2/dags Bearer canary"]
    assert "canary" not in f"{refused.value!s}{vars(refused.value)}"
    assert "TIDEMARK_AIRFLOW_URL" in refused.value.next
