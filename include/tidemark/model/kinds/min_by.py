"""`state.min_by`: one field of the record in which another field is least."""

from collections.abc import Sequence
from typing import Any

from tidemark.model.kinds.base.declaring import TimeToLive, named_field, over_field
from tidemark.model.kinds.base.python import comparable
from tidemark.model.kinds.max_by import MaxBy


class MinBy(MaxBy):
    """The mirror of `max_by`: least by (`by`, event time, topic, partition, offset)."""

    name = "min_by"
    function = "min"

    def pick(self, values: Sequence[Any]) -> Any:
        """See `PlacedValue`."""
        return min(values, key=comparable)


def min_by(source: str, by: str, *, ttl: TimeToLive = None, was: str = "") -> Any:
    """Keeps the field `source` of the record with the least `by`: `MIN_BY` of Spark, `ARG_MIN` of DuckDB.

    Records with a null `by` do not count; `source` may be null. If several records have the least `by`, the earliest of
    them by (event time, topic, partition, offset) decides, as for `first`, so the result never depends on where
    barriers cut. (`minBy` of Flink's DataStream API takes the first one that arrives.)

        class Aircraft(state.Keyed):
            best_day: date | None = state.min_by("day", by="arrival_delay")

    Delays of 40, 5 and 5 minutes on May 1, 2 and 3 give May 2.

    Args:
        source: the record field to keep, of any type.
        by: the record field to rank by, a scalar.
        ttl: time to live of the value.
        was: the previous name of a renamed field.
    """
    return over_field("min_by", source, ttl=ttl, was=was, others=(named_field("min_by", by),))
