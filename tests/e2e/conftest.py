"""The stack, up once for this folder: its own home, ports and project folder; every process is gone afterwards."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.engine.standalone import QUICK_JAVA
from tests.observing.collector import Collector
from tests.observing.statsd import Statsd
from tidemark.cli.airflow_api import AirflowApi
from tidemark.settings import Settings, load_settings
from tidemark.stack.credentials import ADMIN, load_credentials

ROOT = Path(__file__).resolve().parents[2]
UP_WITHIN = 420.0


@dataclass(frozen=True)
class Stack:
    """A running stack."""

    settings: Settings
    api: AirflowApi


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
def stack(project: Path, watchers: Watchers) -> Iterator[Stack]:
    """All services, started and stopped by the command line, as a user would."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TIDEMARK_", "AIRFLOW_"))}
    env |= {
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
    }
    before = dict(os.environ)
    os.environ.update({name: value for name, value in env.items() if name.startswith("TIDEMARK_")})
    try:
        _tidemark(env, "up")
        settings = load_settings()
        login = load_credentials(settings.home)
        assert login is not None
        yield Stack(settings, AirflowApi(settings.airflow_address, ADMIN, login.airflow_admin_password))
    finally:
        ours = _processes(project)
        _tidemark(env, "down")
        left = [process for process in ours if _is_alive(process)]
        for process in left:
            process.kill()
        os.environ.clear()
        os.environ.update(before)
        assert not left, f"down left {[process.info for process in left]}"


def _tidemark(env: dict[str, str], verb: str) -> None:
    command = [sys.executable, "-m", "tidemark.cli.main", verb]
    answer = subprocess.run(command, env=env, capture_output=True, text=True, timeout=UP_WITHIN, check=False)
    assert answer.returncode == 0, f"tidemark {verb}:\n{answer.stdout}\n{answer.stderr}"


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
