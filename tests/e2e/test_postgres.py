"""Airflow on PostgreSQL, which is dropped in the middle: checkpoints go on, and so do the pages, from manifests alone.

Airflow comes back with another home as well. So neither its database nor a worker's disk holds anything that counts,
and an executor with workers elsewhere, such as Celery's, needs no more than the warehouse that all of them see.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devstack.control import down, up
from devstack.credentials import ADMIN, load_credentials
from devstack.demo.topic_loader import TopicLoader
from tests.e2e.airflow_pages import AirflowServer
from tests.e2e.conftest import ROOT, Stack
from tests.e2e.test_scheduler import PATIENCE, buses, finished, triggered, trip, unpause
from tests.support.kafka import Topics
from tests.support.postgres import INSTALL, PASSWORD, Postgres, postgres, programs
from tests.support.prerequisites import needs
from tidemark.cli.airflow_api import AirflowApi
from tidemark.context import open_context
from tidemark.operations import reads
from tidemark.settings import load_settings

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(900),
    needs(programs() is not None, f"no PostgreSQL here: {INSTALL}"),
]
TRIPS = [trip(0, "a", 3, 0), trip(1, "b", 5, 0), trip(2, "a", 4, 1), trip(3, "c", 6, 1), trip(4, "b", 1, 2)]
DAYS = ("2024-03-02T00:00:00Z", "2024-03-03T00:00:00Z")


@dataclass(frozen=True)
class SharedServices:
    """What outlives every Airflow: a project, a warehouse, Kafka and Spark."""

    project: Path
    database: Postgres
    broker: str
    spark: str

    @contextmanager
    def airflow(self, home: str) -> Iterator[Stack]:
        """An Airflow on the database, on a disk of its own."""
        settings = load_settings(
            root=self.project,
            home=self.project / home,
            warehouse=self.project / "shared-warehouse",
            pipelines=str(ROOT / "tests/airflow/pipelines"),
            kafka_bootstrap=self.broker,
            spark=self.spark,
            airflow_database=self.database.url("airflow"),
        )
        try:
            up(settings, ["airflow"])
            login = load_credentials(settings.home)
            assert login is not None
            api = AirflowApi(settings.airflow_address, ADMIN, login.airflow_admin_password)
            deadline = time.monotonic() + PATIENCE
            while api.get("dags")["total_entries"] == 0:
                assert time.monotonic() < deadline, "no DAG was found"
                time.sleep(0.5)
            yield Stack(settings, api)
        finally:
            down(settings)


@pytest.fixture
def line(project: Path, broker: str, spark_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedServices]:
    for name in [n for n in os.environ if n.startswith(("TIDEMARK_", "AIRFLOW_", "OTEL_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "include"), str(ROOT)]))
    TopicLoader(broker, "trips", partitions=2).load(TRIPS)
    with postgres() as database:
        database.execute("CREATE DATABASE airflow")
        yield SharedServices(project, database, broker, spark_server)
    # The tests of the scheduler fill a topic of this name anew.
    Topics(broker).delete("trips")


def told(stack: Stack, path: str) -> Any:
    """What a page is told."""
    server = AirflowServer(stack.settings.airflow_address, stack.settings.home)
    login = load_credentials(stack.settings.home)
    assert login is not None
    token = server.ask("POST", "/auth/token", {"username": ADMIN, "password": login.airflow_admin_password})
    return server.ask("GET", f"/tidemark/{path}", token=token["access_token"])


def started_in_the_middle(stack: Stack) -> None:
    """Triggers a run and returns when it has taken its id: its plan is being made, or is under way."""
    stack.api.post("dags/trips/dagRuns", {"dag_run_id": "lost", "logical_date": None, "conf": {"until": DAYS[1]}})
    deadline = time.monotonic() + PATIENCE
    assert isinstance(stack.settings.warehouse, Path)
    ids = stack.settings.warehouse / "trips" / "ids"
    while not any(int(path.stem) == 2 for path in ids.glob("*.json")):
        assert time.monotonic() < deadline, finished(stack, "trips", "lost")
        time.sleep(0.05)


def test_checkpoints_and_pages_go_on_when_airflows_database_and_disk_are_gone(line: SharedServices) -> None:
    with line.airflow("first") as first:
        unpause(first)
        assert triggered(first, "one", {"until": DAYS[0]}) == "success"
        details = told(first, "pipelines/trips/checkpoints/details/1")
        run = told(first, "dags/trips/checkpoints?run_id=one")
        started_in_the_middle(first)
        line.database.execute("DROP DATABASE airflow WITH (FORCE)")
    line.database.execute("CREATE DATABASE airflow")
    with line.airflow("second") as second:
        assert second.api.get("dags/trips/dagRuns")["total_entries"] == 0
        unpause(second)
        assert triggered(second, "again", {"until": DAYS[1]}) == "success"
        assert triggered(second, "rest", {}) == "success"
        context = open_context(second.settings)
        made = list(reversed(reads.list_checkpoints(context, "trips")))
        assert [c.sealed.facts.records for c in made] == [2, 2, 1]
        assert buses(second, made[-1].id) == {"a": (2, 7), "b": (2, 6), "c": (1, 6)}
        assert told(second, "pipelines/trips/checkpoints/details/1") == details | {"next": 2}
        assert told(second, "dags/trips/checkpoints?run_id=one") == run
        history = told(second, "pipelines/trips/checkpoints")
        assert history["counts"]["completed"] == len(made)
        logs = [p for home in (first, second) for p in home.settings.home.rglob("*.log")]
        assert [p.name for p in logs if PASSWORD in p.read_text(errors="replace")] == []
