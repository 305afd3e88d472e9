"""`state.aggregate`: an author's own aggregate (Flink's AggregatingState)."""

from collections.abc import Mapping
from typing import Any, Unpack

from tidemark.model.core.ttl import as_ttl
from tidemark.model.kinds.base.authored import Authored
from tidemark.model.kinds.base.declaring import Kept
from tidemark.model.kinds.base.kind import StateDescriptor
from tidemark.model.portable_sql.custom_aggregate import declared_aggregate


class AuthoredAggregate(Authored):
    """Several accumulators, and an expression over them as the finished value."""

    name = "aggregate"


def aggregate(
    *,
    accumulator: Mapping[str, Any],
    partial: Mapping[str, str],
    finish: str,
    merge: Mapping[str, str] | None = None,
    spark_only: bool = False,
    **kept: Unpack[Kept],
) -> Any:
    """Declares an aggregate of your own (Flink's AggregatingState), in the portable SQL subset.

    Args:
        accumulator: types of the stored accumulators, by name.
        partial: for each accumulator an aggregate function over the records of a batch, such as `sum(delay * delay)`.
        finish: the expression over the accumulators that readers see.
        merge: for each accumulator the function that merges partials; it follows from the partial and must agree with
            it.
        spark_only: accept any Spark SQL; readers without Spark then refuse the field, and `merge` must be associative.
        kept: `ttl=` of the whole aggregate; `was=`, the previous name of a renamed field.
    """
    made = declared_aggregate(accumulator, partial, merge, finish, spark_only=spark_only)
    return StateDescriptor(kind="aggregate", aggregate=made, ttl=as_ttl(kept.get("ttl")), was=kept.get("was", ""))
