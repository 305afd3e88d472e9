"""Shared by `aggregate` and `reduce`: an author's expressions, in the portable SQL subset or in Spark SQL."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tidemark.errors import UsageError
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.kind import Accumulators, FoldKind, Input, StateDescriptor
from tidemark.model.kinds.base.python import OfKey, Overflow, Placed, Row, not_null, overflow, sum_exact
from tidemark.model.kinds.base.sql import checked_sql, filter_sql, quote, record_path
from tidemark.model.portable_sql.custom_aggregate import (
    Aggregate,
    bound,
    call_of,
    finish_sql,
    merge_sql,
    partial_sql,
    substitute_names,
)
from tidemark.model.portable_sql.dialects import DUCKDB, Dialect
from tidemark.model.schema.operator_schema import KeyColumn, StoredField

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_MERGED: dict[str, Callable[[Sequence[Any]], Any]] = {"bool_and": all, "bool_or": any, "min": min, "max": max}
"""Merging functions other than `sum`, over values that are not null."""


class Authored(FoldKind):
    """An aggregate whose partial, merge and finish are expressions of an author."""

    def bound(self, at: str, declared: StateDescriptor, record: FieldType) -> Input:
        """See `StateKind`."""
        assert declared.aggregate is not None  # noqa: S101  (for the type checker)
        return Input(over=declared.type, aggregate=bound(at, declared.aggregate, record, declared.type))

    def accumulators(self, field: StoredField) -> Accumulators:
        """See `StateKind`."""
        return tuple((f"{field.name}__{name}", of) for name, of in _texts(field).accumulators)

    def inputs(self, field: StoredField) -> tuple[str, ...]:
        """See `StateKind`."""
        return tuple(path for path, _ in _texts(field).inputs)

    def is_exact(self, field: StoredField) -> bool:
        """See `StateKind`."""
        return _texts(field).exact

    def imported_columns(self, field: StoredField) -> Iterator[tuple[str, FieldType]]:
        """See `StateKind`: the finished value does not say how to continue."""
        yield from field.accumulators

    def imported_values(self, field: StoredField, at_ms: int) -> Iterator[tuple[str, str]]:
        """See `StateKind`."""
        yield from ((name, quote(name)) for name, _ in field.accumulators)

    def partials(self, field: StoredField, only: str, *, emitted: bool) -> list[str]:
        """See `FoldKind`."""
        made, where = _texts(field), filter_sql(only)
        if not made.spark_only:
            return [partial_sql(text, dict(made.inputs), record_path, where).sql for text in made.partial]
        names, types = [name for name, _ in made.inputs], (of.sql for _, of in made.accumulators)
        return [
            f"CAST({substitute_names(text, names, record_path)}{where} AS {of})"
            for text, of in zip(made.partial, types, strict=True)
        ]

    def merges(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> list[str]:
        """See `FoldKind`.

        Raises:
            UsageError: only Spark can read the field.
        """
        refuse_without_spark(field, dialect)
        made = _texts(field)
        pairs = zip(made.merge, field.accumulators, strict=True)
        if made.spark_only:
            names = [name for name, _ in made.accumulators]
            return [f"CAST({substitute_names(text, names, _column_of(field))} AS {of.sql})" for text, (_, of) in pairs]
        return [_merged(text, column, of, field.name, keys) for text, (column, of) in pairs]

    def finish_value(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> str:
        """See `FoldKind`."""
        return finish_sql_of(field, dialect)

    def fold(self, field: StoredField, of: OfKey, placed: Placed) -> list[Any]:
        """See `FoldKind`."""
        paths = field.inputs
        try:
            return of.portable.partials(field, [{path: r.at(path) for path in paths} for _, r in placed])
        except Overflow as error:
            raise overflow(field, of.key, "does not fit 64 bits") from error

    def merge(self, field: StoredField, of: OfKey, n: int, values: Sequence[Any]) -> Any:
        """See `FoldKind`."""
        refuse_without_spark(field, DUCKDB)
        function, _ = call_of(_texts(field).merge[n])
        there = not_null(values)
        if function == "sum":
            return sum_exact(field, field.accumulators[n][1], of.key, there)
        return _MERGED[function](there) if there else None

    def value(self, field: StoredField, of: OfKey, row: Row) -> Any:
        """See `FoldKind`."""
        try:
            return of.portable.finish_value(field, row)
        except Overflow as error:
            raise overflow(field, of.key, "does not fit 64 bits") from error


def refuse_without_spark(field: StoredField, dialect: Dialect) -> None:
    """Raises if only Spark can read a field.

    Raises:
        UsageError: only Spark can; the message names the field.
    """
    if _texts(field).spark_only and dialect.name != "spark":
        raise UsageError(
            f"{field.name} is declared spark_only: it cannot be read without Spark",
            next="read it with tidemark.read_state in a Spark session, or write it in the portable subset.",
        )


def finish_sql_of(field: StoredField, dialect: Dialect) -> str:
    """Returns the finish expression of an author's aggregate over the columns of its merged accumulators."""
    made = _texts(field)
    refuse_without_spark(field, dialect)
    if made.spark_only:
        names = [name for name, _ in made.accumulators]
        return f"CAST({substitute_names(made.finish, names, _column_of(field))} AS {field.type.sql})"
    return finish_sql(made, _column_of(field)).sql


def _texts(field: StoredField) -> Aggregate:
    assert field.aggregate is not None  # noqa: S101  (for the type checker)
    return field.aggregate


def _column_of(field: StoredField) -> Callable[[str], str]:
    return lambda name: quote(f"{field.name}__{name}")


def _merged(text: str, column: str, of: FieldType, name: str, keys: Sequence[KeyColumn]) -> str:
    function, _ = call_of(text)
    merged = merge_sql(function, quote(column), of)
    if function != "sum" or of.kind != "int":
        return merged
    # A wide sum either fits a 64-bit integer or is an error.
    fits = f"{merged} IS NULL OR {merged} BETWEEN {_LEAST} AND {_GREATEST}"
    return checked_sql(merged, fits, f"CAST({merged} AS BIGINT)", name, keys)
