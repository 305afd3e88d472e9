"""Airflow in this process, on a home of its own; imported when the first test asks for it."""

import os
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.world import DAY, World

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_serial = count(1)


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
    yield home
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture
def world(airflow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Twins of Kafka and Spark, and a warehouse of its own, behind the tasks' `open_runtime`."""
    from tidemark import wiring

    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_PIPELINES", str(HERE / "pipelines"))
    monkeypatch.setenv("TIDEMARK_SPARK", "sc://nowhere:1")
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(HERE / "dags"))
    made = World()
    monkeypatch.setattr(wiring, "open_runtime", made.open_runtime)
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
