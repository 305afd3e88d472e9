"""Converts values of SQL and Arrow to types that the output can print."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

_KNOWN = (bool, int, str, date, bytes)


def plain(value: Any) -> Any:
    """Converts a value to one that JSON and tables can show: SQL has more types than state."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    if isinstance(value, Decimal):
        # Arrow types a sum of integers as DECIMAL(38, 0); readers expect a plain integer.
        return int(value) if value.as_tuple().exponent == 0 else value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    return value if value is None or isinstance(value, _KNOWN) else str(value)
