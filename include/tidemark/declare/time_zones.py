"""Time zones that a declaration names, and their UTC offsets by the time zone data of this machine."""

from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from tidemark.errors import DeclarationError

_FIRST, _LAST = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2000, 2050))
_STEP = 2 * 86_400


def checked_zone(what: str, timezone: object) -> ZoneInfo:
    """Returns the time zone with a name.

    Args:
        what: the name of the call that takes `timezone`, for the message.
        timezone: its name in the IANA time zone database.

    Raises:
        DeclarationError: there is no such zone, or this machine has no time zone data at all.
    """
    try:
        return ZoneInfo(str(timezone))
    except (KeyError, ValueError, OSError) as error:
        if not available_timezones():
            raise DeclarationError(
                f"{what}(timezone={timezone!r}): this machine has no time zone data",
                next="install it: the Python package tzdata, or the package tzdata of the operating system.",
            ) from error
        raise DeclarationError(
            f"{what}(timezone={timezone!r}): no such timezone",
            next="use a name of the IANA time zone database, as in 'America/New_York'.",
        ) from error


@cache
def utc_offsets(zone: ZoneInfo) -> tuple[tuple[int, int], ...]:
    """Returns the UTC offsets of a zone from 2000 to 2050: from which second since the epoch, and how many seconds.

    >>> utc_offsets(ZoneInfo("Europe/Berlin"))[:3]
    ((946684800, 3600), (954032400, 7200), (972781200, 3600))

    An offset that holds for less than two days may be missing.
    """
    found = [(_FIRST, _offset(zone, _FIRST))]
    for day in range(_FIRST, _LAST, _STEP):
        while _offset(zone, day + _STEP) != found[-1][1]:
            before, since = max(day, found[-1][0]), day + _STEP
            while since - before > 1:
                middle = (before + since) // 2
                before, since = (middle, since) if _offset(zone, middle) == found[-1][1] else (before, middle)
            found.append((since, _offset(zone, since)))
    return tuple(found)


def _offset(zone: ZoneInfo, at: int) -> int:
    """Its offset in seconds at a second since the epoch."""
    offset = datetime.fromtimestamp(at, zone).utcoffset()
    assert offset is not None  # noqa: S101  (for the type checker: an aware datetime has one)
    return offset.days * 86_400 + offset.seconds
