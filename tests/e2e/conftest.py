"""The stack, up once for this folder: its own home, ports and project folder; every process is gone afterwards.

Tests of the command line and of other Airflows go over its Kafka and Spark before its own Airflow is started.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import psutil
import pytest

from devstack.credentials import ADMIN, load_credentials
from tests.e2e.chromium import Browser
from tests.support.opentelemetry import Collector
from tests.support.s3 import CREDENTIALS
from tests.support.spark_cluster import QUICK_JAVA
from tests.support.statsd import Statsd
from tidemark.cli.airflow_api import AirflowApi
from tidemark.settings import Settings, load_settings

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
UP_WITHIN = 420.0


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need the stack's Airflow come last: its scheduler takes a tenth of a core even when it is idle."""
    items.sort(key=lambda item: HERE in item.path.parents and "stack" in getattr(item, "fixturenames", ()))


@dataclass(frozen=True)
class Stack:
    """A running stack."""

    settings: Settings
    api: AirflowApi


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for pages that follow one another."""
    made = Browser()
    yield made
    made.close()


@pytest.fixture(scope="package")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project folder whose only DAGs are those of the tests; the code is the checkout's."""
    folder = tmp_path_factory.mktemp("project")
    for name in (".jars", "include", "spark_jobs", "plugins", "pyproject.toml"):
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    (folder / "dags").symlink_to(ROOT / "tests" / "e2e" / "dags")
    return folder


@dataclass(frozen=True)
class Watchers:
    """Who watches the stack: receivers of metrics, of spans and of lineage events."""

    statsd: Statsd
    collector: Collector
    lineage: Path


@pytest.fixture(scope="package")
def watchers(project: Path) -> Iterator[Watchers]:
    """Receivers that are there before the stack, and after it."""
    made = Watchers(Statsd(), Collector(), project / "lineage.jsonl")
    yield made
    made.statsd.close()
    made.collector.close()


@pytest.fixture(scope="package")
def variables(project: Path, watchers: Watchers) -> dict[str, str]:
    """The environment of all services."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TIDEMARK_", "AIRFLOW_"))}
    return env | CREDENTIALS | {
        "TIDEMARK_ROOT": str(project),
        "TIDEMARK_HOME": str(project / "home"),
        "TIDEMARK_PIPELINES": str(ROOT / "tests" / "airflow" / "pipelines"),
        "TIDEMARK_SPARK_JAVA_OPTIONS": QUICK_JAVA,
        "TIDEMARK_STATSD": watchers.statsd.address,
        "TIDEMARK_OPENLINEAGE": f"file:{watchers.lineage}",
        "TIDEMARK_CHECKPOINT_DEADLINE": "1000w",
        "AIRFLOW__METRICS__OTEL_ON": "True",
        "AIRFLOW__TRACES__OTEL_ON": "True",
        "OTEL_TRACES_EXPORTER": "otlp_proto_http",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{watchers.collector.port}",
        # DAGs and pipelines of the tests import each other from the checkout.
        "PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT)]),
    }  # fmt: skip


@pytest.fixture(scope="package")
def services(project: Path, variables: dict[str, str]) -> Iterator[Settings]:
    """Kafka and Spark, started and stopped by the command line, as a user would; Airflow may follow."""
    try:
        _tidemark(variables, "up", "--only", "kafka,spark")
        with mock.patch.dict(os.environ, variables, clear=True):
            settings = load_settings()
        yield settings
    finally:
        ours = _processes(project)
        _tidemark(variables, "down")
        left = [process for process in ours if _is_alive(process)]
        for process in left:
            process.kill()
        assert not left, f"down left {[process.info for process in left]}"


@pytest.fixture(scope="package")
def broker(services: Settings) -> str:
    """Bootstrap address of the stack's broker: no other one is started for this folder."""
    return services.kafka_address


@pytest.fixture(scope="package")
def spark_server(services: Settings) -> str:
    """Address of the stack's Spark: no other one is started for this folder."""
    return services.spark_address


@pytest.fixture(scope="package")
def stack(services: Settings, variables: dict[str, str]) -> Iterator[Stack]:
    """All services: `tidemark up` starts what does not run yet."""
    before = dict(os.environ)
    os.environ.update({name: value for name, value in variables.items() if name.startswith("TIDEMARK_")})
    try:
        _tidemark(variables, "up")
        login = load_credentials(services.home)
        assert login is not None
        yield Stack(services, AirflowApi(services.airflow_address, ADMIN, login.airflow_admin_password))
    finally:
        os.environ.clear()
        os.environ.update(before)


def _tidemark(env: dict[str, str], *arguments: str) -> None:
    command = [sys.executable, "-m", "tidemark.cli.main", *arguments]
    answer = subprocess.run(command, env=env, capture_output=True, text=True, timeout=UP_WITHIN, check=False)
    assert answer.returncode == 0, f"tidemark {arguments}:\n{answer.stdout}\n{answer.stderr}"


def _processes(project: Path) -> list[psutil.Process]:
    """The processes whose environment names this home, without services that a test has started by itself."""
    found, own = [], {child.pid for child in psutil.Process().children(recursive=True)}
    for process in psutil.process_iter(["pid", "name", "cmdline"]):
        try:
            if process.environ().get("TIDEMARK_HOME") == str(project / "home"):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return [process for process in found if process.pid not in {os.getpid(), *own}]


def _is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
