"""The embedded Airflow: API server, scheduler, DAG processor and triggerer, each in a separate child process.

The stack does not use `airflow standalone`, which leaves orphans when it is terminated. It configures Airflow with
environment variables only, not with Airflow's file, and passes secrets in the environment, never on a command line.
"""

import json
import os
import sqlite3
import subprocess
import sys
import urllib.request
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from devstack.addresses import LOOPBACK, Addresses, accepts
from devstack.credentials import ADMIN, Credentials, ensure_credentials
from devstack.processes import rotated_log, write_whole
from devstack.services import Service, service_environment
from tidemark.errors import TidemarkError
from tidemark.settings import Settings

PATIENCE = 240.0
MIGRATION_TIMEOUT = 300.0
PARALLELISM = 4
OBSERVED = ("AIRFLOW__METRICS__", "AIRFLOW__TRACES__")
"""Options of Airflow that you can set yourself: the destination of metrics and spans."""

# name, arguments, and name on the health page; no component serves logs, because all read the same disk.
COMPONENTS = (
    ("airflow-api-server", ("api-server", "--workers", "1"), "metadatabase"),
    ("airflow-scheduler", ("scheduler", "--skip-serve-logs"), "scheduler"),
    ("airflow-dag-processor", ("dag-processor",), "dag_processor"),
    ("airflow-triggerer", ("triggerer", "--skip-serve-logs"), "triggerer"),
)


def prepare_airflow(settings: Settings, addresses: Addresses) -> tuple[Service, ...]:
    """Create secrets, configuration and database, and return how to start the four components.

    Args:
        settings: the stack's settings.
        addresses: the stack's ports.

    Returns:
        The services, the API server first.
    """
    credentials = ensure_credentials(settings.home)
    write_home(settings.home / "airflow", credentials.airflow_admin_password)
    env = airflow_environment(settings, addresses, credentials)
    _migrate(settings, env)
    listen = ("--host", LOOPBACK, "--port", str(addresses.airflow_port))
    return tuple(
        Service(
            name=name,
            argv=(sys.executable, "-m", "airflow", *arguments, *(listen if "api-server" in arguments else ())),
            env=env,
            is_healthy=partial(component_is_healthy, addresses.airflow_port, part),
            patience=PATIENCE,
        )
        for name, arguments, part in COMPONENTS
    )


def write_home(folder: Path, password: str) -> None:
    """Writes the files that Airflow reads from its home: the preloading settings and the administrator's password."""
    write_whole(folder / "config" / "airflow_local_settings.py", LOCAL_SETTINGS)
    write_whole(folder / "passwords.json", json.dumps({ADMIN: password}), mode=0o600)


def airflow_environment(settings: Settings, addresses: Addresses, credentials: Credentials) -> dict[str, str]:
    """Return the environment for `airflow` commands in this home.

    Args:
        settings: the stack's settings.
        addresses: the stack's ports.
        credentials: the stack's secrets. The result contains them: do not print it.

    Returns:
        A complete environment for a child process.
    """
    folder = settings.home / "airflow"
    given = service_environment(settings)
    env = {n: v for n, v in given.items() if not n.startswith("AIRFLOW__") or n.startswith(OBSERVED)}
    sections = {
        "API": _api_section(addresses, credentials),
        "API_AUTH": {"JWT_SECRET": credentials.airflow_jwt_secret},
        "CORE": _core_section(settings, addresses, credentials),
        "DAG_PROCESSOR": {"REFRESH_INTERVAL": "30", "MIN_FILE_PROCESS_INTERVAL": "30", "PARSING_PROCESSES": "1"},
        "DATABASE": {"SQL_ALCHEMY_CONN": database_url(settings)},
        "LOGGING": {"BASE_LOG_FOLDER": str(folder / "logs")},
        "SCHEDULER": {"SCHEDULER_IDLE_SLEEP_TIME": "0.1"},
        "USAGE_DATA_COLLECTION": {"ENABLED": "False"},
    }
    for section, options in sections.items():
        env.update({f"AIRFLOW__{section}__{name}": value for name, value in options.items()})
    env["AIRFLOW_HOME"] = str(folder)
    env["GX_ANALYTICS_ENABLED"] = "false"
    return env


