"""Retention: what each member keeps and why, and what is refused."""

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemark import Retention
from tidemark.declare.retention import Subsumption
from tidemark.errors import DeclarationError


def ms(text: str) -> int:
    """Milliseconds of an ISO time; UTC where it names no offset."""
    at = datetime.fromisoformat(text)
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def history(*times: str) -> dict[int, int]:
    """chk-1, chk-2, … at these logical times."""
    return {number: ms(text) for number, text in enumerate(times, start=1)}


def days(n: int, hour: int = 12) -> dict[int, int]:
    """chk-1 … chk-n, one a day from 1 March 2024 on."""
    return {d: ms(f"2024-03-{d:02}T{hour:02}:00") for d in range(1, n + 1)}


def kept(rule: Retention, checkpoints: dict[int, int]) -> list[int]:
    return list(rule.subsume(checkpoints).kept)


def test_keep_last_2_keeps_what_num_retained_2_keeps() -> None:
    rule, seen = Retention.keep_last(2), dict[int, int]()
    store: list[int] = []
    for number, at in days(5).items():
        seen[number] = at
        store = [*store, number][-2:]  # Flink adds the completed one, then drops the oldest while there are more than 2
        assert kept(rule, seen) == store


def test_keep_for_measures_age_from_the_newest_checkpoint_not_from_today() -> None:
    checkpoints = history("2013-01-01", "2013-01-08T00:00:00", "2013-01-08T00:00:00.001", "2013-01-15")
    assert kept(Retention.keep_for(timedelta(days=7)), checkpoints) == [2, 3, 4]
    assert kept(Retention.keep_for(timedelta(days=7) - timedelta(milliseconds=1)), checkpoints) == [3, 4]


def test_the_newest_of_each_period_is_kept_and_empty_periods_do_not_count() -> None:
    checkpoints = history(
        "2024-01-31T10:00", "2024-01-31T18:00", "2024-02-02T09:10", "2024-02-02T09:30", "2024-02-20T08:00"
    )
    assert kept(Retention.hourly(3), checkpoints) == [2, 4, 5]
    assert kept(Retention.daily(2), checkpoints) == [4, 5]
    assert kept(Retention.daily(3), checkpoints) == [2, 4, 5]
    assert kept(Retention.monthly(1), checkpoints) == [5]
    assert kept(Retention.monthly(9), checkpoints) == [2, 5]


def test_the_same_month_day_or_hour_of_another_year_is_another_one() -> None:
    checkpoints = history("2023-03-10T12:30", "2024-03-10T12:30")
    for rule in (Retention.hourly(2), Retention.daily(2), Retention.monthly(2)):
        assert kept(rule, checkpoints) == [1, 2]


def test_a_checkpoint_at_midnight_counts_for_the_day_that_it_completes() -> None:
    checkpoints = history("2024-02-28T23:00", "2024-02-29", "2024-02-29T23:00", "2024-03-01", "2024-03-01T01:00")
    assert kept(Retention.daily(3), checkpoints) == [2, 4, 5], "the ones that hold a whole day"
    assert kept(Retention.monthly(2), checkpoints) == [4, 5]
    assert kept(Retention.hourly(2), history("2024-03-01T00:30", "2024-03-01T01:00", "2024-03-01T02:00")) == [2, 3]


def test_months_of_a_timezone_are_its_own() -> None:
    checkpoints = history("2013-06-30T20:00-04:00", "2013-06-30T22:00-04:00", "2013-07-31T23:30-04:00")
    assert kept(Retention.monthly(12, timezone="America/New_York"), checkpoints) == [2, 3]
    assert kept(Retention.monthly(12), checkpoints) == [1, 2, 3], "at 22:00 in New York it is July in UTC"


def test_the_intervals_of_the_flights_are_twelve_months_of_new_york() -> None:
    ends = [f"2013-{m:02}-01T00:00{'-04:00' if 4 <= m <= 11 else '-05:00'}" for m in range(2, 13)]
    checkpoints = history(*ends, "2014-01-01T00:00-05:00")
    assert len(kept(Retention.monthly(12, timezone="America/New_York"), checkpoints)) == 12
    assert kept(Retention.monthly(3, timezone="America/New_York"), checkpoints) == [10, 11, 12]


def test_the_hour_that_the_clocks_repeat_is_two_hours() -> None:
    checkpoints = history("2013-11-03T01:30-04:00", "2013-11-03T01:30-05:00")
    assert kept(Retention.hourly(2), checkpoints) == [1, 2]
    assert kept(Retention.daily(2, timezone="America/New_York"), checkpoints) == [2]


def test_a_checkpoint_is_kept_if_any_member_keeps_it_and_every_reason_is_named() -> None:
    found = (Retention.keep_last(2) | Retention.monthly(2)).subsume(
        history("2024-01-10", "2024-01-20", "2024-02-10", "2024-02-20", "2024-02-21"), pinned={1: "savepoint spring"}
    )
    assert found == Subsumption(
        kept={
            1: ("savepoint spring",),
            2: ("monthly(2)",),
            4: ("keep_last(2)",),
            5: ("newest", "keep_last(2)", "monthly(2)"),
        },
        released=(3,),
    )


def test_a_pin_adds_and_takes_no_place() -> None:
    found = Retention.keep_last(2).subsume(days(4), pinned={4: "hold", 1: "savepoint a", 77: "of another timeline"})
    assert found.kept == {
        1: ("savepoint a",),
        3: ("keep_last(2)",),
        4: ("newest", "keep_last(2)", "hold"),
    }
    assert found.released == (2,)


