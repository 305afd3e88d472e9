"""A separate stack for the measurement: all services, and a project folder that holds only the measured DAGs."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from devstack import control
from devstack.credentials import ADMIN, load_credentials
from tidemark.cli.airflow_api import AirflowApi
from tidemark.settings import Settings, load_settings

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
LINKED = (".jars", "include", "spark_jobs", "plugins", "pyproject.toml")


@contextmanager
def warm_stack() -> Iterator[tuple[Settings, AirflowApi]]:
    """Starts a stack, yields its settings and Airflow client, and removes it with everything that it has written."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith(("TIDEMARK_", "AIRFLOW_"))]:
        del os.environ[name]
    # DAGs, tasks and this process import the pipelines from the checkout.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "include"), str(ROOT)])
    with tempfile.TemporaryDirectory(prefix="tidemark-latency-") as folder:
        settings = load_settings(root=_project(Path(folder)), home=f"{folder}/home", pipelines=str(HERE / "pipelines"))
        try:
            control.up(settings)
            login = load_credentials(settings.home)
            assert login is not None
            yield settings, AirflowApi(settings.airflow_address, ADMIN, login.airflow_admin_password)
        finally:
            control.down(settings)
            os.environ.clear()
            os.environ.update(before)


def cpu_seconds(settings: Settings) -> dict[str, float]:
    """The CPU seconds that each service has used so far; `tasks` and `executor` are the scheduler's descendants."""
    while True:
        # If a process ends during this pass, the next pass counts its time with its parent's.
        with suppress(psutil.NoSuchProcess):
            return _looked(settings)


def _looked(settings: Settings) -> dict[str, float]:
    found: dict[str, float] = {}
    for status in control.status(settings):
        assert status.pid is not None
        leader = psutil.Process(status.pid)
        if status.name == "airflow-scheduler":
            found |= _scheduler(leader)
        else:
            found[status.name] = sum(map(_own, [leader, *leader.children(recursive=True)]))
    return found


def _scheduler(leader: psutil.Process) -> dict[str, float]:
    """Splits the scheduler's CPU seconds; executor workers start the tasks, wait for them, and outlive them."""
    workers = leader.children()
    ended = [worker.cpu_times() for worker in workers]
    running = [task for worker in workers for task in worker.children(recursive=True)]
    return {
        "airflow-scheduler": _own(leader),
        "executor": sum(map(_own, workers)),
        "tasks": sum(t.children_user + t.children_system for t in ended) + sum(map(_own, running)),
    }


def _own(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _project(folder: Path) -> Path:
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    (folder / "dags").symlink_to(HERE / "dags")
    return folder
