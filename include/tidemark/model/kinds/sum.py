"""`state.sum`: the sum of a number."""

from collections.abc import Iterator, Sequence
from typing import Any

from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.declaring import TimeToLive, over_field
from tidemark.model.kinds.base.kind import Accumulators, FoldKind, StateDescriptor, checked_number, sum_type
from tidemark.model.kinds.base.python import OfKey, Placed, Row, sum_exact
from tidemark.model.kinds.base.sql import checked_sql, filter_sql, merged_sum, quote, record_path, summed_sql
from tidemark.model.portable_sql.dialects import Dialect
from tidemark.model.schema.operator_schema import KeyColumn, StoredField


class Sum(FoldKind):
    """The sum of the values that are not null; sums of decimals have 38 digits and are cast when read."""

    name = "sum"

    def result_type(self, at: str, declared: StateDescriptor, over: FieldType) -> FieldType:
        """See `FoldKind`; the declared digits may be wider than the record's."""
        checked_number(at, self.shown, over)
        of = declared.type
        return of if of.kind == over.kind == "decimal" and of.scale == over.scale else over

    def accumulators(self, field: StoredField) -> Accumulators:
        """See `StateKind`."""
        return ((field.name, sum_type(field.over)),)

    def is_exact(self, field: StoredField) -> bool:
        """See `StateKind`."""
        return field.over.kind != "float"

    def imported_columns(self, field: StoredField) -> Iterator[tuple[str, FieldType]]:
        """See `StateKind`."""
        yield from field.accumulators

    def partials(self, field: StoredField, only: str, *, emitted: bool) -> list[str]:
        """See `FoldKind`."""
        return [summed_sql(record_path(field.source), field.over, filter_sql(only))]

    def merges(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> list[str]:
        """See `FoldKind`."""
        return [merged_sum(field, quote(field.name), field.accumulators[0][1], keys, dialect)]

    def finish_value(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> str:
        """See `FoldKind`."""
        column, of = quote(field.name), field.type
        if field.over.kind != "decimal" or of.digits == 38:
            return column
        bound = f"CAST(1{'0' * (of.digits - of.scale)} AS DECIMAL(38,0))"
        fits = f"{column} > -{bound} AND {column} < {bound}"
        return checked_sql(column, fits, f"CAST({column} AS {of.sql})", field.name, keys)

    def may_leave_64_bits(self, field: StoredField) -> bool:
        """See `FoldKind`."""
        return field.over.kind == "int"

    def fold(self, field: StoredField, of: OfKey, placed: Placed) -> list[Any]:
        """See `FoldKind`."""
        return [self.merge(field, of, 0, [r.at(field.source) for _, r in placed])]

    def merge(self, field: StoredField, of: OfKey, n: int, values: Sequence[Any]) -> Any:
        """See `FoldKind`."""
        return sum_exact(field, field.accumulators[0][1], of.key, values)

    def value(self, field: StoredField, of: OfKey, row: Row) -> Any:
        """See `FoldKind`."""
        return (
            sum_exact(field, field.type, of.key, [row[field.name]]) if field.over.kind == "decimal" else row[field.name]
        )


def sum(source: str, *, ttl: TimeToLive = None, was: str = "") -> Any:  # noqa: A001
    """Sums a number over the records in which it is not null; null if there are none.

    An integer sum beyond 64 bits is a `StateOverflowError` that names the key. A floating-point sum is not exact: it
    depends on where barriers cut, so it stays out of state hashes.
    """
    return over_field("sum", source, ttl=ttl, was=was)