def test_of_equal_logical_times_the_later_checkpoint_is_the_newer() -> None:
    noon = ms("2024-03-01T12:00")
    assert kept(Retention.daily(1), {8: noon, 9: noon, 7: noon}) == [9]


def test_nothing_completed_is_nothing_released() -> None:
    assert Retention.keep_last(1).subsume({}) == Subsumption(kept={}, released=())


@pytest.mark.parametrize("number", [0, 1, 2**70])
def test_one_checkpoint_is_kept_by_every_rule(number: int) -> None:
    rule = Retention.keep_last(9) | Retention.keep_for(timedelta.max - timedelta(microseconds=999_999))
    assert kept(rule | Retention.hourly(2**80), {number: 0}) == [number]


def test_the_end_of_the_calendar_is_a_day_in_every_timezone() -> None:
    last = ms("9999-12-31T23:59:59+00:00")
    for zone in ("Pacific/Kiritimati", "Pacific/Niue"):
        assert kept(Retention.daily(2, timezone=zone), {1: 0, 2: last}) == [1, 2]


@pytest.mark.parametrize(
    ("checkpoints", "text"),
    [
        (days(1), "none"),
        (days(3), "chk-1"),
        (days(5), "chk-1 to chk-3"),
        ({4: 4, 9: 9, 11: 11, 20: 20}, "chk-4 to chk-9"),
    ],
)
def test_what_is_released_is_told_in_spans(checkpoints: dict[int, int], text: str) -> None:
    assert Retention.keep_last(2).subsume(checkpoints).released_text == text


def test_kept_checkpoints_part_the_spans() -> None:
    found = Retention.keep_last(1).subsume(days(9), pinned={4: "a", 6: "b"})
    assert found.released_text == "chk-1 to chk-3, chk-5, chk-7 to chk-8"


RULE = (
    Retention.keep_last(10)
    | Retention.keep_for(timedelta(days=7))
    | Retention.hourly(24)
    | Retention.daily(30)
    | Retention.monthly(12, timezone="Europe/Berlin")
)


def test_a_rule_reads_as_it_was_written() -> None:
    assert str(Retention.keep_last(10) | Retention.daily(30)) == "keep_last(10) | daily(30)"
    zone = "monthly(12, timezone='Europe/Berlin')"
    assert str(RULE) == f"keep_last(10) | keep_for(timedelta(days=7)) | hourly(24) | daily(30) | {zone}"
    assert eval(repr(RULE)) == RULE  # noqa: S307
    assert repr(Retention.daily(3)) == "Retention.daily(3)"


def test_a_rule_is_a_value() -> None:
    assert copy.deepcopy(RULE) == pickle.loads(pickle.dumps(RULE)) == RULE  # noqa: S301
    assert len({RULE, RULE | RULE, RULE | Retention.daily(30)}) == 1, "no member counts twice"
    assert Retention.daily(30) != Retention.daily(30, timezone="Europe/Berlin")
    with pytest.raises(AttributeError):
        RULE.members = ()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("declare", "words", "remedy"),
    [
        (lambda: Retention.keep_last(0), r"keep_last\(0\)", "at least 1"),
        (lambda: Retention.keep_last(-1), r"keep_last\(-1\)", "newest checkpoint is always kept"),
        (lambda: Retention.hourly(1.0), r"hourly\(1.0\)", "whole number"),  # type: ignore[arg-type]
        (lambda: Retention.daily("30"), r"daily\('30'\)", "whole number"),  # type: ignore[arg-type]
        (lambda: Retention.monthly(True), r"monthly\(True\)", "whole number"),
        (lambda: Retention.daily(None), r"daily\(None\)", "whole number"),  # type: ignore[arg-type]
        (lambda: Retention.keep_for(7), r"keep_for\(7\)", "timedelta"),  # type: ignore[arg-type]
        (lambda: Retention.keep_for(timedelta(0)), "keep_for", "positive timedelta"),
        (lambda: Retention.keep_for(-timedelta(days=1)), "keep_for", "positive timedelta"),
        (lambda: Retention.keep_for(timedelta(microseconds=1500)), "keep_for", "whole milliseconds"),
        (lambda: Retention.daily(3, timezone="New York"), "timezone='New York'", "America/New_York"),
        (lambda: Retention.daily(3, timezone=""), "timezone=''", "IANA"),
        (lambda: Retention.monthly(3, timezone="America"), "timezone='America'", "IANA"),
        (lambda: Retention.monthly(3, timezone="../../etc/localtime"), "no such timezone", "IANA"),
        (lambda: Retention.monthly(3, timezone=None), "timezone=None", "IANA"),  # type: ignore[arg-type]
        (lambda: Retention.keep_last(3) | 5, r"keep_last\(3\) \| 5", r"Retention.daily\(n\)"),
        (lambda: Retention.keep_last(3) | None, r"keep_last\(3\) \| None", "join"),
        (lambda: Retention.keep_last(3) | Retention.daily, "bound method", "join"),
        (lambda: Retention(members=()), "without members", "join"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_next_step(declare: Callable[[], Any], words: str, remedy: str) -> None:
    with pytest.raises(DeclarationError, match=words) as caught:
        declare()
    assert caught.match(remedy)
