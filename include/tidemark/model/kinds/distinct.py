"""`state.distinct`: the distinct values of a field."""

from collections.abc import Iterator, Sequence
from typing import Any

from tidemark.errors import DeclarationError
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.declaring import TimeToLive, checked_limit, over_field
from tidemark.model.kinds.base.kind import Accumulators, FoldKind, StateDescriptor
from tidemark.model.kinds.base.python import OfKey, Placed, Row, bounded_values, is_expired, not_null
from tidemark.model.kinds.base.sql import bounded_in_run, bounded_sql, expired_sql, filter_sql, quote, record_path
from tidemark.model.portable_sql.dialects import DUCKDB, Dialect
from tidemark.model.schema.operator_schema import KeyColumn, StoredField


class Distinct(FoldKind):
    """The distinct values that are not null, kept sorted."""

    name = "distinct"
    annotation = "list"
    is_collection = True
    is_limited = True

    def result_type(self, at: str, declared: StateDescriptor, over: FieldType) -> FieldType:
        """See `FoldKind`."""
        if not over.is_scalar:
            raise DeclarationError(f"{at}: state.distinct of a {over.word}", next="distinct needs a scalar field.")
        return FieldType("list", element=over.with_null(False))

    def accumulators(self, field: StoredField) -> Accumulators:
        """See `StateKind`."""
        return ((field.name, FieldType("list", element=field.over.with_null(False))),)

    def absent(self, field: StoredField) -> tuple[object, ...]:
        """See `StateKind`."""
        return ((),)

    def imported_columns(self, field: StoredField) -> Iterator[tuple[str, FieldType]]:
        """See `StateKind`."""
        yield from field.accumulators

    def imported_values(self, field: StoredField, at_ms: int) -> Iterator[tuple[str, str]]:
        """See `StateKind`."""
        yield field.name, f"list_sort(list_distinct({DUCKDB.or_empty(quote(field.name))}))"

    def partials(self, field: StoredField, only: str, *, emitted: bool) -> list[str]:
        """See `FoldKind`."""
        return [f"array_sort(collect_set({record_path(field.source)}){filter_sql(only)})"]

    def merges(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> list[str]:
        """See `FoldKind`."""
        column = quote(field.name)
        held = f"array_agg({column}){filter_sql(f'{column} IS NOT NULL')}"
        return [f"array_sort(array_distinct(flatten({held})))"]

    def finish_value(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> str:
        """See `FoldKind`."""
        return bounded_sql(field, dialect.or_empty(quote(field.name)), keys)

    def run_columns(self, field: StoredField, keys: Sequence[KeyColumn], now: int | None) -> dict[str, str]:
        """See `FoldKind`."""
        hidden = expired_sql('"_last_at"', field, now)
        otherwise = "" if hidden is None else f"WHEN {hidden} THEN array()"
        return {field.name: bounded_in_run(field, quote(field.name), otherwise, keys)}

    def adds(self, field: StoredField) -> str:
        """See `FoldKind`."""
        return f"coalesce(cardinality({quote(field.name)}), 0) > 0"

    def fold(self, field: StoredField, of: OfKey, placed: Placed) -> list[Any]:
        """See `FoldKind`."""
        found = sorted(set(not_null(r.at(field.source) for _, r in placed)))
        hidden = len(found) > field.limit and is_expired(field, max(at for at, _ in placed), of.now)
        return [[] if hidden else bounded_values(field, of.key, found)]

    def merge(self, field: StoredField, of: OfKey, n: int, values: Sequence[Any]) -> Any:
        """See `FoldKind`."""
        return sorted({v for held in not_null(values) for v in held})

    def value(self, field: StoredField, of: OfKey, row: Row) -> Any:
        """See `FoldKind`."""
        return bounded_values(field, of.key, row[field.name] or [])


def distinct(source: str, *, limit: int = 1000, ttl: TimeToLive = None, was: str = "") -> Any:
    """Collects the distinct values that are not null, sorted.

    Args:
        source: the record field.
        limit: a key with more values is a `StateOverflowError` that names the key.
        ttl: time to live of the whole set.
        was: see `StateDescriptor`.
    """
    return over_field("distinct", source, limit=checked_limit("distinct", limit), ttl=ttl, was=was)
