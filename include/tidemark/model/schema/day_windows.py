"""Windows of whole days in a time zone, by UTC offsets that the stored schema has."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

from tidemark.model.schema.event_windows import Span, StoredWindow

_DAY = 86_400
_BOUNDS = ("start", "end", "other_start", "other_end")
Offset = tuple[int, int]
"""From when, in seconds since the epoch, and the offset of local time from UTC in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayWindows(StoredWindow):
    """Windows that begin with the first instant of a local date and hold whole dates.

    A date begins at the first instant whose local time is at or after its midnight. If midnight comes twice, the first
    one counts; if a clock skips it, the instant of the skip; a date that is skipped as a whole has no instant.

    Attributes:
        days: dates of a window; its first one is a multiple of them since 1970-01-01.
        timezone: name of the time zone.
        offsets: the UTC offsets of the zone by time. The first one counts before its time as well.
    """

    kind: ClassVar[str] = "days"
    days: int
    timezone: str
    offsets: tuple[Offset, ...]

    @property
    def shown(self) -> str:
        """See `StoredWindow`; without offsets, because a release of the time zone data makes no other key."""
        return f"windows of {self.days} {'day' if self.days == 1 else 'days'} in {self.timezone}"

    @property
    def declared(self) -> StoredWindow:
        """See `StoredWindow`; the offsets are those of the machine that declares."""
        return replace(self, offsets=())

    def span(self, at: int) -> Span:
        """See `StoredWindow`."""
        start, end = self._window(at // 1000)
        return start * 1000, end * 1000

    def time_sql(self, at: str) -> str:
        """A struct: the time, and the bounds of two odd windows near it, from constant arrays by a part of time."""
        parts = _Parts.of(self)
        last = len(parts.bounds) - 1
        part = (
            f"CAST(least(greatest(({at} - {parts.start * 1000}L) div {parts.length * 1000}L, 0L), {last}L) + 1L AS INT)"
        )
        fields = [f"'at', {at}"]
        for name, column in zip(_BOUNDS, zip(*parts.bounds, strict=True), strict=True):
            # Spark folds the array to one constant. Parsing this text is cheaper than a literal per number.
            numbers = f"CAST(split('{','.join(map(str, column))}', ',') AS ARRAY<BIGINT>)"
            fields.append(f"'{name}', element_at({numbers}, {part}) * 1000L")
        return f"named_struct({', '.join(fields)})"

    def span_sql(self, at: str) -> tuple[str, str]:
        """See `StoredWindow`."""
        start, end, other_start, other_end = (f"{at}.{name}" for name in _BOUNDS)
        at, regular = f"{at}.at", f"{self._regular * 1000}L"
        is_in_one = f"{at} >= {start} AND {at} < {end}"
        is_in_other = f"{at} >= {other_start} AND {at} < {other_end}"
        near = f"CASE WHEN {at} < {start} THEN {start} WHEN {at} < {other_start} THEN {end} ELSE {other_end} END"
        begin = f"({at} - pmod({at} - {near}, {regular}))"
        return (
            f"(CASE WHEN {is_in_one} THEN {start} WHEN {is_in_other} THEN {other_start} ELSE {begin} END)",
            f"(CASE WHEN {is_in_one} THEN {end} WHEN {is_in_other} THEN {other_end} ELSE {begin} + {regular} END)",
        )

    def may_close(self, before: int | None, after: int) -> bool:
        """See `StoredWindow`."""
        return before is None or self.span(before)[1] <= after

    def to_json(self) -> dict[str, Any]:
        """See `StoredWindow`."""
        offsets = [list(offset) for offset in self.offsets]
        return {"kind": self.kind, "days": self.days, "timezone": self.timezone, "offsets": offsets}

    @classmethod
    def of_json(cls, body: Mapping[str, Any]) -> "DayWindows":
        """The inverse of `to_json`."""
        offsets = tuple((since, offset) for since, offset in body["offsets"])
        return cls(days=body["days"], timezone=body["timezone"], offsets=offsets)

    @property
    def _regular(self) -> int:
        """Seconds of a window in which the offset does not change."""
        return self.days * _DAY

    def odd(self) -> list[Span]:
        """Returns the windows of another length than usual, in seconds; those without an instant are left out."""
        found = set[Span]()
        for since, _ in self.offsets[1:]:
            first, last = (self._date(since + days * _DAY) // self.days for days in (-2, 2))
            begins = [self._begin(n * self.days) for n in range(first, last + 2)]
            found |= {(start, end) for start, end in pairwise(begins) if end - start not in (0, self._regular)}
        return sorted(found)

    def _window(self, at: int) -> Span:
        """The bounds of the window of a time, in seconds."""
        first = self._date(at) // self.days * self.days
        return self._begin(first), self._begin(first + self.days)

    def _date(self, at: int) -> int:
        """The last date that has begun by a time, in days since 1970-01-01."""
        n = max(bisect_right(self.offsets, (at, _DAY)) - 1, 0)
        date = (at + self.offsets[n][1]) // _DAY
        while self._begin(date + 1) <= at:
            date += 1
        return date

    def _begin(self, date: int) -> int:
        """The first instant of a date, in seconds."""
        midnight = date * _DAY
        # Offsets are shorter than a day, so no earlier one reaches midnight.
        n = max(bisect_right(self.offsets, (midnight - _DAY, _DAY)) - 1, 0)
        found = midnight - self.offsets[n][1]
        while n + 1 < len(self.offsets) and found >= self.offsets[n + 1][0]:
            n += 1
            found = max(midnight - self.offsets[n][1], self.offsets[n][0])
        return found

    def anchor(self) -> int:
        """Returns the start of some window, in seconds."""
        return self._begin(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Time in equal parts, of which each meets at most two odd windows; in seconds.

    Attributes:
        start: start of the first part, which also counts for earlier times, as the last one does for later times.
        length: length of a part.
        bounds: per part the bounds of two odd windows, of which one or both may be empty. All other windows of the part
            are regular, counted from the next of these bounds.
    """

    start: int
    length: int
    bounds: tuple[tuple[int, int, int, int], ...]

    @classmethod
    def of(cls, window: DayWindows) -> "_Parts":
        """Returns the parts; a longer one could meet a third odd window."""
        odd = window.odd()
        if not odd:
            anchor = window.anchor()
            return cls(start=anchor, length=1, bounds=((anchor,) * 4,))
        start, end = odd[0][0], odd[-1][1]
        length = min((later[0] - sooner[1] for sooner, later in zip(odd, odd[2:], strict=False)), default=end - start)
        bounds = list[tuple[int, int, int, int]]()
        for begin in range(start, end, length):
            met = [w for w in odd if w[0] < begin + length and w[1] > begin]
            # Without any, all windows are regular from the end of the last one on.
            one = met[0] if met else bounds[-1][2:]
            other = met[1] if len(met) > 1 else (one[1], one[1])
            bounds.append((*one, *other))
        return cls(start=start, length=length, bounds=tuple(bounds))
