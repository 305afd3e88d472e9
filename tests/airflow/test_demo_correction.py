"""The second half of the demo: the bug, what an oracle knows that cannot read what the bug lost, and the two lines."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from devstack.demo.checking import span_of, upto
from devstack.demo.flights_data import FlightRecord
from devstack.demo.options import asks_for
from devstack.demo.oracle import EPOCH, KEYS, Oracle, differences
from devstack.demo.reference_data import read_airlines, read_planes
from devstack.demo.releases import RIGHT, WRONG, Releases
from devstack.demo.rotations import RotationOracle
from devstack.demo.story import three_of
from devstack.demo.summary import lines_of, table_of
from tests.support.airflow import DAY, AirflowPipeline, MemoryContext
from tidemark.coordinator.recovery.backfill import BackfillRequest
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.errors import UsageError
from tidemark.operations import backfill, checkpoints
from tidemark.ports import PlanRequest
from tidemark.settings import Settings, load_settings
from tidemark.testing import BARRIER, Replayed, replay

ROOT = Path(__file__).parents[2]
TRIPS = Path(__file__).parent / "pipelines"
CUT = datetime(2013, 1, 4, tzinfo=UTC)
"""Flights before it are replayed in memory: about 2,500, of which 22 were cancelled."""


def at(hour: int) -> datetime:
    return datetime(2013, 7, 1, tzinfo=UTC) + timedelta(hours=hour)


@pytest.fixture
def five_flights() -> pd.DataFrame:
    """Of one aircraft: hours 1 to 5, of which 2 and 4 were cancelled; miles 10, 20, 40, 80, 160."""
    rows = [
        {
            "tailnum": "N1",
            "carrier": "AA",
            "flight": n,
            "origin": "JFK",
            "dest": f"D{n}",
            "distance": 10 * 2 ** (n - 1),
            "dep_delay": None if n in (2, 4) else 5.0,
            "arr_delay": None if n in (2, 4) else float(n),
            "air_time": None if n in (2, 4) else 60.0,
            "scheduled": (at(n) - EPOCH) // timedelta(microseconds=1),
            "place": 0,
            "number": n,
        }
        for n in range(1, 6)
    ]
    return pd.DataFrame(rows).astype(dict.fromkeys(("dep_delay", "arr_delay", "air_time"), "Float64"))


@pytest.mark.parametrize(
    ("span", "flights", "miles"),
    [((0, 0), 5, 310), ((2, 3), 4, 290), ((3, 9), 4, 230), ((2, 4), 4, 290), ((0, 9), 3, 210)],
)
def test_a_blind_oracle_lacks_cancelled_flights_of_its_span_and_no_others(
    five_flights: pd.DataFrame, span: tuple[int, int], flights: int, miles: int
) -> None:
    whole = Oracle(five_flights)
    blind = whole.blind(at(span[0]), at(span[1]))
    (row,) = blind.expected("aircraft", at(24)).values()
    assert (row["flights"], row["distance"], row["last_airport"]) == (flights, miles, "D5")
    assert blind.counts(at(24)) == (flights, 0)
    assert whole.counts(at(24)) == (5, 0), "the whole one is as it was"
    assert ("JFK", "D2") in whole.expected("routes", at(24))
    assert (("JFK", "D2") in blind.expected("routes", at(24))) == (not span[0] <= 2 < span[1])


def test_a_rotation_oracle_of_a_blind_one_never_saw_the_cancelled_flight(five_flights: pd.DataFrame) -> None:
    blind = Oracle(five_flights).blind(at(0), at(24))
    state, _ = RotationOracle(blind.flights).expected(at(24))
    assert dict(state["N1",]["destinations"]) == {"D1": 1, "D3": 1, "D5": 1}


def test_the_span_of_the_bug_is_that_of_the_intervals_it_made() -> None:
    assert span_of([]) is None
    assert span_of([(at(3), at(4)), (at(1), at(3))]) == (at(1), at(4))


@pytest.mark.parametrize(("count", "places"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (12, [0, 5, 11])])
def test_three_are_chosen(count: int, places: list[int]) -> None:
    assert three_of(range(count)) == places


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A home of its own, with a copy of the project's pipelines."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "flights.py").write_text((ROOT / "include/pipelines/flights.py").read_text())
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TIDEMARK_PIPELINES", str(folder))
    return load_settings()


def test_the_bug_is_deployed_and_taken_back_and_no_file_of_the_project_changes(project: Settings) -> None:
    (own,) = project.pipelines
    before = (own / "flights.py").read_text()
    releases = Releases(project)
    (link,) = releases.deployed.pipelines
    assert (link / "flights.py").read_text() == before
    assert releases.wrong is None
    told = releases.deploy_wrong()
    assert [line for line in told if line[0] in "+-" and line[:3] not in ("+++", "---")] == [
        f"-{RIGHT.rstrip()}",
        f"+{WRONG.rstrip()}",
    ]
    assert (link / "flights.py").read_text() == before.replace(RIGHT, WRONG)
    again = Releases(project)
    assert (link / "flights.py").read_text() != before, "a demo that goes on finds what is deployed"
    assert again.wrong is not None
    assert again.wrong.fingerprint != again.right.fingerprint
    again.deploy_right()
    assert link.resolve() == own
    assert (own / "flights.py").read_text() == before


def test_a_file_without_the_line_is_refused_and_stays_deployed(project: Settings) -> None:
    (own,) = project.pipelines
    (own / "flights.py").write_text((own / "flights.py").read_text().replace(RIGHT, WRONG))
    releases = Releases(project)
    with pytest.raises(UsageError, match="does not have the line"):
        releases.deploy_wrong()
    assert releases.deployed.pipelines[0].resolve() == own


@pytest.fixture
def broken(project: Settings, real_flights: list[FlightRecord]) -> Replayed:
    """The release with the bug, over some flights in memory."""
    releases = Releases(project)
    releases.deploy_wrong()
    assert releases.wrong is not None
    tables: list[tuple[str, bytes]] = [("planes", r.value) for r in read_planes()]
    tables += [("airlines", r.value) for r in read_airlines()]
    few = [("records", r.value) for r in real_flights if r.timestamp_ms < CUT.timestamp() * 1000]
    return replay(replace(releases.wrong, gate=None), [[*tables, *few], BARRIER])


def test_what_the_bug_makes_of_real_flights_is_what_the_blind_oracle_says(broken: Replayed) -> None:
    whole = Oracle(Oracle().flights.assign(place=0))  # one partition
    blind = whole.blind(datetime(2013, 1, 1, tzinfo=UTC), CUT)
    assert whole.counts(CUT)[0] - blind.counts(CUT)[0] > 10
    (made,) = broken.checkpoints
    for uid in KEYS:
        rows = {key: _shown(row) for key, row in broken.rows(uid, made).items()}
        expected = {key: _rounded(row) for key, row in blind.expected(uid, CUT).items()}
        assert differences(expected, {key: _rounded(row) for key, row in rows.items()}) == []
    state, alerts = RotationOracle(blind.flights).expected(CUT)
    found = {key: _sorted(row) for key, row in broken.rows("rotations", made).items()}
    assert differences(state, found) == []
    assert len(broken.emitted("rotations", made)) == len(alerts)


def _shown(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_")}


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}


def _sorted(row: Any) -> dict[str, Any]:
    return _shown(row) | {"destinations": sorted(dict(row["destinations"]).items())}


@pytest.fixture
def promoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryContext:
    """Three days, one checkpoint each; the last two are repeated on a fork, which becomes live."""
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_PIPELINES", str(TRIPS))
    world = AirflowPipeline()
    context = MemoryContext(world)
    for day in range(3):
        world.drive("a", 1, day=day)
        end = DAY + timedelta(days=day + 1)
        request = PlanRequest(
            origin="test", interval_start=end - timedelta(days=1), interval_end=end, until_interval_end=True
        )
        checkpoints.run_once(context, "trips", request)
    one = backfill.open_backfill(context, "trips", BackfillRequest(begins=RestoreRequest(checkpoint=1), fork="better"))
    one.begin()
    backfill.promote(context, one)
    return context


def test_both_lines_are_found_and_every_checkpoint_is_shown_once(promoted: MemoryContext) -> None:
    old, new = lines_of(promoted, "trips")
    assert [(old.timeline, [c.id for c in old.checkpoints]), (new.timeline, [c.id for c in new.checkpoints])] == [
        ("t1", [1, 2, 3]),
        ("better", [1, 4, 5]),
    ]
    assert [c.id for c in new.own] == [4, 5]
    assert [c.id for c in upto(new.checkpoints, new.own[0])] == [1, 4]
    table = table_of([old, new], {"chk-2"})
    assert [row["state"] for row in table] == ["kept", "released", "kept", "kept", "kept"]
    assert [(row["id"], row["timeline"]) for row in table] == [
        *((f"chk-{n}", "t1") for n in (1, 2, 3)),
        *((f"chk-{n}", "better") for n in (4, 5)),
    ]
    assert [row["interval"] for row in table[3:]] == [row["interval"] for row in table[1:3]]


def test_an_empty_store_has_one_line_without_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_PIPELINES", str(TRIPS))
    (line,) = lines_of(MemoryContext(AirflowPipeline()), "trips")
    assert (line.timeline, line.checkpoints, line.own) == ("t1", (), ())


@pytest.mark.parametrize(("value", "quick"), [("", False), ("quick", True)])
def test_quick_is_asked_for_by_a_variable(monkeypatch: pytest.MonkeyPatch, value: str, quick: bool) -> None:
    monkeypatch.setenv("DEMO", value)
    assert asks_for("DEMO", "quick") is quick


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO", "fast")
    with pytest.raises(UsageError, match="DEMO=fast"):
        asks_for("DEMO", "quick")
