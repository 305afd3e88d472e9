"""Windows of whole days in a time zone, against a search through `zoneinfo` that shares no code with them."""

import random
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.local_days import SIZES, ZONES, first_instant, instants, window_of
from tests.support.scale import cases
from tidemark import Tumbling
from tidemark.model.schema.day_windows import DayWindows
from tidemark.model.schema.event_windows import StoredWindow, to_ms


@cache
def days(size: int, zone: str) -> StoredWindow:
    return Tumbling(timedelta(days=size), timezone=zone).stored


@settings(max_examples=cases(50), deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(ZONES), st.sampled_from(SIZES))
def test_a_window_begins_with_the_first_instant_of_its_date(seed: int, zone: str, size: int) -> None:
    chance = random.Random(seed)
    for at in instants(chance, zone, 5):
        start, end = days(size, zone).bounds(at)
        assert (start, end) == window_of(at, zone, size), at
        assert start <= at < end
        assert days(size, zone).bounds(end)[0] == end, "the next window follows without a gap"
        assert days(size, zone).bounds(end - timedelta(milliseconds=1))[1] == end
        until = [to_ms(end) - 1, to_ms(end)]
        assert [days(size, zone).may_close(to_ms(at), frontier) for frontier in until] == [False, True]


@given(st.sampled_from(ZONES), st.sampled_from(SIZES), st.integers(0, 2**32 - 1))
def test_all_instants_of_a_window_have_its_bounds(zone: str, size: int, seed: int) -> None:
    chance = random.Random(seed)
    (at,) = instants(chance, zone, 1)
    window = days(size, zone).bounds(at)
    inside = window[0] + chance.random() * (window[1] - window[0])
    assert days(size, zone).bounds(inside) == window


def test_dates_that_a_clock_skips_or_repeats() -> None:
    def hours(zone: str, day: date) -> tuple[datetime, float]:
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=ZoneInfo(zone))
        start, end = days(1, zone).bounds(noon)
        return start, (end - start) / timedelta(hours=1)

    assert hours("Europe/Berlin", date(2024, 3, 31)) == (datetime(2024, 3, 30, 23, tzinfo=UTC), 23)
    assert hours("Europe/Berlin", date(2024, 10, 27)) == (datetime(2024, 10, 26, 22, tzinfo=UTC), 25)
    # Midnight comes twice: the first one counts.
    assert hours("America/Havana", date(2024, 11, 3)) == (datetime(2024, 11, 3, 4, tzinfo=UTC), 25)
    # Midnight does not come: the date begins at one o'clock, 03:00 UTC.
    assert hours("America/Sao_Paulo", date(2018, 11, 4)) == (datetime(2018, 11, 4, 3, tzinfo=UTC), 23)
    # At midnight the clock goes back to 23:00, so that the day before has 25 hours.
    assert hours("America/Sao_Paulo", date(2018, 2, 17)) == (datetime(2018, 2, 17, 2, tzinfo=UTC), 25)
    assert hours("Australia/Lord_Howe", date(2024, 4, 7)) == (datetime(2024, 4, 6, 13, tzinfo=UTC), 24.5)
    # 2011-12-30 did not happen in Samoa.
    before, after = date(2011, 12, 29), date(2011, 12, 31)
    assert hours("Pacific/Apia", before) == (datetime(2011, 12, 29, 10, tzinfo=UTC), 24)
    assert hours("Pacific/Apia", after) == (datetime(2011, 12, 30, 10, tzinfo=UTC), 24)
    week = days(7, "Pacific/Apia").bounds(datetime(2011, 12, 30, tzinfo=UTC))
    assert week[1] - week[0] == timedelta(days=6)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Pacific/Apia", "Africa/Casablanca"])
def test_all_dates_of_two_years(zone: str) -> None:
    found, dates = days(1, zone), [date(2010, 12, 1) + timedelta(days=n) for n in range(2 * 365)]
    for start, end in pairwise(sorted({first_instant(day, zone) for day in dates})):
        assert found.bounds(start) == (start, end)
        assert found.bounds(end - timedelta(milliseconds=1)) == (start, end)


def test_before_and_after_the_known_years_the_first_and_the_last_offset_count() -> None:
    found = days(1, "Europe/Berlin")
    for year in (1, 1985, 2060, 9998):
        at = datetime(year, 7, 1, 12, tzinfo=UTC)
        assert found.bounds(at) == (at - timedelta(hours=13), at + timedelta(hours=11)), "an hour before UTC"


@given(st.lists(st.tuples(st.integers(1, 400_000), st.integers(-50_000, 50_000)), min_size=0, max_size=6), st.data())
def test_any_offsets_make_windows_without_gaps(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    """Also offsets that no zone has: several a day, and changes of half a day."""
    since, offsets = 0, []
    for step, offset in steps or [(1, 0)]:
        since += step
        offsets.append((since, offset))
    window = DayWindows(days=data.draw(st.integers(1, 3)), timezone="x", offsets=tuple(offsets))
    at = data.draw(st.integers(-200_000, since + 200_000)) * 1000
    start, end = window.span(at)

    def date_of(second: int) -> int:
        held = [offset for when, offset in offsets if when <= second]
        return (second + (held[-1] if held else offsets[0][1])) // 86_400

    greatest = max(date_of(second) for second in [at // 1000, *(w - 1 for w, _ in offsets if w <= at // 1000)])
    first = greatest // window.days * window.days
    assert start <= at < end
    assert date_of(start // 1000) >= first > date_of(start // 1000 - 1)
    assert window.span(start) == window.span(end - 1) == (start, end)
    assert window.span(end)[0] == end and window.span(start - 1)[1] == start
