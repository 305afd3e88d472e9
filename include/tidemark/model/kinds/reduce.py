"""`state.reduce`: one aggregate function of an author (Flink's ReducingState)."""

from dataclasses import replace
from typing import Any

from tidemark.model.core.ttl import as_ttl
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.authored import Authored
from tidemark.model.kinds.base.declaring import TimeToLive
from tidemark.model.kinds.base.kind import StateDescriptor
from tidemark.model.portable_sql.custom_aggregate import declared_reduce


class Reduction(Authored):
    """One accumulator, with the type of the field itself."""

    name = "reduce"

    def check_annotation(self, declared: StateDescriptor, found: FieldType, where: str) -> StateDescriptor:
        """See `StateKind`: the annotation is the accumulator's type."""
        assert declared.aggregate is not None  # noqa: S101  (for the type checker)
        own = replace(declared.aggregate, accumulators=(("value", found.with_null(True)),))
        return replace(declared, aggregate=own)


def reduce(text: str, *, ttl: TimeToLive = None, was: str = "") -> Any:
    """Applies one aggregate function whose result has the type of its input (Flink's ReducingState).

    Args:
        text: an expression in the portable SQL subset, such as `max(arrival_delay - departure_delay)`.
        ttl: time to live of the value.
        was: the previous name of a renamed field.
    """
    return StateDescriptor(kind="reduce", aggregate=declared_reduce(text), ttl=as_ttl(ttl), was=was)
