"""`state.aggregate`: an aggregate of an author (Flink's AggregatingState)."""

from collections.abc import Mapping
from typing import Any, Unpack

from tidemark.model.core.ttl import as_ttl
from tidemark.model.kinds.base.authored import Authored
from tidemark.model.kinds.base.declaring import Kept
from tidemark.model.schema.field_descriptors import StateDescriptor
from tidemark.portable_sql.custom_aggregate import declared_aggregate


class AuthoredAggregate(Authored):
    """Several accumulators, and an expression over them that readers see."""

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
    """An aggregate of your own (Flink's AggregatingState), in the portable SQL subset.

    Args:
        accumulator: name to type of what is stored.
        partial: per accumulator one aggregate function over the records of a batch: `sum(delay * delay)`.
        finish: an expression over the accumulators, which readers see.
        merge: per accumulator the function that merges partials; it follows from the partial, and must agree.
        spark_only: take any Spark SQL; readers without Spark refuse the field, and `merge` must be associative.
        kept: `ttl=` of the whole; `was=`, the name that the field had before.
    """
    made = declared_aggregate(accumulator, partial, merge, finish, spark_only=spark_only)
    return StateDescriptor(kind="aggregate", aggregate=made, ttl=as_ttl(kept.get("ttl")), was=kept.get("was", ""))