def database_url(settings: Settings) -> str:
    """Return the URL of Airflow's metadata database: the configured one, else SQLite in the home."""
    if settings.airflow_database is not None:
        return settings.airflow_database.get_secret_value()
    return f"sqlite:///{_sqlite_file(settings)}?timeout=30"


def component_is_healthy(port: int, part: str, started: float) -> bool:
    """Return whether the health page shows a component as healthy, with a heartbeat younger than its process.

    A killed component looks healthy for another half minute, so the page alone proves nothing after a restart.
    """
    page = health_page(port)
    if page is None or page.get(part, {}).get("status") != "healthy":
        return False
    beats = [value for name, value in page[part].items() if name.startswith("latest_") and value]
    return not beats or datetime.fromisoformat(beats[0]).astimezone(UTC).timestamp() > started


def health_page(port: int) -> dict[str, Any] | None:
    """Return the health page for all components, or None while the API server does not answer."""
    if not accepts(port):
        return None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{LOOPBACK}:{port}/api/v2/monitor/health", timeout=5.0) as answer:
            page: dict[str, Any] = json.load(answer)
            return page
    except (OSError, ValueError):
        return None


def _api_section(addresses: Addresses, credentials: Credentials) -> dict[str, str]:
    return {
        "BASE_URL": addresses.of("airflow"),
        "HOST": LOOPBACK,
        "PORT": str(addresses.airflow_port),
        "SECRET_KEY": credentials.airflow_secret_key,
    }


def _core_section(settings: Settings, addresses: Addresses, credentials: Credentials) -> dict[str, str]:
    return {
        "DAGS_FOLDER": str(settings.root / "dags"),
        "PLUGINS_FOLDER": str(settings.root / "plugins"),
        "EXECUTION_API_SERVER_URL": f"{addresses.of('airflow')}/execution/",
        "EXECUTOR": "LocalExecutor",
        "FERNET_KEY": credentials.airflow_fernet_key,
        "LOAD_EXAMPLES": "False",
        "PARALLELISM": str(PARALLELISM),
        "SIMPLE_AUTH_MANAGER_USERS": f"{ADMIN}:admin",
        "SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(settings.home / "airflow" / "passwords.json"),
    }


def _sqlite_file(settings: Settings) -> Path:
    return settings.home / "airflow" / "airflow.db"


def _migrate(settings: Settings, env: dict[str, str]) -> None:
    """Migrate the database to this Airflow's schema, unless the stamp says that this is done."""
    stamp = settings.home / "airflow" / "migrated"
    embedded = settings.airflow_database is None
    made_for = version("apache-airflow")
    if embedded and stamp.is_file() and stamp.read_text() == made_for and _sqlite_file(settings).exists():
        return
    stamp.unlink(missing_ok=True)
    log = rotated_log(settings.home, "airflow-migrate")
    with log.open("wb") as output:
        answer = subprocess.run(
            [sys.executable, "-m", "airflow", "db", "migrate"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=MIGRATION_TIMEOUT,
            check=False,
        )
    if answer.returncode != 0:
        raise TidemarkError(
            f"Airflow's database could not be migrated (exit code {answer.returncode})",
            safe="checkpoints are not stored there and are intact.",
            next="tidemark logs airflow-migrate; check TIDEMARK_AIRFLOW_DATABASE if it is set.",
        )
    if embedded:
        _use_write_ahead_log(_sqlite_file(settings))
        os.chmod(_sqlite_file(settings), 0o600)
    write_whole(stamp, made_for)


def _use_write_ahead_log(database: Path) -> None:
    """Switch to write-ahead logging, in which readers do not block the writer; the file keeps the mode."""
    connection = sqlite3.connect(database)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()


LOCAL_SETTINGS = '''\
"""Written by `tidemark up`. In the scheduler: imports once what every task would import again, as tasks fork from it;
and gives SQLite a clock with milliseconds.
"""

import sys

if "scheduler" in sys.argv:
    from tidemark.airflow.preloading import preload
    from tidemark.airflow.sqlite_now import with_milliseconds

    with_milliseconds()
    preload()
'''
