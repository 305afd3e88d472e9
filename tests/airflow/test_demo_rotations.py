"""The oracle of rotations and alerts, and the pipeline's own function over the same flights in memory: they agree."""

import ast
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from devstack.demo import rotations as demo_rotations
from devstack.demo.flights_data import FlightRecord
from devstack.demo.oracle import Oracle
from devstack.demo.reference_data import AIRLINES, PLANES, read_airlines, read_planes
from devstack.demo.rotations import RotationOracle
from pipelines.flights import flights
from tidemark.testing import BARRIER, CRASH, Replayed, replay

FIRST, SECOND = 2_000, 5_000
"""Flights up to which the two checkpoints reach."""


@pytest.fixture(scope="module")
def cuts(real_flights: list[FlightRecord]) -> list[datetime]:
    return [datetime.fromtimestamp(real_flights[n].timestamp_ms / 1000, UTC) for n in (FIRST, SECOND)]


@pytest.fixture(scope="module")
def replayed(real_flights: list[FlightRecord], cuts: list[datetime]) -> Replayed:
    """Two checkpoints of real flights, the second after a crash."""
    tables: list[tuple[str, bytes]] = [("planes", r.value) for r in read_planes()]
    tables += [("airlines", r.value) for r in read_airlines()]
    first, second = (int(cut.timestamp() * 1000) for cut in cuts)
    records = real_flights[: 2 * SECOND]
    one = [("records", r.value) for r in records if r.timestamp_ms < first]
    two = [("records", r.value) for r in records if first <= r.timestamp_ms < second]
    return replay(replace(flights, gate=None), [[*tables, *one], BARRIER, two, CRASH, BARRIER])


def test_the_oracle_uses_no_code_of_ours() -> None:
    tree = ast.parse(Path(demo_rotations.__file__).read_text())
    names = [n.module or "." for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert not [name for name in names if name.startswith((".", "tidemark", "pipelines"))]


def test_the_reference_tables_are_whole() -> None:
    assert (len({r.key for r in read_planes()}), len({r.key for r in read_airlines()})) == (PLANES, AIRLINES)


@pytest.mark.parametrize("place", [0, 1])
def test_state_and_alerts_are_those_of_a_loop_over_the_data(
    replayed: Replayed, cuts: list[datetime], place: int
) -> None:
    state, alerts = RotationOracle(Oracle().flights).expected(cuts[place])
    found = replayed.checkpoints[place]
    assert {key: _shown(row) for key, row in replayed.rows("rotations", found).items()} == state
    sent = replayed.emitted("rotations", found)
    assert len(sent) == len(alerts) > 0
    assert {_key(row): _fields(row) for row in sent} == alerts


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in row.items() if name != "_changed"}
    return shown | {"destinations": sorted(dict(row["destinations"]).items())}


def _fields(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_")}


def _key(row: Any) -> tuple[str, ...]:
    return row["tail_number"], str(row["scheduled_at"]), str(row["flight"])
