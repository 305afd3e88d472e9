"""Retention against brute force: boundaries of periods are walked on the calendar, and every pair is compared."""

from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemark import Retention

FROM, THROUGH = date(2018, 8, 1), date(2019, 5, 31)
"""Both changes of the clocks of each zone below are in between; Sao Paulo has no midnight on one of the days."""
EARLIEST, LATEST = datetime(2018, 9, 2, tzinfo=UTC), datetime(2019, 4, 29, tzinfo=UTC)
"""Checkpoints are in between: well within the calendar that is walked, in every zone."""
ZONES = ("UTC", "America/New_York", "America/Sao_Paulo", "Asia/Kolkata", "Pacific/Chatham")
Spec = tuple[str, Any, str]
"""Kind of a member, its number or duration, its timezone."""


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _firsts(kind: str, zone: str) -> list[int]:
    """The instants, in milliseconds, at which an hour, a day or a month of the test's span begins."""
    if kind == "hourly":
        begin = _ms(datetime(FROM.year, FROM.month, FROM.day, tzinfo=UTC))
        return [begin + hour * 3_600_000 for hour in range(((THROUGH - FROM).days + 2) * 24)]
    count = (THROUGH - FROM).days + 2
    dates = [FROM + timedelta(days=n) for n in range(count)]
    wanted = [d for d in dates if kind == "daily" or d.day == 1]
    return [_ms(datetime(d.year, d.month, d.day, tzinfo=ZoneInfo(zone))) for d in wanted]


FIRSTS = {(k, z): _firsts(k, z) for k in ("hourly", "daily", "monthly") for z in (ZONES if k != "hourly" else ("UTC",))}
INSIDE = [[at for at in firsts if _ms(EARLIEST) < at < _ms(LATEST)] for firsts in FIRSTS.values()]


def _member(spec: Spec) -> Retention:
    kind, size, zone = spec
    made: Callable[..., Retention] = getattr(Retention, kind)
    return made(size, timezone=zone) if kind in ("daily", "monthly") else made(size)


def _keeps(spec: Spec, one: int, checkpoints: dict[int, int]) -> bool:
    """Whether a member keeps one checkpoint, asked of every other checkpoint in turn."""
    kind, size, zone = spec
    newer = [n for n in checkpoints if (checkpoints[n], n) > (checkpoints[one], one)]
    if kind == "keep_last":
        return bool(len(newer) < size)
    if kind == "keep_for":
        return all(checkpoints[n] - checkpoints[one] <= size / timedelta(milliseconds=1) for n in newer)
    firsts = FIRSTS[kind, zone]
    own = bisect_left(firsts, checkpoints[one])  # an instant that is a boundary itself belongs to what it ends
    periods = {bisect_left(firsts, checkpoints[n]) for n in newer}
    return own not in periods and len(periods) < size


durations = st.one_of(
    st.integers(1, 10**9).map(lambda n: timedelta(milliseconds=n * 30)),
    st.integers(1, 96).map(lambda n: timedelta(minutes=30 * n)),  # just as far apart as some checkpoints are
)
members = st.one_of(
    st.tuples(st.just("keep_last"), st.integers(1, 6), st.just("UTC")),
    st.tuples(st.just("keep_for"), durations, st.just("UTC")),
    st.tuples(st.just("hourly"), st.integers(1, 8), st.just("UTC")),
    st.tuples(st.sampled_from(["daily", "monthly"]), st.integers(1, 8), st.sampled_from(ZONES)),
)
rules = st.lists(members, min_size=1, max_size=4)


@st.composite
def timelines(draw: st.DrawFn) -> dict[int, int]:
    """Checkpoints at and beside boundaries of periods, and anywhere; ids ascend with gaps, times may repeat."""
    near = st.builds(
        lambda place, kind, beside: INSIDE[kind][place % len(INSIDE[kind])] + beside,
        st.integers(0, 10**5),
        st.integers(0, len(INSIDE) - 1),
        st.sampled_from([-1, 0, 1, 0, 1_800_000]),
    )
    anywhere = st.integers(_ms(EARLIEST), _ms(LATEST))
    close = st.integers(0, 96).map(lambda n: _ms(datetime(2018, 11, 2, tzinfo=UTC)) + n * 1_800_000)
    times = sorted(draw(st.lists(st.one_of(near, anywhere, close), max_size=40)))
    steps = draw(st.lists(st.integers(1, 3), min_size=len(times), max_size=len(times)))
    return {sum(steps[: place + 1]): at for place, at in enumerate(times)}


