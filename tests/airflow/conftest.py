"""Airflow in this process, on a home of its own; imported when the first test asks for it."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from devstack.demo.flights_data import FlightRecord, read_flights
from tests.support.airflow import DAY, AirflowPipeline
from tests.support.airflow_disk import AirflowDiskPipeline

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLUGINS = ROOT / "plugins"
_serial = count(1)

Client = Callable[..., Any]
LogText = Callable[[], str]
Trigger = Callable[..., Any]
ANSWER_OF_CHILD = """
import json, os, sys
variables = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "TIDEMARK_"))}
json.dump({"variables": variables, "command": open("/proc/self/cmdline").read()}, open(sys.argv[-1], "w"))
"""


@pytest.fixture(scope="package")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A fresh metadata database; the environment is put back when the package's tests are over."""
    home = tmp_path_factory.mktemp("airflow")
    assert "airflow" not in sys.modules, "somebody imported airflow before its home was set"
    wanted = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(HERE / "dags"),
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "TIDEMARK_ROOT": str(ROOT),
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    from airflow.utils.db import initdb

    initdb()
    with _synchronised_once(), _schemas_checked_once():
        yield home
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def _synchronised_once() -> Iterator[None]:
    """Once is enough: `DAG.test` parses all DAGs of the folder and writes them to the database, run after run.

    It does so again where a file or a variable has changed.
    """
    from airflow.dag_processing import dagbag
    from airflow.models.dag_version import DagVersion

    parse, write = dagbag.BundleDagBag, dagbag.sync_bag_to_db
    last, bags = dict[str, object](), dict[str, tuple[object, Any]]()

    def bag(dag_folder: Path, *rest: Any, bundle_name: str, **more: Any) -> Any:
        folders = Path(dag_folder), Path(os.environ.get("TIDEMARK_PIPELINES", dag_folder))
        found = (folders, _told(), *map(_written, folders))
        if bundle_name not in bags or bags[bundle_name][0] != found:
            bags[bundle_name] = found, parse(dag_folder, *rest, bundle_name=bundle_name, **more)
        return bags[bundle_name][1]

    def synchronise(bag: Any, name: str, *rest: Any, **more: Any) -> None:
        files = {(dag_id, dag.fileloc, Path(dag.fileloc).stat().st_mtime_ns) for dag_id, dag in bag.dags.items()}
        found = (bag.dag_folder, files, _told())
        # A test may have lost the database.
        if last.get(name) != found or any(DagVersion.get_version(dag_id) is None for dag_id in bag.dags):
            write(bag, name, *rest, **more)
            last[name] = found

    with mock.patch.object(dagbag, "BundleDagBag", bag), mock.patch.object(dagbag, "sync_bag_to_db", synchronise):
        yield


def _told() -> set[tuple[str, str]]:
    """The variables that DAGs may go by. Those of a task's context stay behind in this process, and differ."""
    ours = {name: value for name, value in os.environ.items() if name.startswith(("TIDEMARK_", "AIRFLOW_"))}
    return {(k, v) for k, v in ours.items() if k != "TIDEMARK_HOME" and not k.startswith("AIRFLOW_CTX_")}


def _written(folder: Path) -> set[tuple[Path, int]]:
    return {(path, path.stat().st_mtime_ns) for path in folder.rglob("*.py")}


@contextmanager
def _schemas_checked_once() -> Iterator[None]:
    """Airflow checks the JSON schema of each parameter whenever it compares or writes one; a schema stays valid."""
    from jsonschema import Draft202012Validator

    check, known = Draft202012Validator.check_schema, set[str]()

    def checked(schema: Any, *rest: Any, **more: Any) -> None:
        name = json.dumps(schema, sort_keys=True, default=repr)
        if name not in known:
            check(schema, *rest, **more)
            known.add(name)

    with mock.patch.object(Draft202012Validator, "check_schema", staticmethod(checked)):
        yield


@pytest.fixture(scope="package")
def real_flights() -> list[FlightRecord]:
    """The data set: read once for all who look at it."""
    return read_flights()


@pytest.fixture
def world(airflow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AirflowPipeline:
    """Twins of Kafka and Spark, and a warehouse of its own, behind the tasks' `open_context`."""
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_PIPELINES", str(HERE / "pipelines"))
    monkeypatch.setenv("TIDEMARK_SPARK", "sc://nowhere:1")
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(HERE / "dags"))
    made = AirflowPipeline()
    monkeypatch.setattr("tidemark.context.open_context", made.open_context)
    return made


