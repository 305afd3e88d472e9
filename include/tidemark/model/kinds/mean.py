"""`state.mean`: the arithmetic mean of a number."""

from collections.abc import Iterator, Sequence
from typing import Any

from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.declaring import TimeToLive, over_field
from tidemark.model.kinds.base.kind import Accumulators, FoldKind, StateDescriptor, checked_number, sum_type
from tidemark.model.kinds.base.python import OfKey, Placed, Row, not_null, sum_exact
from tidemark.model.kinds.base.sql import (
    as_double,
    filter_sql,
    merged_count,
    merged_sum,
    quote,
    record_path,
    summed_sql,
)
from tidemark.model.portable_sql.dialects import Dialect
from tidemark.model.schema.operator_schema import KeyColumn, StoredField


class Mean(FoldKind):
    """The mean of the values that are not null: their sum, exact except for floats, and their number."""

    name = "mean"
    annotation = "float"

    def result_type(self, at: str, declared: StateDescriptor, over: FieldType) -> FieldType:
        """See `FoldKind`."""
        checked_number(at, self.shown, over)
        return FieldType("float")

    def accumulators(self, field: StoredField) -> Accumulators:
        """See `StateKind`."""
        return ((f"{field.name}__sum", sum_type(field.over)), (f"{field.name}__count", FieldType("int")))

    def absent(self, field: StoredField) -> tuple[object, ...]:
        """See `StateKind`."""
        return (None, 0)

    def is_exact(self, field: StoredField) -> bool:
        """See `StateKind`."""
        return field.over.kind != "float"

    def imported_columns(self, field: StoredField) -> Iterator[tuple[str, FieldType]]:
        """See `StateKind`: a mean alone does not say how to continue."""
        yield from field.accumulators

    def imported_values(self, field: StoredField, at_ms: int) -> Iterator[tuple[str, str]]:
        """See `StateKind`."""
        (total, _), (count, _) = field.accumulators
        yield total, quote(total)
        yield count, f"coalesce({quote(count)}, 0)"

    def import_faults(self, field: StoredField) -> Iterator[tuple[str, str]]:
        """See `StateKind`."""
        (total, _), (count, _) = field.accumulators
        condition = f"({quote(total)} IS NULL) <> (coalesce({quote(count)}, 0) <= 0)"
        yield condition, f"{total} and {count} must both be known, or neither"

    def partials(self, field: StoredField, only: str, *, emitted: bool) -> list[str]:
        """See `FoldKind`."""
        value, where = record_path(field.source), filter_sql(only)
        return [summed_sql(value, field.over, where), f"count({value}){where}"]

    def merges(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> list[str]:
        """See `FoldKind`."""
        (total, of), (count, _) = field.accumulators
        return [merged_sum(field, quote(total), of, keys, dialect), merged_count(quote(count))]

    def finish_value(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> str:
        """See `FoldKind`."""
        total, count = (quote(name) for name, _ in field.accumulators)
        return f"CASE WHEN {count} > 0 THEN {as_double(total, field.over)} / CAST({count} AS DOUBLE) END"

    def may_leave_64_bits(self, field: StoredField) -> bool:
        """See `FoldKind`."""
        return field.over.kind == "int"

    def fold(self, field: StoredField, of: OfKey, placed: Placed) -> list[Any]:
        """See `FoldKind`."""
        values = not_null(r.at(field.source) for _, r in placed)
        return [sum_exact(field, field.accumulators[0][1], of.key, values), len(values)]

    def merge(self, field: StoredField, of: OfKey, n: int, values: Sequence[Any]) -> Any:
        """See `FoldKind`."""
        return sum_exact(field, field.accumulators[n][1], of.key, values)

    def value(self, field: StoredField, of: OfKey, row: Row) -> Any:
        """See `FoldKind`."""
        total, count = (row[name] for name, _ in field.accumulators)
        return float(total) / float(count) if count else None


def mean(source: str, *, ttl: TimeToLive = None, was: str = "") -> Any:
    """Computes the mean of the values that are not null, as a float; exact for integers and decimals."""
    return over_field("mean", source, ttl=ttl, was=was)
