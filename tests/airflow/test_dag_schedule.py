"""When the runs of a DAG are due, and how its schedule reads; the oracle counts days and hours by itself."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.airflow.conftest import Client
from tests.support.airflow_disk import AirflowDiskPipeline

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("airflow_home")]
NEW_YORK = ZoneInfo("America/New_York")
START = datetime(2020, 1, 1, tzinfo=UTC)
Fires = Callable[[datetime], Iterator[datetime]]


def weekdays(since: datetime) -> Iterator[datetime]:
    """06:00 in New York, Monday to Friday."""
    day = since.astimezone(NEW_YORK).date()
    while True:
        at = datetime.combine(day, time(6), NEW_YORK)
        if day.weekday() < 5 and at.astimezone(UTC) > since:
            yield at.astimezone(UTC)
        day += timedelta(days=1)


def months(since: datetime) -> Iterator[datetime]:
    """Midnight in New York, on the first of a month."""
    year, month = since.year, since.month
    while True:
        at = datetime(year, month, 1, tzinfo=NEW_YORK).astimezone(UTC)
        if at > since:
            yield at
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)


def hours(since: datetime) -> Iterator[datetime]:
    """Each full hour."""
    at = since.replace(minute=0, second=0, microsecond=0)
    while True:
        at += timedelta(hours=1)
        yield at


CASES: dict[str, tuple[str, Fires]] = {
    "weekdays": ("0 6 * * 1-5", weekdays),
    "months": ("@monthly", months),
    "hours": ("@hourly", hours),
}


def times_of(schedule: Any, **options: Any) -> Any:
    """The run times of the trips' DAG with a schedule."""
    from airflow.serialization.encoders import coerce_to_core_timetable

    from tests.airflow.pipelines.trips import trips
    from tidemark.airflow import checkpoint_dag
    from tidemark.airflow.run_times import RunTimes

    dag = checkpoint_dag(trips, schedule=schedule, **options)
    return RunTimes(timetable=coerce_to_core_timetable(dag.timetable), begin=dag.start_date, end=dag.end_date)


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@pytest.mark.parametrize("case", CASES)
@given(since=st.datetimes(datetime(2023, 1, 1), datetime(2026, 12, 31)).map(lambda t: t.replace(tzinfo=UTC)))
def test_the_due_run_is_the_first_after_the_checkpoint_also_where_the_clock_changes(case: str, since: datetime) -> None:
    cron, fires = CASES[case]
    since = since.replace(microsecond=0)
    found = times_of(cron, timezone="America/New_York", start=START).due_after(
        round(since.timestamp() * 1000), is_planned=True
    )
    expected = fires(since)
    first, following, later = next(expected), next(expected), next(expected)
    assert (at(found.at_ms), at(found.following_ms)) == (first, following)
    gaps = (following - first, later - following)
    assert found.every_ms == (gaps[0] // timedelta(milliseconds=1) if gaps[0] == gaps[1] else None)


def test_a_timedelta_is_due_after_its_length() -> None:
    since = datetime(2024, 5, 1, 12, 30, tzinfo=UTC)
    found = times_of(timedelta(minutes=10), start=START).due_after(round(since.timestamp() * 1000), is_planned=True)
    assert (at(found.at_ms), at(found.following_ms)) == (
        since + timedelta(minutes=10),
        since + timedelta(minutes=20),
    )
    assert found.every_ms == 600_000


def test_before_the_start_date_nothing_is_due() -> None:
    since = datetime(2019, 6, 1, tzinfo=UTC)
    found = times_of("@daily", start=START).due_after(round(since.timestamp() * 1000), is_planned=True)
    assert at(found.at_ms) == START + timedelta(days=1), "the first interval ends a day after the start"


def test_after_the_end_date_nothing_is_due_but_a_backlog() -> None:
    from dataclasses import replace

    ended = replace(times_of("@daily", start=START), end=datetime(2021, 1, 1, tzinfo=UTC))
    long_after = round(datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp() * 1000)
    assert ended.due_after(long_after, is_planned=False) is None
    backlog = ended.due_after(long_after, is_planned=True)
    assert at(backlog.at_ms) == datetime(2024, 5, 1, 12, tzinfo=UTC), "at once"
    assert at(backlog.following_ms) == datetime(2024, 5, 3, tzinfo=UTC)
    last = ended.due_after(round(datetime(2020, 12, 31, 12, tzinfo=UTC).timestamp() * 1000), is_planned=False)
    assert at(last.at_ms) == datetime(2021, 1, 1, tzinfo=UTC), "the interval of the last day"


@pytest.mark.parametrize(("schedule", "kind"), [(None, "manual"), ("assets", "assets"), ("@daily", "time")])
def test_only_times_are_ever_due(schedule: Any, kind: str) -> None:
    from airflow.sdk import Asset

    options = {"start": START} if kind == "time" else {}
    times = times_of([Asset("orders")] if schedule == "assets" else schedule, **options)
    assert times.kind == kind
    assert (times.due_after(0, is_planned=True) is not None) == (kind == "time")


def test_a_timetable_that_fails_costs_the_due_time_and_no_answer() -> None:
    from dataclasses import replace

    class Broken:
        can_be_scheduled = periodic = True

        def next_dagrun_info_v2(self, **_: Any) -> Any:
            raise ZeroDivisionError

    broken: Any = replace(times_of("@daily", start=START), timetable=Broken())
    assert broken.due_after(0, is_planned=True) is None


def test_a_pipeline_has_the_schedule_of_its_dag_and_a_verdict(
    client: Client, disk: AirflowDiskPipeline, dag_run: Callable[..., Any]
) -> None:
    disk.drive("b1", 3)
    assert dag_run(1).state == "success"
    [plain] = client("GET", "/pipelines").json()
    assert plain["verdict"] is None
    schedule = plain["schedule"]
    assert (schedule["kind"], schedule["zone"]) == ("time", "UTC")
    assert schedule["text"] and schedule["text"] != plain["interval"], "in words"
    [reported] = client("GET", "/verdicts").json()
    assert {**reported, "verdict": None} == plain
    whole = client("GET", "/pipelines/trips/checkpoints").json()["verdict"]
    assert {**reported["verdict"], "now": 0, "age": 0} == {**whole, "now": 0, "age": 0}
    assert reported["verdict"]["checkpoint"] == 1


def test_a_pipeline_without_a_dag_has_a_verdict_without_a_schedule(
    client: Client, disk: AirflowDiskPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidemark.operations import checkpoints
    from tidemark.ports import PlanRequest

    monkeypatch.setattr("tidemark.airflow.ui.dags.dags_of", lambda pipeline, session: [])
    disk.drive("b1", 3)
    checkpoints.run_once(disk.open_context(), "trips", PlanRequest(origin="cli"))
    [reported] = client("GET", "/verdicts").json()
    assert (reported["schedule"], reported["dag_id"]) == (None, None)
    assert "Airflow knows no DAG" in reported["verdict"]["reason"]