@pytest.fixture
def trips(airflow_home: Path) -> Any:
    """The DAG under test, as Airflow finds it in its folder."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(HERE / "dags")
    assert bag.import_errors == {}
    return bag.dags["trips"]


@pytest.fixture
def dag_run(trips: Any) -> Callable[..., Any]:
    """`dag_run(day=1)`: a DAG run whose data interval ends `day` days after DAY begins; `day=None` has none."""

    def start(day: int | None = 1, conf: dict[str, Any] | None = None) -> Any:
        # Runs of one interval may be repeated: only the second differs, and the interval is the last one before it.
        later = timedelta(seconds=next(_serial))
        at: datetime | None = None if day is None else DAY + timedelta(days=day) + later
        return trips.test(logical_date=at, run_after=DAY + timedelta(days=400) + later, run_conf=conf)

    return start


def load_dag(dag_id: str) -> Any:
    """A DAG, as Airflow finds it in its folder."""
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(HERE / "dags").dags[dag_id]


@pytest.fixture
def trigger_dag(airflow_home: Path) -> Trigger:
    """`trigger_dag("stop", note="x")`: a run of a DAG with a conf."""
    return lambda dag_id, **conf: load_dag(dag_id).test(run_conf={"pipeline": "trips", **conf})


@pytest.fixture
def trigger_backfill(trips: Any, airflow_home: Path) -> Trigger:
    """Triggers the DAG `backfill` as its form does."""
    dag = load_dag("backfill")

    def start(**conf: Any) -> Any:
        at = DAY + timedelta(days=800, seconds=next(_serial))
        return dag.test(logical_date=None, run_after=at, run_conf={"pipeline": "trips", **conf})

    return start


@pytest.fixture
def log_text(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> LogText:
    """What was logged so far."""
    return lambda: caplog.text + "".join(capfd.readouterr())


@pytest.fixture
def two(world: AirflowPipeline, dag_run: Callable[..., Any]) -> AirflowPipeline:
    """Two checkpoints of the trips."""
    for day in range(2):
        world.drive("a", 1, day=day)
        assert dag_run(day=day + 1).state == "success"
    return world


@pytest.fixture
def child_of_task(
    airflow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], tuple[dict[str, str], str]]:
    """Starts a child as a task does; returns its variables, and its command line with that of the real spark-submit."""
    from tidemark.airflow import spark_jobs as jobs
    from tidemark.engine.session.installation import spark_home

    (tmp_path / "some_child.py").write_text(ANSWER_OF_CHILD)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TIDEMARK_SPARK", "local[2]")
    real = jobs.submit_command
    monkeypatch.setattr(jobs, "submit_command", lambda settings, home: [sys.executable])

    def start() -> tuple[dict[str, str], str]:
        job = jobs.spark_job("some_child", "fold", print)
        answer = job.execute()
        return answer["variables"], answer["command"] + " ".join(real(job._settings, spark_home()))

    return start


@pytest.fixture
def disk(world: AirflowPipeline, monkeypatch: pytest.MonkeyPatch) -> AirflowDiskPipeline:
    """As `world`, with tables that can be read."""
    made = AirflowDiskPipeline()
    monkeypatch.setattr("tidemark.context.open_context", made.open_context)
    return made


@pytest.fixture
def two_days(disk: AirflowDiskPipeline, dag_run: Callable[..., Any]) -> AirflowDiskPipeline:
    """Two checkpoints of two buses, on disk."""
    for day in range(2):
        disk.drive("a", 1, day=day)
        disk.drive("b", 5, day=day)
        assert dag_run(day=day + 1).state == "success"
    return disk


@pytest.fixture
def plugin(airflow_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The package of the plugin, with nothing remembered of other tests."""
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", "admin:admin,ann:viewer")
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "s" * 64)
    import tidemark.airflow.ui.app
    import tidemark.airflow.ui.plugin
    import tidemark.airflow.ui.shared

    tidemark.airflow.ui.shared.shared_context.cache_clear()
    yield tidemark.airflow.ui
    tidemark.airflow.ui.shared.shared_context.cache_clear()


@pytest.fixture
def client(plugin: Any) -> Client:
    """`client("GET", path, role="viewer")`; no role = nobody is logged in."""
    from airflow.api_fastapi.app import init_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    manager = init_auth_manager(FastAPI())
    root = FastAPI()
    root.mount("/tidemark", plugin.app.create_app())
    made = TestClient(root)

    def call(method: str, path: str, role: str | None = "viewer", **more: Any) -> Any:
        token = role and manager.generate_jwt(SimpleAuthManagerUser(username="ann", role=role or None))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return made.request(method, f"/tidemark{path}", headers=headers | more.pop("headers", {}), **more)

    return call
