"""The wheel in a plain Airflow: a new environment, an ordinary AIRFLOW_HOME with one DAG and one pipeline, no checkout.

The two files are those of docs/deploy.md. The tests share the Airflow and run in the order in which they are written.
"""

import json
import random
import re
import secrets
import time
import urllib.error
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devstack.addresses import is_free
from tests.e2e.airflow_pages import AirflowServer
from tests.e2e.chromium import chromium
from tests.support.kafka import Topics
from tests.support.prerequisites import needs_chromium
from tests.support.process_groups import process_group
from tests.support.wheels import UV, Installation, build_wheel, install_wheel, plain_environment, run

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(900),
]
ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "docs" / "deploy.md"
SAVED = re.compile(r"as `(dags/[\w/]+\.py)`:\n\n```python\n(.*?)```", re.DOTALL)
ORDERS = [("anna", 30), ("bert", 12), ("anna", 5)]
PATIENCE = 240.0
COMPONENTS = (["scheduler", "--skip-serve-logs"], ["dag-processor"], ["api-server", "--workers", "1"])


@dataclass(frozen=True)
class PlainAirflow:
    """An Airflow whose environment has the wheel.

    Attributes:
        installed: the environment.
        env: variables of all components and commands.
        server: the API server.
    """

    installed: Installation
    env: dict[str, str]
    server: AirflowServer

    def command(self, *words: str) -> str:
        """The stdout of a command, `airflow …` or `tidemark …`."""
        return self.installed.run(*words, env=self.env).stdout

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What the API server answers to its administrator."""
        return self.server.ask(method, path, body, self.token())

    def token(self) -> str:
        """The administrator's."""
        return str(self.server.ask("GET", "/auth/token")["access_token"])


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("wheel")
    return install_wheel(build_wheel(folder), "airflow,spark", folder / "env")


@pytest.fixture(scope="module")
def airflow(installed: Installation, broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainAirflow]:
    home = tmp_path_factory.mktemp("airflow-home")
    files = SAVED.findall(DEPLOY.read_text())
    assert [name for name, _ in files] == ["dags/pipelines/orders.py", "dags/orders.py"]
    for name, text in files:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    port = next(port for port in random.SystemRandom().sample(range(20_000, 30_000), 100) if is_free(port))
    env = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(16),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "TIDEMARK_JARS": str((ROOT / ".jars").resolve()),
        "TIDEMARK_KAFKA_BOOTSTRAP": broker,
        "TIDEMARK_SPARK": "local[2]",
        "TIDEMARK_SPARK_DRIVER_MEMORY": "1g",
    }
    installed.run("airflow", "db", "migrate", env=env)
    with ExitStack() as running:
        for component in COMPONENTS:
            running.enter_context(_component(installed, component, env, home))
        server = AirflowServer(f"http://127.0.0.1:{port}", home)
        _wait("the API server answers", lambda: server.ask("GET", "/api/v2/version"), home)
        yield PlainAirflow(installed, env, server)


@contextmanager
def _component(installed: Installation, words: list[str], env: dict[str, str], home: Path) -> Iterator[None]:
    command = [str(installed.folder / "bin" / "airflow"), *words]
    with process_group(command, home / f"{words[0]}.log", env=plain_environment() | env, cwd=home.parent):
        yield


def _wait(what: str, asked: Any, home: Path) -> Any:
    """What a question answers as soon as it answers something; the logs are in the error if it never does."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with suppress(OSError, urllib.error.URLError):
            answer = asked()
            if answer:
                return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"it never happened that {what}:\n{_logs(home)}")
        time.sleep(0.5)


def test_the_requirements_agree(installed: Installation) -> None:
    run([str(UV), "pip", "check", "--python", str(installed.python)])
    place = installed.run("python", "-c", "import tidemark; print(tidemark.__file__)").stdout
    assert place.startswith(str(installed.folder)), "the environment has the checkout's package, not the wheel's"


def test_airflow_lists_the_provider_and_the_plugin(airflow: PlainAirflow) -> None:
    providers = json.loads(airflow.command("airflow", "providers", "list", "--output", "json"))
    assert "tidemark" in [provider["package_name"] for provider in providers]
    plugins = json.loads(airflow.command("airflow", "plugins", "--output", "json"))
    (plugin,) = [plugin for plugin in plugins if plugin["name"] == "tidemark"]
    assert "tidemark" in plugin["source"]
    assert airflow.ask("GET", "/api/v2/plugins/importErrors")["import_errors"] == []


def test_doctor_finds_all_that_a_checkpoint_needs(airflow: PlainAirflow) -> None:
    found = json.loads(airflow.command("tidemark", "doctor", "--json"))
    assert {f["check"]: f["verdict"] for f in found} == dict.fromkeys(
        ["python", "packages", "jars", "warehouse", "kafka", "spark", "registry"], "ok"
    )


def test_a_checkpoint_is_made_by_the_scheduler_and_the_pages_show_it(airflow: PlainAirflow, broker: str) -> None:
    topics = Topics(broker)
    if "orders" in topics.admin.list_topics(timeout=10).topics:
        topics.delete("orders")  # of the tutorial
    topics.make("orders", partitions=2)
    topics.produce("orders", [json.dumps({"customer": name, "amount": n}).encode() for name, n in ORDERS])
    home = airflow.server.home
    _wait("the DAG is found", lambda: airflow.ask("GET", "/api/v2/dags")["total_entries"], home)
    airflow.ask("PATCH", "/api/v2/dags/orders", {"is_paused": False})
    airflow.ask("POST", "/api/v2/dags/orders/dagRuns", {"dag_run_id": "first", "logical_date": None})

    def ended() -> str | None:
        state = airflow.ask("GET", "/api/v2/dags/orders/dagRuns/first")["state"]
        return str(state) if state in ("success", "failed") else None

    assert _wait("the run ends", ended, home) == "success", _logs(home)
    (pipeline,) = airflow.ask("GET", "/tidemark/pipelines")
    assert (pipeline["name"], pipeline["dag_id"]) == ("orders", "orders")
    shown = airflow.ask("GET", "/tidemark/pipelines/orders/checkpoints")
    assert shown["counts"]["completed"] >= 1
    topics.delete("orders")
    rows = json.loads(airflow.command("tidemark", "state", "show", "orders", "customers", "--json"))
    spent: Counter[str] = Counter()
    for name, amount in ORDERS:
        spent[name] += amount
    assert {row["customer"]: row["spent"] for row in rows} == dict(spent)
    assert (home / ".tidemark" / "warehouse" / "orders").is_dir(), "the root of relative paths is Airflow's home"


@needs_chromium()
def test_a_browser_shows_the_page_of_the_checkpoint(airflow: PlainAirflow) -> None:
    with chromium(airflow.server.base, airflow.token()) as page:
        page.view("orders", "view=history", "chk-1")
        page.view("orders", "view=checkpoint&checkpoint=1", "Lineage")
        assert "customers" in page.words()


def _logs(home: Path) -> str:
    return "\n".join(log.read_text(errors="replace")[-4000:] for log in sorted(home.rglob("*.log")))
