"""`state.stddev`: the standard deviation of a number."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.declaring import TimeToLive, over_field
from tidemark.model.kinds.base.kind import Accumulators, FoldKind, StateDescriptor, checked_number
from tidemark.model.kinds.base.python import OfKey, Placed, Row, not_null
from tidemark.model.kinds.base.sql import as_double, filter_sql, quote, record_path
from tidemark.model.portable_sql.dialects import DUCKDB, Dialect
from tidemark.model.schema.operator_schema import KeyColumn, StoredField

_MOMENTS = (("count", FieldType("int")), ("mean", FieldType("float")), ("m2", FieldType("float")))
_POPULATION = (("of", "population"),)


class StandardDeviation(FoldKind):
    """Number, mean and sum of squared distances from the mean (M2) of the values that are not null, as one struct.

    Two of them merge by the formula of Chan, Golub and LeVeque, as in Flink and Spark. The sum of squares would be
    simpler, but loses all digits if the mean is large and the deviation small.
    """

    name = "stddev"
    annotation = "float"

    def result_type(self, at: str, declared: StateDescriptor, over: FieldType) -> FieldType:
        """See `FoldKind`."""
        checked_number(at, self.shown, over)
        return FieldType("float")

    def accumulators(self, field: StoredField) -> Accumulators:
        """See `StateKind`."""
        return ((field.name, FieldType("struct", nullable=True, fields=_MOMENTS)),)

    def is_exact(self, field: StoredField) -> bool:
        """See `StateKind`: a mean is rounded at each merge, also that of integers."""
        return False

    def imported_columns(self, field: StoredField) -> Iterator[tuple[str, FieldType]]:
        """See `StateKind`: a deviation alone does not say how to continue."""
        yield from ((f"{field.name}__{member}", of.with_null(True)) for member, of in _MOMENTS)

    def imported_values(self, field: StoredField, at_ms: int) -> Iterator[tuple[str, str]]:
        """See `StateKind`."""
        pairs = [(member, quote(f"{field.name}__{member}")) for member, _ in _MOMENTS]
        yield field.name, f"CASE WHEN {pairs[0][1]} > 0 THEN {DUCKDB.struct(pairs)} END"

    def import_faults(self, field: StoredField) -> Iterator[tuple[str, str]]:
        """See `StateKind`."""
        count, mean, m2 = (f"{field.name}__{member}" for member, _ in _MOMENTS)
        is_none = f"(coalesce({quote(count)}, 0) <= 0)"
        condition = f"({quote(mean)} IS NULL) <> {is_none} OR ({quote(m2)} IS NULL) <> {is_none} OR {quote(m2)} < 0"
        yield condition, f"{count}, {mean} and {m2} must all be known, or none; {m2} is not negative"

    def exported_values(self, field: StoredField) -> Iterator[tuple[str, str]]:
        """See `StateKind`: its moments."""
        yield from ((f"{field.name}__{member}", f"{quote(field.name)}.{quote(member)}") for member, _ in _MOMENTS)

    def partials(self, field: StoredField, only: str, *, emitted: bool) -> list[str]:
        """See `FoldKind`."""
        path, where = record_path(field.source), filter_sql(only)
        value = f"CAST({path} AS DOUBLE)" if field.over.kind == "int" else as_double(path, field.over)
        count = f"count({value}){where}"
        m2 = f"var_pop({value}){where} * CAST({count} AS DOUBLE)"
        # Arrow rejects a struct that may be null with a member that may not.
        moments = f"named_struct('count', nullif({count}, 0), 'mean', avg({value}){where}, 'm2', {m2})"
        return [f"CASE WHEN {count} > 0 THEN {moments} END"]

    def merges(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> list[str]:
        """See `FoldKind`: in the order of checkpoints, so that all engines round alike."""
        column = quote(field.name)
        placed = dialect.struct([("placed", quote("_changed")), ("held", column)])
        collected = f"array_sort(array_agg({placed}){filter_sql(f'{column} IS NOT NULL')})"
        return [f'{dialect.reduce(collected, ("a", "b"), _merged_sql(dialect))}."held"']

    def finish_value(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> str:
        """See `FoldKind`."""
        count, m2, less = f'{quote(field.name)}."count"', f'{quote(field.name)}."m2"', _less(field)
        return f"CASE WHEN {count} > {less} THEN sqrt({m2} / CAST({count} - {less} AS DOUBLE)) END"

    def fold(self, field: StoredField, of: OfKey, placed: Placed) -> list[Any]:
        """See `FoldKind`."""
        values = [float(v) for v in not_null(r.at(field.source) for _, r in placed)]
        if not values:
            return [None]
        mean = sum(values) / len(values)
        return [{"count": len(values), "mean": mean, "m2": sum((v - mean) * (v - mean) for v in values)}]

    def merge(self, field: StoredField, of: OfKey, n: int, values: Sequence[Any]) -> Any:
        """See `FoldKind`."""
        made = None
        for held in not_null(values):
            made = held if made is None else _merged(made, held)
        return made

    def value(self, field: StoredField, of: OfKey, row: Row) -> Any:
        """See `FoldKind`."""
        held = row[field.name]
        if held is None or held["count"] <= _less(field):
            return None
        return math.sqrt(held["m2"] / float(held["count"] - _less(field)))


def stddev(source: str, *, population: bool = False, ttl: TimeToLive = None, was: str = "") -> Any:
    """Computes the standard deviation of the values that are not null, as a float.

    The default is that of a sample, with n - 1 in the denominator: `STDDEV_SAMP` of SQL and of Flink SQL, and `STDDEV`
    of Spark and DuckDB. It is null for fewer than two values. With `population=True` it is `STDDEV_POP`, with n in the
    denominator: 0.0 for one value, null for none.

        class Carrier(state.Keyed):
            spread: float | None = state.stddev("arrival_delay")

    Delays of 10, 20 and 60 minutes give 26.457513110645905; with `population=True` 21.602468994692867.

    It stores number, mean and M2, which merge without cancellation, so a small deviation around a large mean keeps its
    digits. They are floats for every field type. A restored checkpoint has exactly the stored bits, but another
    sequence of checkpoints or compactions over the same records may differ in the last bits. So the field stays out of
    state hashes, like a `mean` of floats.

    Args:
        source: the record field: int, float or Decimal.
        population: whether the values are the whole population, not a sample.
        ttl: time to live of the value.
        was: the previous name of a renamed field.
    """
    return over_field("stddev", source, ttl=ttl, was=was, options=_POPULATION if population else ())


def _less(field: StoredField) -> int:
    """Returns the number to subtract from the number of values in the denominator."""
    return 0 if field.options == _POPULATION else 1


def _merged(a: Row, b: Row) -> dict[str, Any]:
    count, distance = a["count"] + b["count"], b["mean"] - a["mean"]
    share = float(b["count"]) / float(count)
    mean = a["mean"] + distance * share
    return {"count": count, "mean": mean, "m2": a["m2"] + b["m2"] + distance * distance * float(a["count"]) * share}


def _merged_sql(dialect: Dialect) -> str:
    """Twin of `_merged`, operation by operation, over elements with their place."""
    count = 'a."held"."count" + b."held"."count"'
    distance = '(b."held"."mean" - a."held"."mean")'
    share = f'(CAST(b."held"."count" AS DOUBLE) / CAST({count} AS DOUBLE))'
    mean = f'a."held"."mean" + {distance} * {share}'
    m2 = f'a."held"."m2" + b."held"."m2" + {distance} * {distance} * CAST(a."held"."count" AS DOUBLE) * {share}'
    held = dialect.struct([("count", count), ("mean", mean), ("m2", m2)])
    return dialect.struct([("placed", 'b."placed"'), ("held", held)])
