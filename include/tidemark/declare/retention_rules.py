"""The members of a retention rule: each answers, newest first, whether a checkpoint is kept (D7, D8, E11)."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Protocol
from zoneinfo import ZoneInfo

Watch = Callable[[int], bool | None]
"""Told of logical times, newest first: whether that checkpoint is kept; None = neither it nor any older one."""

MS = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = (datetime(9999, 12, 30, tzinfo=UTC) - _EPOCH) // MS
"""No timezone leads beyond the calendar from here; a person who means "all" may well have asked `until` 9999-12-31."""
_PERIODS: dict[str, Callable[[datetime], tuple[int, ...]]] = {
    "hourly": lambda at: (at.year, at.month, at.day, at.hour),
    "daily": lambda at: (at.year, at.month, at.day),
    "monthly": lambda at: (at.year, at.month),
}


class Member(Protocol):
    """One member of a retention; its text is how it is declared."""

    def watch(self, newest: int) -> Watch:
        """What answers for one history.

        Args:
            newest: logical time of its newest checkpoint.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepLast:
    """The newest ones."""

    n: int

    def __str__(self) -> str:
        return f"keep_last({self.n})"

    def watch(self, newest: int) -> Watch:
        """See `Member`."""
        seen = count(1)
        return lambda at: True if next(seen) <= self.n else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepFor:
    """Those that are young enough, by logical time."""

    duration: timedelta

    def __str__(self) -> str:
        return f"keep_for({repr(self.duration).removeprefix('datetime.')})"

    def watch(self, newest: int) -> Watch:
        """See `Member`."""
        oldest = newest - self.duration // MS
        return lambda at: True if at >= oldest else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepNewestOf:
    """The newest one of each of the last periods that have one."""

    period: str
    n: int
    timezone: str = "UTC"

    def __str__(self) -> str:
        zone = "" if self.timezone == "UTC" else f", timezone={self.timezone!r}"
        return f"{self.period}({self.n}{zone})"

    def watch(self, newest: int) -> Watch:
        """See `Member`."""
        zone, period_of = ZoneInfo(self.timezone), _PERIODS[self.period]
        seen: set[tuple[int, ...]] = set()

        def keeps(at: int) -> bool | None:
            # The last millisecond that it holds: at midnight sharp that is one of the day before.
            period = period_of((_EPOCH + min(at - 1, _LAST_MS) * MS).astimezone(zone))
            if period in seen:
                return False
            seen.add(period)
            return True if len(seen) <= self.n else None

        return keeps


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOnStop:
    """Keeps nothing by itself; see `Retention.in_force`."""

    def __str__(self) -> str:
        return "delete_on_stop()"

    def watch(self, newest: int) -> Watch:
        """See `Member`."""
        return lambda at: None
