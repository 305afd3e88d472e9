"""Windows over event time: which rows a record counts in, in Python and in the SQL of Spark and DuckDB.

Windows are half-open, and aligned to 1970-01-01 UTC as Flink's TumblingEventTimeWindows and SlidingEventTimeWindows
without an offset. A stored row has two bounds next to its key, and rows merge by key and bounds, while the key group is
that of the key alone. For most windows the bounds are those of the window. A sliding window is stored as panes, of
which each belongs to several windows. The rows of a session have the bounds of the records that a batch brought, and
rows of a key that overlap are one session.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from math import gcd
from typing import Any, ClassVar

from tidemark.model.portable_sql.dialects import Dialect

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
START, END = "window_start", "window_end"
"""The columns of a window."""
Span = tuple[int, int]
"""Start and end, in milliseconds since the epoch; the end is exclusive."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredWindow(ABC):
    """The windows of an operator, as its stored schema has them.

    Attributes:
        kind: its word in manifests.
        has_row_per_window: whether each stored row is one window, or a part of one with the same bounds. If not,
            `windows` and `windows_sql` make windows of stored rows, which need all rows of a key.
        is_merged: whether rows of a key that overlap are one window, so that one row does not show when it closes.
    """

    kind: ClassVar[str]
    has_row_per_window: ClassVar[bool] = True
    is_merged: ClassVar[bool] = False

    @property
    @abstractmethod
    def shown(self) -> str:
        """The windows in words; other words are another key."""

    @property
    def declared(self) -> "StoredWindow":
        """The windows without what the first plan freezes of them; a pipeline's fingerprint has only that."""
        return self

    @abstractmethod
    def span(self, at: int) -> Span:
        """Returns the bounds of the stored row that a record at a time counts in."""

    def time_sql(self, at: str) -> str:
        """Returns what `span_sql` needs of a time, as an expression that is worth a column if it is not the time."""
        return at

    @abstractmethod
    def span_sql(self, at: str) -> tuple[str, str]:
        """Returns `span` as expressions of Spark over the value of `time_sql`."""

    def closes(self, span: Span) -> int:
        """Returns the frontier at which the last window of a stored row closes: then a record for it is late."""
        return span[1]

    def closes_sql(self, start: str, end: str) -> str:
        """Returns `closes` as an expression over expressions of both bounds."""
        return end

    def windows(self, rows: Iterable[Row], key: Callable[[Row], Any]) -> Iterable[Row]:
        """Returns stored rows with the bounds of their windows; a row may come several times.

        Args:
            rows: rows of any keys.
            key: the key of a row, without its window.
        """
        return rows

    def windows_sql(self, relation: str, keys: Sequence[str], columns: Sequence[str], dialect: Dialect) -> str:
        """Returns `windows` as a relation.

        Args:
            relation: the stored rows.
            keys: quoted columns of the key, without those of the window.
            columns: the columns of a stored row.
            dialect: dialect of the engine.
        """
        return relation

    def bounds(self, event_time: datetime) -> tuple[datetime, datetime]:
        """Returns the bounds of the stored row that a record counts in.

        >>> start, end = TumblingWindows(size_ms=60_000).bounds(datetime(2024, 1, 1, 0, 1, 9, tzinfo=UTC))
        >>> start.isoformat(), end.isoformat()
        ('2024-01-01T00:01:00+00:00', '2024-01-01T00:02:00+00:00')
        """
        start, end = self.span(to_ms(event_time))
        return from_ms(start), from_ms(end)

    def bounds_sql(self, span: tuple[str, str], event_time: str) -> tuple[str, str]:  # noqa: ARG002
        """Returns `bounds` as expressions of Spark over those of `span_sql`, and the event time."""
        return f"timestamp_millis({span[0]})", f"timestamp_millis({span[1]})"

    def columns_of(self, event_time: datetime, fields: Mapping[str, Any]) -> tuple[Any, ...]:  # noqa: ARG002
        """Returns the key columns of a record's row, behind those of its key.

        Args:
            event_time: that of the record.
            fields: the record.
        """
        return self.bounds(event_time)

    def emitted_before(self, frontier: int) -> int:
        """Returns the offset below which all rows have been emitted, once the frontier is reached (adr/0054)."""
        return frontier + 1

    def is_late(self, event_time: datetime, frontier: int | None) -> bool:
        """Whether all windows of a record had closed by a frontier."""
        return frontier is not None and self.closes(self.span(to_ms(event_time))) <= frontier

    def late_sql(self, span: tuple[str, str], frontier: str) -> str:
        """Returns `is_late` as a condition of Spark over the bounds of a record's row."""
        return f"{self.closes_sql(*span)} <= {frontier}"

    def may_close(self, before: int | None, after: int) -> bool:
        """Whether a window can end after one frontier and not after the next; windows alike for all keys know."""
        return True

    def outlives(self, row: Row, frontier: int | None) -> bool:
        """Whether some window of a stored row is open by a frontier; of a row that `is_merged`, if nothing joins it."""
        return frontier is None or self.closes((to_ms(row[START]), to_ms(row[END]))) > frontier

    def outlives_sql(self, frontier: str, dialect: Dialect) -> str:
        """Returns `outlives` as a condition over the columns of a stored row."""
        if self.closes_sql(START, END) == END:
            return f'"{END}" > {dialect.instant(frontier)}'
        closes = self.closes_sql(dialect.millis(f'"{START}"'), dialect.millis(f'"{END}"'))
        return f"{closes} > {frontier}"

    def to_json(self) -> dict[str, Any]:
        """Returns the form for manifests."""
        return {"kind": self.kind, **asdict(self)}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> "StoredWindow":
        """The inverse of `to_json`."""
        if body["kind"] == "days":
            from tidemark.model.schema.day_windows import DayWindows

            return DayWindows.of_json(body)
        given = {name: value for name, value in body.items() if name != "kind"}
        return next(of for of in (TumblingWindows, SlidingWindows, SessionWindows) if of.kind == body["kind"])(**given)