MIDNIGHTS = {n: at for n, at in enumerate(FIRSTS["daily", "America/Sao_Paulo"][90:100], start=1)}
"""4 November 2018, which begins at one o'clock, is among them."""


@settings(max_examples=200, deadline=None)
@given(rules, timelines(), st.dictionaries(st.integers(1, 90), st.sampled_from(["savepoint a", "hold"]), max_size=3))
@example([("daily", 5, "America/Sao_Paulo")], MIDNIGHTS, {})
def test_a_rule_keeps_what_brute_force_keeps_and_for_the_same_reasons(
    specs: list[Spec], checkpoints: dict[int, int], pinned: dict[int, str]
) -> None:
    rule = reduce(or_, map(_member, specs))
    found = rule.subsume(checkpoints, pinned=pinned)
    newest = max(checkpoints, default=None)
    expected = {}
    for one in checkpoints:
        reasons = ["newest"] * (one == newest)
        reasons += [str(_member(s)) for s in dict.fromkeys(specs) if _keeps(s, one, checkpoints)]
        expected[one] = (*reasons, *([pinned[one]] if one in pinned else []))
    assert dict(found.kept) == {one: why for one, why in expected.items() if why}
    assert list(found.released) == [one for one, why in expected.items() if not why]


@settings(deadline=None)
@given(rules, timelines())
def test_no_more_of_the_history_is_read_than_the_rule_may_keep(specs: list[Spec], checkpoints: dict[int, int]) -> None:
    rule = reduce(or_, map(_member, specs))
    history = iter(sorted(checkpoints.items(), reverse=True))
    kept = rule.select(history)
    unread = {number for number, _ in history}
    assert set(kept) == set(rule.subsume(checkpoints).kept)
    assert not unread & set(kept)
    if all(kind in ("keep_last", "keep_for") for kind, *_ in specs):
        assert len(checkpoints) - len(unread) <= len(kept) + 1


@settings(deadline=None)
@given(rules, rules, timelines())
def test_joining_keeps_what_either_keeps_in_any_order(
    a: list[Spec], b: list[Spec], checkpoints: dict[int, int]
) -> None:
    one, two = reduce(or_, map(_member, a)), reduce(or_, map(_member, b))
    joined = (one | two).subsume(checkpoints)
    assert set(joined.kept) == set((two | one).subsume(checkpoints).kept)
    assert set(joined.kept) == set(one.subsume(checkpoints).kept) | set(two.subsume(checkpoints).kept)
    assert sorted([*joined.kept, *joined.released]) == sorted(checkpoints), "every checkpoint is one or the other"


@settings(deadline=None)
@given(rules, timelines())
def test_what_was_released_stays_released_when_more_checkpoints_complete(
    specs: list[Spec], checkpoints: dict[int, int]
) -> None:
    rule, seen, gone = reduce(or_, map(_member, specs)), dict[int, int](), set[int]()
    for number, at in checkpoints.items():
        seen[number] = at
        now = set(rule.subsume(seen).released)
        assert gone <= now
        gone = now


@settings(deadline=None)
@given(rules, timelines())
def test_deleting_what_is_released_changes_nothing_of_what_is_kept(
    specs: list[Spec], checkpoints: dict[int, int]
) -> None:
    rule = reduce(or_, map(_member, specs))
    found = rule.subsume(checkpoints)
    again = rule.subsume({number: checkpoints[number] for number in found.kept})
    assert again.released == ()
    assert set(again.kept) == set(found.kept)


@settings(deadline=None)
@given(st.integers(1, 9), timelines(), st.sampled_from(["keep_last", "hourly", "daily", "monthly"]))
def test_a_greater_number_keeps_no_less(n: int, checkpoints: dict[int, int], kind: str) -> None:
    less, more = (set(getattr(Retention, kind)(size).subsume(checkpoints).kept) for size in (n, n + 1))
    assert less <= more
    assert len(less) <= n


@given(rules)
def test_a_rule_reads_back_from_its_repr(specs: list[Spec]) -> None:
    rule = reduce(or_, map(_member, specs))
    assert eval(repr(rule)) == rule  # noqa: S307
    assert repr(rule).replace("Retention.", "") == str(rule)


@pytest.mark.parametrize("zone", ZONES)
def test_the_oracles_days_are_calendar_days(zone: str) -> None:
    lengths = {b - a for a, b in zip(FIRSTS["daily", zone], FIRSTS["daily", zone][1:], strict=False)}
    assert lengths <= {h * 3_600_000 for h in (23, 24, 25)}
    assert (len(lengths) == 3) == (zone in ("America/New_York", "America/Sao_Paulo", "Pacific/Chatham"))
