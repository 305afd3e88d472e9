"""Points in time as text."""

from datetime import UTC, datetime


def iso(ms: int) -> str:
    """Returns milliseconds since the epoch as ISO 8601 in UTC."""
    return datetime.fromtimestamp(ms / 1000, tz=UTC).isoformat().replace("+00:00", "Z")


def iso_or_none(ms: int | None) -> str | None:
    """Returns what `iso` returns; None for None."""
    return None if ms is None else iso(ms)
