"""Shared Python of the kinds of state: the in-memory twin's counterpart to the SQL of Spark and DuckDB."""

import decimal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from math import isnan
from typing import Any, Protocol

from tidemark.errors import StateOverflowError
from tidemark.model.core.offsets import Path
from tidemark.model.core.types import FieldType
from tidemark.model.schema.operator_schema import StoredField

Key = tuple[Any, ...]
Row = Mapping[str, Any]
_WIDE = decimal.Context(prec=100)


class Overflow(ArithmeticError):
    """An integer left 64 bits; the caller knows the key."""


class FoldedRecord(Protocol):
    """A good record with its position, as the twin folds it."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def partition(self) -> int:
        """Its partition."""

    @property
    def kept_offset(self) -> int:
        """The offset that is stored with a value."""

    @property
    def event_time(self) -> datetime:
        """Its event time."""

    @property
    def position(self) -> tuple[str, int, int, Path]:
        """Topic, partition, offset and path: unique in a batch."""

    def at(self, path: str) -> Any:
        """Returns the field at a dotted path; null if a step of the path is null."""


class Portable(Protocol):
    """Evaluates expressions of the portable SQL subset; see `testing.twin`."""

    def partials(self, field: StoredField, records: Sequence[Row]) -> list[Any]:
        """Returns the accumulators of an author's aggregate over records, given as path to value."""

    def finish_value(self, field: StoredField, row: Row) -> Any:
        """Returns the finished value of an author's aggregate over a merged row."""


Placed = Sequence[tuple[int, FoldedRecord]]
"""Records of a key in one batch, each after the time at which it accesses the key, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfKey:
    """The context of a computation for one key.

    Attributes:
        key: the key, for messages.
        now: the time on the operator's clock, in milliseconds; None = nothing expires.
        portable: evaluates authors' expressions.
    """

    key: Key
    now: int | None
    portable: Portable


def not_null(values: Iterable[Any]) -> list[Any]:
    """Returns the values that are not null."""
    return [v for v in values if v is not None]


def bounded_values(f: StoredField, key: Key, values: list[Any]) -> list[Any]:
    """Returns the values if the field's limit allows that many.

    Raises:
        StateOverflowError: it does not.
    """
    if len(values) > f.limit:
        raise overflow(f, key, f"has {len(values)} values, its limit is {f.limit}")
    return values


def comparable(value: Any) -> tuple[Any, ...]:
    """Returns a value that compares as in Spark: null first, structs and lists member by member."""
    if value is None:
        return ()
    if isinstance(value, Mapping | list):
        members = value.values() if isinstance(value, Mapping) else value
        return (False, *map(comparable, members))
    return (isinstance(value, float) and isnan(value), value)


def is_expired(f: StoredField, accessed: int, now: int | None) -> bool:
    """Whether a value last accessed at this time is hidden."""
    return f.ttl is not None and f.ttl.hides and now is not None and accessed + f.ttl.ms <= now


def live_values(f: StoredField, elements: Iterable[Any], now: int | None) -> list[Any]:
    """Returns the elements of a list that have not expired."""
    return [e for e in elements if not is_expired(f, e["at"], now)]


def sum_exact(f: StoredField, of: FieldType, key: Key, values: Iterable[Any]) -> Any:
    """Returns the exact sum of values that are not null; null if there are none.

    Raises:
        StateOverflowError: it does not fit its type.
    """
    there = not_null(values)
    if not there:
        return None
    if of.kind == "decimal":
        total = Decimal(0)
        for value in there:
            total = _WIDE.add(total, value)
        if abs(total) >= Decimal(10) ** (of.digits - of.scale):
            raise overflow(f, key, f"does not fit {of.digits} digits")
        return total
    found = sum(there)
    if of.kind == "int" and not -(2**63) <= found < 2**63:
        raise overflow(f, key, "does not fit 64 bits")
    return found


def overflow(f: StoredField, key: Key, why: str) -> StateOverflowError:
    """Returns the error for a field that does not fit."""
    return StateOverflowError(
        f"state overflow: {f.name} of key ({', '.join(map(str, key))}) {why}",
        safe="every completed checkpoint is intact; nothing was published.",
        next="declare a wider type or a higher limit, or filter the key's records.",
    )
