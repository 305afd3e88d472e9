"""Local dates by `zoneinfo` alone: a search for the first instant of a date, and instants near changes of a clock."""

import random
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

ZONES = (
    "America/Sao_Paulo",
    "Asia/Beirut",
    "Africa/Casablanca",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Europe/Berlin",
    "America/Havana",
    "America/St_Johns",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "UTC",
)
SIZES = (1, 2, 7, 30, 365)
_EPOCH, _DAY, _MS = date(1970, 1, 1), timedelta(days=1), timedelta(milliseconds=1)


@cache
def first_instant(day: date, zone: str) -> datetime:
    """The first instant of a date: minute by minute, and hour by hour as long as midnight is far."""
    midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001  (local time)
    at = midnight.replace(tzinfo=UTC) - timedelta(hours=16)
    while _local(at, zone) < midnight:
        is_far = _local(at + timedelta(hours=1), zone) < midnight - timedelta(hours=3)
        at += timedelta(hours=1) if is_far else timedelta(minutes=1)
    return at


def window_of(at: datetime, zone: str, days: int) -> tuple[datetime, datetime]:
    """The window of whole dates that holds an instant, by trying one after the other."""
    near = (_local(at, zone).date() - _EPOCH).days - 2
    first = _EPOCH + near // days * days * _DAY
    while first_instant(first + days * _DAY, zone) <= at:
        first += days * _DAY
    return first_instant(first, zone), first_instant(first + days * _DAY, zone)


@cache
def changes(zone: str) -> tuple[datetime, ...]:
    """Days from 2001 to 2047 within which the offset of a zone changes."""
    days = [datetime(2001, 1, 1, tzinfo=UTC) + n * _DAY for n in range(47 * 365)]
    offset = [at.astimezone(ZoneInfo(zone)).utcoffset() for at in days]
    return tuple(day for day, sooner, later in zip(days, offset, offset[1:], strict=False) if sooner != later)


def instants(chance: random.Random, zone: str, n: int) -> list[datetime]:
    """Random instants from 2001 to 2047, most of them close to a change of the offset or to the start of a date."""
    found = []
    for _ in range(n):
        at = datetime(2001, 1, 1, tzinfo=UTC) + chance.randrange(47 * 365 * 86_400_000) * _MS
        if changes(zone) and chance.random() < 0.8:
            at = chance.choice(changes(zone)) + chance.randrange(-3 * 86_400_000, 4 * 86_400_000) * _MS
        if chance.random() < 0.5:
            at = first_instant(at.date(), zone) + chance.choice([-1, 0, 1, 3_600_000, 86_399_999]) * _MS
        found.append(at)
    return found


def _local(at: datetime, zone: str) -> datetime:
    return at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
