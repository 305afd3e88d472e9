"""The flights page: what it declares, and what importing it costs."""

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from pipelines.flights import Aircraft, Flight, Route, expectations, flights

ROOT = Path(__file__).resolve().parents[2]


def test_importing_it_loads_neither_spark_nor_airflow_nor_great_expectations() -> None:
    heavy = ["pyspark", "airflow", "great_expectations", "boto3", "confluent_kafka", "deltalake", "pandas", "pyarrow"]
    code = f"import sys, pipelines.flights; print([m for m in {heavy!r} if m in sys.modules])"
    paths = {"PYTHONPATH": str(ROOT / "include"), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=paths, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_it_folds_by_aircraft_and_by_route() -> None:
    assert [o.uid for o in flights.operators] == ["aircraft", "routes"]
    assert [k.name for k in flights.schemas()["aircraft"].keys] == ["tail_number"]
    assert [k.name for k in flights.schemas()["routes"].keys] == ["origin", "destination"]
    assert flights.source.topics == "flights"
    assert flights.source.event_time == "scheduled_at"
    assert flights.max_dead_letters == 0.05


def test_only_the_mean_is_not_exact() -> None:
    inexact = {f"{uid}.{f.name}" for uid, schema in flights.schemas().items() for f in schema.fields if not f.exact}
    assert inexact == {"routes.mean_arrival_delay"}


def test_a_record_may_lack_only_what_is_missing_in_the_data() -> None:
    optional = {f.name for f in fields(Flight) if "None" in str(f.type)}
    assert optional == {"tail_number", "departure_delay", "arrival_delay", "air_time"}


def test_a_key_without_records_has_empty_state() -> None:
    assert (Aircraft().flights, Aircraft().carriers) == (0, [])
    assert Route().mean_arrival_delay is None


def test_the_gate_is_a_function_that_imports_late() -> None:
    assert flights.gate is expectations
    assert "great_expectations" not in json.dumps(sorted(vars(sys.modules["pipelines.flights"])))