@dataclass(frozen=True, slots=True, kw_only=True)
class TumblingWindows(StoredWindow):
    """Windows of one length without gaps.

    Attributes:
        size_ms: length of a window.
    """

    kind: ClassVar[str] = "tumbling"
    size_ms: int

    @property
    def shown(self) -> str:
        """See `StoredWindow`."""
        return f"tumbling windows of {self.size_ms} ms"

    def span(self, at: int) -> Span:
        """See `StoredWindow`."""
        start = at // self.size_ms * self.size_ms
        return start, start + self.size_ms

    def span_sql(self, at: str) -> tuple[str, str]:
        """See `StoredWindow`."""
        start = f"({at} - pmod({at}, {self.size_ms}L))"
        return start, f"({start} + {self.size_ms}L)"

    def may_close(self, before: int | None, after: int) -> bool:
        """See `StoredWindow`."""
        return before is None or self.span(before)[1] <= after


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindows(StoredWindow):
    """Windows of one length that begin every `every_ms`, stored as panes: the pieces that no window divides.

    Attributes:
        size_ms: length of a window.
        every_ms: distance of their starts, at most their length.
    """

    kind: ClassVar[str] = "sliding"
    has_row_per_window: ClassVar[bool] = False
    size_ms: int
    every_ms: int

    @property
    def pane_ms(self) -> int:
        """Length of a pane."""
        return gcd(self.size_ms, self.every_ms)

    @property
    def shown(self) -> str:
        """See `StoredWindow`."""
        return f"sliding windows of {self.size_ms} ms every {self.every_ms} ms"

    def span(self, at: int) -> Span:
        """See `StoredWindow`."""
        start = at // self.pane_ms * self.pane_ms
        return start, start + self.pane_ms

    def span_sql(self, at: str) -> tuple[str, str]:
        """See `StoredWindow`."""
        start = f"({at} - pmod({at}, {self.pane_ms}L))"
        return start, f"({start} + {self.pane_ms}L)"

    def closes(self, span: Span) -> int:
        """The end of the last window: the one that begins last before the pane."""
        return span[0] // self.every_ms * self.every_ms + self.size_ms

    def closes_sql(self, start: str, end: str) -> str:
        """See `StoredWindow`."""
        return f"({_floor(start, self.every_ms)} + {self.size_ms})"

    def may_close(self, before: int | None, after: int) -> bool:
        """See `StoredWindow`."""
        return before is None or (after - self.size_ms) // self.every_ms > (before - self.size_ms) // self.every_ms

    def windows(self, rows: Iterable[Row], key: Callable[[Row], Any]) -> Iterable[Row]:
        """Every window that holds the pane."""
        for row in rows:
            start, end = to_ms(row[START]), to_ms(row[END])
            last = start // self.every_ms * self.every_ms
            for begin in range(last, end - self.size_ms - 1, -self.every_ms):
                yield {**row, START: from_ms(begin), END: from_ms(begin + self.size_ms)}

    def windows_sql(self, relation: str, keys: Sequence[str], columns: Sequence[str], dialect: Dialect) -> str:
        """See `StoredWindow`."""
        start, end = dialect.millis(f'"{START}"'), dialect.millis(f'"{END}"')
        last = _floor(start, self.every_ms)
        before = f"({last} + {self.size_ms} - {end})"
        begins = dialect.rows_of(f"{last} - ({before} - {before} % {self.every_ms})", last, self.every_ms)
        own = {START: dialect.instant('"_begin"'), END: dialect.instant(f'"_begin" + {self.size_ms}')}
        chosen = ", ".join(f'{own[c]} AS "{c}"' if c in own else f'"{c}"' for c in columns)
        return f'(SELECT {chosen} FROM (SELECT *, {begins} AS "_begin" FROM {relation}) AS "_panes") AS "_windows"'


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindows(StoredWindow):
    """Windows that end when a key has had no record for a while.

    Attributes:
        gap_ms: for how long.
    """

    kind: ClassVar[str] = "session"
    has_row_per_window: ClassVar[bool] = False
    is_merged: ClassVar[bool] = True
    gap_ms: int

    @property
    def shown(self) -> str:
        """See `StoredWindow`."""
        return f"sessions with a gap of {self.gap_ms} ms"

    def span(self, at: int) -> Span:
        """See `StoredWindow`."""
        return at, at + self.gap_ms

    def span_sql(self, at: str) -> tuple[str, str]:
        """See `StoredWindow`."""
        return at, f"({at} + {self.gap_ms}L)"

    def is_late(self, event_time: datetime, frontier: int | None) -> bool:
        """A record before the frontier is late, even if an open session could take it (adr/0052)."""
        return frontier is not None and to_ms(event_time) < frontier

    def late_sql(self, span: tuple[str, str], frontier: str) -> str:
        """See `is_late`."""
        return f"{span[0]} < {frontier}"

    def windows(self, rows: Iterable[Row], key: Callable[[Row], Any]) -> Iterable[Row]:
        """Rows of a key that overlap get the bounds of all of them."""
        of_key: dict[Any, list[Row]] = {}
        for row in rows:
            of_key.setdefault(key(row), []).append(row)
        for mine in of_key.values():
            for session in _overlapping(mine):
                bounds = {START: session[0][START], END: max(row[END] for row in session)}
                yield from ({**row, **bounds} for row in session)

    def windows_sql(self, relation: str, keys: Sequence[str], columns: Sequence[str], dialect: Dialect) -> str:
        """See `StoredWindow`."""
        names = ", ".join(f'"{c}"' for c in columns if c not in (START, END))
        return merged_sql(relation, keys, (f'"{START}"', f'"{END}"'), names) + ' AS "_windows"'


