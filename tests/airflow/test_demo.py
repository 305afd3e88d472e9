"""The demo's parts: an oracle that knows nothing of Tidemark, a comparison that names rows, a patient REST client."""

import ast
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from devstack.demo import oracle as demo_oracle
from devstack.demo.dag_runs import Dag
from devstack.demo.oracle import Oracle, Rows, differences
from tidemark.cli import airflow_api
from tidemark.cli.airflow_api import AirflowApi, AirflowError
from tidemark.errors import TidemarkError

END_OF_YEAR = datetime(2014, 1, 1, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


def test_the_oracle_uses_no_code_of_ours() -> None:
    tree = ast.parse(Path(demo_oracle.__file__).read_text())
    names = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    names += [n.module or "." for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert not [name for name in names if name.startswith((".", "tidemark", "pipelines"))]


def test_the_oracle_knows_the_year(oracle: Oracle) -> None:
    assert oracle.counts(END_OF_YEAR) == (336_776, 2_512)
    assert len(oracle.expected("aircraft", END_OF_YEAR)) == 4_043
    assert sum(row["distance"] for row in oracle.expected("routes", END_OF_YEAR).values()) == 350_217_607


def test_a_cut_at_new_yorks_midnight_leaves_88_flights_that_are_2014_in_utc(oracle: Oracle) -> None:
    in_utc, _ = oracle.counts(datetime(2014, 1, 1, tzinfo=UTC))
    assert 336_776 - in_utc == 88


def test_every_kind_of_difference_is_named() -> None:
    expected: Rows = {("a",): {"n": 1, "m": 2}, ("b",): {"n": 1, "m": 2}}
    assert differences(expected, {("a",): {"n": 1, "m": 2, "_changed": 7}, ("b",): {"n": 1, "m": 2}}) == []
    assert differences(expected, {("a",): {"n": 1, "m": 2}}) == ["b: missing"]
    assert differences({}, expected)[0] == "a: should not be there"
    assert differences(expected, expected | {("b",): {"n": 1, "m": 3}}) == ["b: m is 3, should be 2"]
    assert differences(expected, expected | {("b",): {"n": 1}}) == ["b: m is 'absent', should be 2"]
    many: Rows = {(str(n),): {"n": 0} for n in range(30)}
    assert differences(many, {})[-1] == "… and 20 more"


class _Airflow(BaseHTTPRequestHandler):
    """Answers what it is told to, in order; then 200."""

    answers: list[int] = []
    asked: list[str] = []
    body: dict[str, object] = {}

    def do_GET(self) -> None:
        self._answer(self.answers.pop(0) if self.answers else 200)

    def do_PATCH(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(201)

    def _answer(self, status: int) -> None:
        self.asked.append(f"{self.command} {self.path} {self.headers.get('Authorization')}")
        told = {"access_token": f"t{len(self.asked)}", "detail": "database is locked"} | self.body
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[AirflowApi]:
    monkeypatch.setattr(airflow_api, "PAUSE", 0.01)
    _Airflow.answers, _Airflow.asked, _Airflow.body = [], [], {}
    server = HTTPServer(("127.0.0.1", 0), _Airflow)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield AirflowApi(f"http://127.0.0.1:{server.server_port}", "admin", "secret")
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_locked_database_is_asked_again(api: AirflowApi) -> None:
    _Airflow.answers = [503, 500]
    api.get("dags")
    assert [a.split()[0] for a in _Airflow.asked] == ["POST", "GET", "GET", "GET"]


def test_an_expired_token_is_renewed(api: AirflowApi) -> None:
    _Airflow.answers = [401]
    api.get("dags")
    assert [a.split()[2] for a in _Airflow.asked if a.startswith("GET")] == ["Bearer", "Bearer"]
    assert len({a for a in _Airflow.asked if a.startswith("GET")}) == 2


def test_a_refusal_is_told_with_its_reason_and_never_with_the_password(api: AirflowApi) -> None:
    _Airflow.answers = [409]
    with pytest.raises(AirflowError, match="409") as refused:
        api.get("dags")
    assert refused.value.status == 409
    assert "secret" not in str(refused.value)


def test_an_airflow_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(airflow_api, "PATIENCE", 0.0)
    with pytest.raises(AirflowError, match="did not answer"):
        AirflowApi("http://127.0.0.1:1", "admin", "secret").get("dags")


@pytest.mark.parametrize(
    ("active", "found"), [({"pipeline": "p", "mode": "x", "to": None}, "old"), ({"pipeline": "q"}, "new")]
)
def test_a_run_that_is_under_way_with_the_same_form_is_found_and_not_triggered_again(
    api: AirflowApi, active: dict[str, object], found: str
) -> None:
    _Airflow.body = {"dag_run_id": "new", "dag_runs": [{"dag_run_id": "old", "conf": active}]}
    assert Dag(api=api, id="backfill").trigger({"pipeline": "p", "mode": "x"}) == found
    posted = [asked for asked in _Airflow.asked if asked.startswith("POST /api/v2/dags/backfill/dagRuns")]
    assert len(posted) == (found == "new")


def test_a_failed_run_is_told_with_the_logs_of_the_tasks_that_failed(api: AirflowApi) -> None:
    _Airflow.body = {
        "state": "failed",
        "task_instances": [
            {"task_id": "repeat", "map_index": 1, "state": "failed", "try_number": 2},
            {"task_id": "plan", "map_index": -1, "state": "success", "try_number": 1},
        ],
        "content": [{"event": "the gate refused it"}],
    }
    with pytest.raises(TidemarkError, match="failed in repeat") as told:
        Dag(api=api, id="backfill").succeeded("r 1")
    assert "the gate refused it" in str(told.value)
    assert any("dagRuns/r%201/taskInstances/repeat/logs/2?full_content=True&map_index=1" in a for a in _Airflow.asked)
