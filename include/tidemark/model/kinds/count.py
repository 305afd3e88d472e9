"""`state.count`: the number of records of a key."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, overload

from tidemark.model.core.ttl import Ttl, as_ttl
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.declaring import TimeToLive
from tidemark.model.kinds.base.kind import Accumulators, FoldKind, Input, StateDescriptor
from tidemark.model.kinds.base.python import OfKey, Placed, sum_exact
from tidemark.model.kinds.base.sql import filter_sql, merged_count, quote
from tidemark.model.portable_sql.dialects import Dialect
from tidemark.model.schema.operator_schema import KeyColumn, StoredField

_INT = FieldType("int", nullable=True)


class Count(FoldKind):
    """The number of records; it reads no field."""

    name = "count"
    annotation = "int"

    def default(self, declared: StateDescriptor) -> object:
        """See `StateKind`; with a ttl null, because it may have passed."""
        return 0 if declared.ttl is None else declared.initial

    def is_optional(self, declared: StateDescriptor, found: FieldType) -> bool:
        """See `StateKind`."""
        return declared.ttl is not None

    def bound(self, at: str, declared: StateDescriptor, record: FieldType) -> Input:
        """See `StateKind`."""
        return Input(over=FieldType("int"))

    def accumulators(self, field: StoredField) -> Accumulators:
        """See `StateKind`."""
        return ((field.name, _INT),)

    def absent(self, field: StoredField) -> tuple[object, ...]:
        """See `StateKind`."""
        return (0,)

    def imported_columns(self, field: StoredField) -> Iterator[tuple[str, FieldType]]:
        """See `StateKind`."""
        yield from field.accumulators

    def imported_values(self, field: StoredField, at_ms: int) -> Iterator[tuple[str, str]]:
        """See `StateKind`."""
        yield field.name, f"coalesce({quote(field.name)}, 0)"

    def partials(self, field: StoredField, only: str, *, emitted: bool) -> list[str]:
        """See `FoldKind`."""
        return [f"count(1){filter_sql(only)}"]

    def merges(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> list[str]:
        """See `FoldKind`."""
        return [merged_count(quote(field.name))]

    def fold(self, field: StoredField, of: OfKey, placed: Placed) -> list[Any]:
        """See `FoldKind`."""
        return [len(placed)]

    def merge(self, field: StoredField, of: OfKey, n: int, values: Sequence[Any]) -> Any:
        """See `FoldKind`."""
        return sum_exact(field, _INT, of.key, values)


@overload
def count(*, was: str = "") -> int: ...
@overload
def count(*, ttl: timedelta | Ttl, was: str = "") -> int | None: ...
def count(*, ttl: TimeToLive = None, was: str = "") -> int | None:
    """Counts the records of the key; null after a ttl has expired."""
    made: Any = StateDescriptor(kind="count", ttl=as_ttl(ttl), was=was)
    found: int | None = made
    return found
