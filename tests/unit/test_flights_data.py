"""The real input: its published facts, and every scheduled departure against the data set's own column."""

import json
import zipfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from devstack.demo import flights_data
from devstack.demo.flights_data import (
    FlightRecord,
    find_flights,
    read_flights,
    scheduled_departure,
)
from tidemark.errors import CorruptObjectError, NotFoundError


@pytest.fixture(scope="module")
def records() -> list[FlightRecord]:
    """The whole data set."""
    return read_flights()


@pytest.mark.slow
def test_the_facts_of_the_data_set(records: list[FlightRecord]) -> None:
    values = [json.loads(r.value) for r in records]
    assert len(values) == 336_776
    assert sum(v["tail_number"] is None for v in values) == 2_512
    assert len({v["tail_number"] for v in values} - {None}) == 4_043
    assert sum(v["distance"] for v in values) == 350_217_607
    assert sum(v["departure_delay"] is None for v in values) == 8_255
    assert sum(v["scheduled_at"].startswith("2014-") for v in values) == 88
    assert all(v["scheduled_at"] for v in values)


@pytest.mark.slow
def test_every_record_agrees_with_the_data_set_as_pandas_reads_it(records: list[FlightRecord]) -> None:
    import pandas

    frame = pandas.read_csv(find_flights(), keep_default_na=False, na_values=["NA"])
    scheduled = pandas.to_datetime(frame["time_hour"]) + pandas.to_timedelta(frame["minute"], unit="min")
    millis = (scheduled - pandas.Timestamp("1970-01-01", tz="UTC")) // pandas.Timedelta(1, "ms")
    order = millis.sort_values(kind="stable").index
    assert [r.row for r in records] == order.tolist()
    assert [r.timestamp_ms for r in records] == millis[order].tolist()
    tails = frame["tailnum"][order].tolist()
    assert [r.key for r in records] == [t.encode() if isinstance(t, str) else None for t in tails]
    delays = [None if pandas.isna(delay) else delay for delay in frame["arr_delay"][order]]
    assert [json.loads(r.value)["arrival_delay"] for r in records] == delays


@pytest.mark.slow
def test_the_record_time_is_the_scheduled_departure_in_the_value(records: list[FlightRecord]) -> None:
    for record in records[::97]:
        text = json.loads(record.value)["scheduled_at"]
        assert datetime.fromisoformat(text) == datetime.fromtimestamp(record.timestamp_ms / 1000, tz=UTC)


@pytest.mark.slow
def test_aircraft_that_tie_on_a_minute_keep_the_order_of_rows(records: list[FlightRecord]) -> None:
    known = Counter((r.key, r.timestamp_ms) for r in records if r.key is not None)
    assert sum(count - 1 for count in known.values()) == 31
    pairs = zip(records, records[1:], strict=False)
    assert all((a.timestamp_ms, a.row) < (b.timestamp_ms, b.row) for a, b in pairs)


@pytest.mark.parametrize(
    ("day", "clock", "instant"),
    [
        ((2013, 1, 1), 515, "2013-01-01T10:15:00+00:00"),
        ((2013, 3, 9), 2359, "2013-03-10T04:59:00+00:00"),
        ((2013, 3, 10), 600, "2013-03-10T10:00:00+00:00"),
        ((2013, 7, 1), 600, "2013-07-01T10:00:00+00:00"),
        ((2013, 11, 3), 600, "2013-11-03T11:00:00+00:00"),
        ((2013, 12, 31), 2359, "2014-01-01T04:59:00+00:00"),
    ],
)
def test_the_wall_clock_of_new_york_is_read_with_its_summer_time(
    day: tuple[int, int, int], clock: int, instant: str
) -> None:
    assert scheduled_departure(day, clock).isoformat() == instant


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "flights.csv.zip"
    broken.write_bytes(find_flights().read_bytes()[:5000])
    with pytest.raises(CorruptObjectError, match="flights.csv.zip is damaged"):
        read_flights(broken)


def test_a_file_with_fewer_flights_is_refused(tmp_path: Path) -> None:
    short = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(find_flights()) as whole, whole.open("flights.csv") as rows:
        head = b"".join(rows.readline() for _ in range(11))
    with zipfile.ZipFile(short, "w") as archive:
        archive.writestr("flights.csv", head)
    with pytest.raises(CorruptObjectError, match="holds 10 flights, not 336,776"):
        read_flights(short)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights_data, "PACKAGE", "no_such_package_13")
    with pytest.raises(NotFoundError, match="no_such_package_13 is not installed"):
        read_flights()
