"""The expiry of a savepoint, as people write it: `30d`, a time, or never."""

import re
from datetime import UTC, datetime, timedelta

from tidemark.errors import UsageError

NEVER = "never"
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LAST_MS = 253_402_300_800_000
"""The end of the calendar: 10000-01-01."""
_SPAN = re.compile(rf"\d{{1,6}}[{''.join(_UNITS)}]", re.ASCII)


def expiry_ms(text: str, now_ms: int) -> int | None:
    """Parses an expiry to milliseconds since the epoch; None for `never`.

    Args:
        text: minutes, hours, days or weeks from now (`90m`, `12h`, `30d`, `4w`), an ISO 8601 time (UTC if it names no
            zone), or `never`.
        now_ms: the current time.

    Raises:
        UsageError: it is none of these.
    """
    if text == NEVER:
        return None
    at = _span_ms(text, now_ms) if _SPAN.fullmatch(text) else _time_ms(text)
    if at is None or not 0 <= at < _LAST_MS:
        raise UsageError(
            f"not an expiry: {text!r}", next="write 30d, 12h, a time as in 2030-01-31T00:00:00Z, or never."
        )
    return at


def span_ms(text: str) -> int:
    """Parses a span to milliseconds: `90m`, `12h`, `7d`, `2w`, or `0`.

    Raises:
        UsageError: it is none of these.
    """
    if text != "0" and not _SPAN.fullmatch(text):
        raise UsageError(f"not a span of time: {text!r}", next="write 90m, 1h, 7d, 2w, or 0.")
    return 0 if text == "0" else _span_ms(text, 0)


def _span_ms(text: str, now_ms: int) -> int:
    return now_ms + timedelta(**{_UNITS[text[-1]]: int(text[:-1])}) // timedelta(milliseconds=1)


def _time_ms(text: str) -> int | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
