"""The flights page: what it declares, and what importing it costs."""

import json
import subprocess
import sys
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipelines.flights import (
    Aircraft,
    Airline,
    Flight,
    Leg,
    Plane,
    Rotation,
    Route,
    expectations,
    flights,
    knock_on_delays,
)

ROOT = Path(__file__).resolve().parents[2]


def test_importing_it_loads_neither_spark_nor_airflow_nor_great_expectations() -> None:
    heavy = ["pyspark", "airflow", "great_expectations", "boto3", "confluent_kafka", "deltalake", "pandas", "pyarrow"]
    code = f"import sys, pipelines.flights; print([m for m in {heavy!r} if m in sys.modules])"
    paths = {"PYTHONPATH": str(ROOT / "include"), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=paths, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_it_folds_by_aircraft_and_by_route() -> None:
    assert [o.uid for o in flights.operators] == ["aircraft", "routes", "rotations"]
    assert [k.name for k in flights.schemas()["aircraft"].keys] == ["tail_number"]
    assert [k.name for k in flights.schemas()["routes"].keys] == ["origin", "destination"]
    assert flights.source is not None
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


def flight(number: int, hour: int, left: float | None, arrived: float | None) -> Flight:
    at = datetime(2013, 1, 1, tzinfo=UTC) + timedelta(hours=hour)
    return Flight("N1", "AA", number, "JFK", "LAX", 2475, at, left, arrived, 300.0)


def test_a_delay_that_was_passed_on_is_told_with_plain_lists_and_a_plain_state() -> None:
    planes, airlines = {"N1": Plane("N1", "BOEING", "767-223", 2, 255)}, {"AA": Airline("AA", "American")}
    remembered = Rotation()
    two = [flight(1, 0, 45.0, 40.0), flight(2, 9, 31.0, None)]
    told = list(knock_on_delays("N1", two, remembered, {"planes": planes, "airlines": airlines}))
    assert [(t.flight, t.inbound_flight, t.inbound_delay, t.late_this_week) for t in told] == [(2, 1, 40.0, 2)]
    assert (told[0].airline, told[0].model) == ("American", "767-223")
    assert remembered.inbound == Leg(2, flight(2, 9, None, None).scheduled_at, None)
    assert remembered.destinations == {"LAX": 2}


def test_an_aircraft_that_came_back_in_time_passes_nothing_on() -> None:
    nothing: dict[str, dict[str, object]] = {"planes": {}, "airlines": {}}
    flown = [flight(1, 0, 45.0, 29.0), flight(2, 9, 60.0, 60.0), flight(3, 12, 29.0, 0.0)]
    assert list(knock_on_delays("N1", flown, Rotation(), nothing)) == []


def test_the_gate_is_a_function_that_imports_late() -> None:
    assert flights.gate is expectations
    assert "great_expectations" not in json.dumps(sorted(vars(sys.modules["pipelines.flights"])))
