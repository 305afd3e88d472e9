"""A real API server of Airflow over a warehouse that was made without Spark: no scheduler, so runs stay queued."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.process_groups import process_group

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "airflow"
PASSWORDS = {"admin": "secret-of-admin", "ann": "secret-of-ann"}
PATIENCE = 120.0


@dataclass(frozen=True)
class AirflowServer:
    """A running API server.

    Attributes:
        base: its address.
        home: its folder; the warehouse lies in it.
    """

    base: str
    home: Path

    def token(self, user: str = "admin") -> str:
        """Logs in."""
        body = {"username": user, "password": PASSWORDS[user]}
        return str(self.ask("POST", "/auth/token", body)["access_token"])

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        """The JSON that a call answers."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, headers, method=method)  # noqa: S310  (our own)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as answer:
            return json.load(answer)


@contextmanager
def api_server(home: Path, **settings: str) -> Iterator[AirflowServer]:
    """Starts it with the DAGs and pipelines of the DAG tests; gone afterwards, with all its children.

    Args:
        home: its folder.
        **settings: of Tidemark, as in `checkpoint_deadline="1h"`.
    """
    with running_server(home, prepare(home, **settings)) as server:
        yield server


def prepare(home: Path, **settings: str) -> dict[str, str]:
    """Creates the database of Airflow. Returns the environment of its commands.

    Args:
        home: its folder.
        **settings: see `api_server`.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = environment(home, port) | {f"TIDEMARK_{name.upper()}": value for name, value in settings.items()}
    for command in (["db", "migrate"], ["dags", "reserialize"]):
        subprocess.run(airflow(*command), env=env, check=True, capture_output=True, timeout=PATIENCE)
    return env


@contextmanager
def running_server(home: Path, env: dict[str, str]) -> Iterator[AirflowServer]:
    """Runs an API server over a folder that `prepare` has filled."""
    server = AirflowServer(env["AIRFLOW__API__BASE_URL"], home)
    port = server.base.rpartition(":")[2]
    command = airflow("api-server", "--workers", "1", "--host", "127.0.0.1", "--port", port)
    with process_group(command, home / "api-server.log", env=env) as process:
        _wait(server, process)
        yield server


def airflow(*arguments: str) -> list[str]:
    """A command of Airflow's."""
    return [sys.executable, "-m", "airflow", *arguments]


def environment(home: Path, port: int) -> dict[str, str]:
    """That of every command."""
    (home / "passwords.json").write_text(json.dumps(PASSWORDS))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TIDEMARK_", "AIRFLOW_"))}
    return kept | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__SECRET_KEY": "k" * 32,
        "AIRFLOW__API_AUTH__JWT_SECRET": "s" * 64,
        "AIRFLOW__CORE__DAGS_FOLDER": str(TESTS / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,ann:viewer",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT)]),
        "TIDEMARK_HOME": str(home),
        "TIDEMARK_PIPELINES": str(TESTS / "pipelines"),
        "TIDEMARK_ROOT": str(home),
        "TIDEMARK_WAREHOUSE": str(home / "warehouse"),
    }


def _wait(server: AirflowServer, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            server.ask("GET", "/api/v2/version")
        except (OSError, urllib.error.URLError):
            log = (server.home / "api-server.log").read_text()
            assert process.poll() is None and time.monotonic() < deadline, log
            time.sleep(0.5)
        else:
            return