def merged_sql(relation: str, keys: Sequence[str], bounds: tuple[str, str], names: str) -> str:
    """Returns rows in which those of a key that overlap have the bounds of all of them, as a relation without a name.

    Args:
        relation: the rows.
        keys: quoted columns of the key.
        bounds: quoted columns of start and end.
        names: the other columns, separated by commas.
    """
    start, end = bounds
    of_key = f"PARTITION BY {', '.join(keys)}"
    ordered = f"{of_key} ORDER BY {start}, {end}"
    before = f"max({end}) OVER ({ordered} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    begun = f'(SELECT *, CASE WHEN {start} < {before} THEN 0 ELSE 1 END AS "_begins" FROM {relation}) AS "_begun"'
    number = f'sum("_begins") OVER ({ordered} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)'
    numbered = f'(SELECT *, {number} AS "_session" FROM {begun}) AS "_numbered"'
    of_session = f'OVER ({of_key}, "_session")'
    made = f"min({start}) {of_session} AS {start}, max({end}) {of_session} AS {end}"
    return f"(SELECT {names}, {made} FROM {numbered})"


def _overlapping(rows: Iterable[Row]) -> Iterable[list[Row]]:
    """Yields the rows of a key by session."""
    session, end = list[Row](), None
    for row in sorted(rows, key=lambda r: (r[START], r[END])):
        if end is None or row[START] < end:
            session, end = [*session, row], row[END] if end is None else max(end, row[END])
        else:
            yield session
            session, end = [row], row[END]
    if session:
        yield session


def _floor(at: str, of: int) -> str:
    """The last multiple at or before a time, also before 1970."""
    return f"({at} - (({at}) % {of} + {of}) % {of})"


def to_ms(at: datetime) -> int:
    """Returns a time in milliseconds since the epoch, rounded down."""
    return (at - _EPOCH) // _MS


def from_ms(ms: int) -> datetime:
    """The inverse of `to_ms`."""
    return _EPOCH + ms * _MS
