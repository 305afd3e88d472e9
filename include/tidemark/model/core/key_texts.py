"""Values of key columns from texts: as on a command line, in a record of an erasure, or as an argument in Python."""

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from hashlib import sha256
from uuid import UUID

from tidemark.model.core.default_values import fitting_decimal
from tidemark.model.core.types import FieldType

_BOOLS = {"true": True, "false": False}


def short_hash(text: str) -> int:
    """Returns 60 bits of the sha256 of a text, which ids of emitted rows have instead of it (adr/0054)."""
    return int(sha256(text.encode()).hexdigest()[:15], 16)


def short_hash_sql(encoded: str) -> str:
    """Returns the Spark SQL expression of `short_hash` over that of the text in UTF-8."""
    return f"CAST(conv(substr(sha2({encoded}, 256), 1, 15), 16, 10) AS BIGINT)"


def key_value(of: FieldType, text: str) -> object:
    """Returns the stored value of a key column that a text names.

    A decimal gets the scale of its column, a UUID and a time their canonical text: they are stored and hashed so.

    Raises:
        ValueError: the text is no value of the type.
    """
    value = _PARSERS[of.form or of.kind](of, text)
    if of.members and value not in of.members:
        raise ValueError(f"{text!r} is none of {', '.join(map(str, of.members))}")
    return value


def _bool(of: FieldType, text: str) -> bool:
    if text.lower() not in _BOOLS:
        raise ValueError(f"{text!r} is neither true nor false")
    return _BOOLS[text.lower()]


def _int64(of: FieldType, text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{number} has more than 64 bits")
    return number


def _time_of_day(of: FieldType, text: str) -> str:
    found = time.fromisoformat(text)
    if found.tzinfo is not None:
        raise ValueError(f"{text!r} has a zone")
    return found.isoformat()


def _timestamp(of: FieldType, text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


_PARSERS: dict[str, Callable[[FieldType, str], object]] = {
    "bool": _bool,
    "int": _int64,
    "decimal": lambda of, text: fitting_decimal(text, of),
    "str": lambda of, text: text,
    "uuid": lambda of, text: str(UUID(text)),
    "time": _time_of_day,
    "date": lambda of, text: date.fromisoformat(text),
    "timestamp": _timestamp,
}
