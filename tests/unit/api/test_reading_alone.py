"""Reading needs neither Spark, Airflow nor Kafka's client, and never looks for the pipeline's file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.api.warehouses import Flights

INCLUDE = Path(__file__).resolve().parents[3] / "include"
ALONE = """
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "airflow", "confluent_kafka", "great_expectations"):
            raise AssertionError(f"{name} is imported")

sys.meta_path.insert(0, Refusing())

import tidemark

w = tidemark.open(sys.argv[1])
heavy = {"duckdb", "pyarrow", "deltalake", "pandas", "boto3"} & set(sys.modules)
assert not heavy, heavy

from tidemark import environment

def refuse(*_):
    raise AssertionError("pipelines are looked for")

environment.declared_in = environment._files = refuse

flights = w["flights"]
assert list(w) == w.pipelines() == ["flights"]
assert [c.name for c in flights.checkpoints()] == ["chk-3", "chk-2", "chk-1"]
assert flights.latest().to_dict()["id"] == flights.checkpoint(3).name == "chk-3"
assert flights.in_progress() is None
aircraft = flights.state("aircraft", at="winter")
assert aircraft.get("N14228")["flights"] == 2
assert aircraft.to_arrow().num_rows == len(aircraft.to_pandas()) == len(aircraft.head()) == aircraft.hash().rows == 3
assert aircraft.duckdb().sql("select count(*) from aircraft").fetchall() == [(3,)]
assert aircraft.sql("select count(*) as n from aircraft").to_pylist() == [{"n": 3}]
assert aircraft.query()["dialect"] == "spark"
assert len(flights.sink("knock_on_delays").tail()) == 2
assert flights.sinks()[0]["sink"] == "knock_on_delays"
assert flights.diff("aircraft", 1, 3).counts
assert flights.sql("select 1 as one").to_pylist() == [{"one": 1}]
assert flights.metrics()["numberOfCompletedCheckpoints"] == 3
assert flights.verify().broken == ()
assert [s.name for s in flights.savepoints.list()] == ["winter"]
assert flights.timelines.live().name == "t1"
assert flights.retention.plan("keep_last(1)")["released"] == ["chk-1"]
assert flights.retention.storage()["pipeline"] == "flights"
assert flights.savepoints.create("june").checkpoint == "chk-3"
assert flights.savepoints.dispose("june").commit()["disposed"]
"""


def test_reading_needs_no_spark_and_no_declaration(flights: Flights) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_")}
    env |= {"TIDEMARK_HOME": str(flights.command.home), "TIDEMARK_PIPELINES": str(flights.command.home / "none")}
    env["PYTHONPATH"] = str(INCLUDE)
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(flights.command.warehouse)],
        env=env, cwd=flights.command.home, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_warehouse_of_the_settings_is_opened_without_a_name(
    flights: Flights, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import tidemark
    from tidemark.errors import UsageError

    for name, value in flights.command.environment().items():
        monkeypatch.setenv(name, value)
    assert tidemark.open().pipelines() == ["flights"]
    assert repr(tidemark.open(settings=flights.command.settings)) == f"<warehouse {flights.command.warehouse}>"
    monkeypatch.chdir(tmp_path)
    assert repr(tidemark.open("elsewhere")) == f"<warehouse {tmp_path / 'elsewhere'}>"
    assert repr(tidemark.open("s3://flights/warehouse")) == "<warehouse s3://flights/warehouse>"
    with pytest.raises(UsageError, match="both a warehouse and settings"):
        tidemark.open("elsewhere", settings=flights.command.settings)
