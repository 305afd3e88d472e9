"""Windows of whole days in a time zone: what is refused, and offsets that the first plan freezes."""

import json
import zoneinfo
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.support.bank import P0, BankPipeline
from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Retention, Tumbling, state
from tidemark.declare import time_zones, windows
from tidemark.errors import DeclarationError, IncompatibleStateError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.schema.day_windows import DayWindows
from tidemark.model.schema.event_windows import StoredWindow
from tidemark.testing.twin.memory import ManualClock

DAY_MS = 86_400_000


@dataclass(frozen=True)
class Deposit:
    """A record."""

    account: str
    at: datetime


class Deposits(state.Keyed):
    """How many there are."""

    n: int = state.count()


def pipeline(window: Tumbling | None = None, **more: Any) -> Pipeline:
    window = window or Tumbling("1d", timezone="Europe/Berlin")
    fold = Fold("days", key_by="account", state=Deposits, window=window, sink=DeltaSink("days"), **more)
    source = KafkaSource("payments", Deposit, event_time="at")
    return Pipeline(name="bank", source=source, operators=[fold], max_dead_letters=1.0)


def deposit(made: BankPipeline, *at: datetime) -> Checkpoint:
    for when in at:
        made.log.append(P0, json.dumps({"account": "a", "at": when.isoformat()}).encode(), timestamp_ms=0)
    return made.complete()


def window_of(found: Checkpoint) -> StoredWindow:
    (schema,) = found.plan.schemas.values()
    window = schema.window
    assert window is not None
    return window


@pytest.fixture
def other_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on declarations find time zone data by which Berlin is two hours ahead of UTC, always."""
    monkeypatch.setattr(windows, "utc_offsets", lambda zone: ((0, 7200),))


def test_later_plans_keep_the_offsets_of_the_first(request: pytest.FixtureRequest) -> None:
    made = BankPipeline(pipeline(), clock=ManualClock(int(datetime(2030, 1, 1, tzinfo=UTC).timestamp()) * 1000))
    first = deposit(made, datetime(2024, 1, 9, 12, tzinfo=UTC))
    before = made.pipeline.fingerprint
    request.getfixturevalue("other_data")
    made.pipeline = pipeline()
    assert made.pipeline.schemas()["days"].window != window_of(first)
    assert made.pipeline.fingerprint == before, "a plan of a machine with other data is finished, not aborted"
    second = deposit(made, datetime(2024, 1, 9, 22, 30, tzinfo=UTC), datetime(2024, 1, 11, tzinfo=UTC))
    assert window_of(second) == window_of(first)
    (row,) = made.tables.rows(second.sinks["days"].handle)
    assert (row["n"], row["window_end"]) == (2, datetime(2024, 1, 9, 23, tzinfo=UTC))
    (fold,) = made.pipeline.operators
    made.pipeline = replace(made.pipeline, operators=[replace(fold, uid="by_day", was="days")])
    assert window_of(deposit(made, datetime(2024, 1, 12, tzinfo=UTC))) == window_of(first)


def test_an_operator_without_state_yet_keeps_them_too(request: pytest.FixtureRequest) -> None:
    made = BankPipeline(pipeline(where="account = 'b'"), clock=ManualClock(DAY_MS * 30_000))
    first = deposit(made, datetime(2024, 1, 9, 12, tzinfo=UTC))
    assert not first.handles["days"]
    request.getfixturevalue("other_data")
    made.pipeline = pipeline(where="account = 'b'")
    assert window_of(deposit(made, datetime(2024, 1, 10, tzinfo=UTC))) == window_of(first)


@pytest.mark.parametrize(
    "other",
    [
        Tumbling("1d", timezone="Europe/Paris"),
        Tumbling("2d", timezone="Europe/Berlin"),
        Tumbling("1d"),
    ],
)
def test_another_zone_or_size_is_another_key(other: Tumbling) -> None:
    made = BankPipeline(pipeline(), clock=ManualClock(DAY_MS * 30_000))
    deposit(made, datetime(2024, 1, 9, 12, tzinfo=UTC))
    made.pipeline = pipeline(other)
    with pytest.raises(IncompatibleStateError, match=r"windows of 1 day in Europe/Berlin.*became.*give the operator a"):
        made.complete()


def test_manifests_have_the_offsets_in_a_few_kilobytes() -> None:
    for zone in ("Europe/Berlin", "Africa/Casablanca", "Asia/Gaza", "UTC"):
        window = Tumbling("7d", timezone=zone).stored
        written = json.dumps(window.to_json())
        assert len(written) < 3000
        assert StoredWindow.from_json(json.loads(written)) == window
        assert len(window.time_sql("at")) < 30_000, "the SQL of a checkpoint is sent to Spark"


@pytest.mark.parametrize("size", ["1h", "36h", "90s", timedelta(days=1, hours=1)])
def test_only_whole_days_have_a_time_zone(size: str | timedelta) -> None:
    with pytest.raises(DeclarationError, match=r"size=.*timezone='Europe/Berlin': only whole days") as refused:
        Tumbling(size, timezone="Europe/Berlin")
    assert '"1d"' in refused.value.next


@pytest.mark.parametrize("zone", ["Europe/Berlim", "", "Europe", "../../etc/localtime", "+01:00"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(DeclarationError, match=r"Tumbling\(timezone='.*'\): no such timezone"):
        Tumbling("1d", timezone=zone)


def test_a_machine_without_time_zone_data_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ZoneInfo:
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(time_zones, "ZoneInfo", missing)
    monkeypatch.setattr(time_zones, "available_timezones", set)
    for declare in (lambda: Tumbling("1d", timezone="UTC"), lambda: Retention.daily(3, timezone="Europe/Berlin")):
        with pytest.raises(DeclarationError, match="has no time zone data") as refused:
            declare()
        assert "the Python package tzdata" in refused.value.next


def test_a_day_has_a_size_of_its_own_and_weeks_begin_on_thursdays() -> None:
    window = Tumbling("7d", timezone="Europe/Berlin").stored
    assert isinstance(window, DayWindows)
    assert window.days == 7 and window.shown == "windows of 7 days in Europe/Berlin"
    start, end = window.bounds(datetime(2024, 4, 1, tzinfo=UTC))
    assert start == datetime(2024, 3, 27, 23, tzinfo=UTC) and end - start == timedelta(days=7, hours=-1)
