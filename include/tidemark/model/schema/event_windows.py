"""Windows over event time: which one a record belongs to, in Python and in the SQL of Spark.

Windows are half-open and aligned to 1970-01-01 UTC, as Flink's TumblingEventTimeWindows without an offset. A window is
stored by its bounds, two columns next to the key: rows merge by both, while the key group is that of the key alone.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
START, END = "window_start", "window_end"
"""The columns of a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWindow:
    """The windows of an operator, as its stored schema has them.

    Attributes:
        kind: `tumbling`.
        size_ms: length of a window.
    """

    kind: str
    size_ms: int

    @property
    def shown(self) -> str:
        """The windows in words; other words are another key."""
        return f"{self.kind} windows of {self.size_ms} ms"

    def bounds(self, event_time: datetime) -> tuple[datetime, datetime]:
        """Returns start and end of the window of a record.

        >>> start, end = StoredWindow(kind="tumbling", size_ms=60_000).bounds(datetime(2024, 1, 1, 0, 1, 9, tzinfo=UTC))
        >>> start.isoformat(), end.isoformat()
        ('2024-01-01T00:01:00+00:00', '2024-01-01T00:02:00+00:00')
        """
        start = to_ms(event_time) // self.size_ms * self.size_ms
        return _EPOCH + start * _MS, _EPOCH + (start + self.size_ms) * _MS

    def bounds_sql(self, event_time: str) -> tuple[str, str]:
        """Returns expressions of Spark for start and end of the window at a timestamp."""
        at = f"unix_millis({event_time})"
        start = f"({at} - pmod({at}, {self.size_ms}L))"
        return f"timestamp_millis({start})", f"timestamp_millis({start} + {self.size_ms}L)"

    def to_json(self) -> dict[str, Any]:
        """Returns the form for manifests."""
        return {"kind": self.kind, "size_ms": self.size_ms}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "StoredWindow":
        """The inverse of `to_json`."""
        return cls(**body)


def to_ms(at: datetime) -> int:
    """Returns a time in milliseconds since the epoch, rounded down."""
    return (at - _EPOCH) // _MS


def from_ms(ms: int) -> datetime:
    """The inverse of `to_ms`."""
    return _EPOCH + ms * _MS
