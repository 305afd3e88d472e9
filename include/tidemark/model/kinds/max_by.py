"""`state.max_by`: one field of the record in which another field is greatest."""

from collections.abc import Iterator, Sequence
from typing import Any

from tidemark.errors import DeclarationError
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.declaring import TimeToLive, named_field, over_field
from tidemark.model.kinds.base.kind import Input, StateDescriptor, record_field
from tidemark.model.kinds.base.placed import PlacedValue
from tidemark.model.kinds.base.python import comparable
from tidemark.model.kinds.base.sql import quote
from tidemark.model.schema.operator_schema import StoredField


class MaxBy(PlacedValue):
    """The value of the record that is greatest by (`by`, event time, topic, partition, offset)."""

    name = "max_by"
    function = "max"

    def bound(self, at: str, declared: StateDescriptor, record: FieldType) -> Input:
        """See `StateKind`."""
        (path,) = declared.others
        ranking = record_field(at, path, record)
        if not ranking.is_ordered:
            raise DeclarationError(
                f"{at}: state.{self.shown} by {path!r}, which is a {ranking.word}", next="rank by a scalar field."
            )
        return Input(over=super().bound(at, declared, record).over, others=((path, ranking.stored.with_null(True)),))

    def ranks(self, field: StoredField) -> tuple[tuple[str, FieldType], ...]:
        """See `PlacedValue`."""
        return tuple(("by", of) for _, of in field.others)

    def rank_paths(self, field: StoredField) -> tuple[str, ...]:
        """See `PlacedValue`."""
        return tuple(path for path, _ in field.others)

    def import_faults(self, field: StoredField) -> Iterator[tuple[str, str]]:
        """See `StateKind`."""
        by = f"{field.name}__by"
        yield f"{quote(field.name)} IS NOT NULL AND {quote(by)} IS NULL", f"{field.name} is known, and {by} is not"

    def pick(self, values: Sequence[Any]) -> Any:
        """See `PlacedValue`."""
        return max(values, key=comparable)


def max_by(source: str, by: str, *, ttl: TimeToLive = None, was: str = "") -> Any:
    """Keeps the field `source` of the record with the greatest `by`: `MAX_BY` of Spark, `ARG_MAX` of DuckDB.

    Records with a null `by` do not count; `source` may be null. If several records have the greatest `by`, the latest
    of them by (event time, topic, partition, offset) decides, as for `latest`, so the result never depends on where
    barriers cut. (`maxBy` of Flink's DataStream API takes the first one that arrives, and SQL any of them.)

        class Aircraft(state.Keyed):
            worst_day: date | None = state.max_by("day", by="arrival_delay")

    Delays of 5, 40 and 40 minutes on May 1, 2 and 3 give May 3.

    A NaN is the greatest float. A restored checkpoint has exactly the stored value.

    Args:
        source: the record field to keep, of any type.
        by: the record field to rank by, a scalar.
        ttl: time to live of the value.
        was: the previous name of a renamed field.
    """
    return over_field("max_by", source, ttl=ttl, was=was, others=(named_field("max_by", by),))
