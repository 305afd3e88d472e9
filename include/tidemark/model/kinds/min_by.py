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

    def picked(self, values: Sequence[Any]) -> Any:
        """See `PlacedValue`."""
        return min(values, key=comparable)


def min_by(source: str, by: str, *, ttl: TimeToLive = None, was: str = "") -> Any:
    """The field `source` of the record in which the field `by` is least: `MIN_BY` of Spark, `ARG_MIN` of DuckDB.

    Records in which `by` is null do not count; `source` may be null there. Where several records have the least `by`,
    the earliest of them decides, by (event time, topic, partition, offset), as for `first`; Flink's `minBy` takes the
    first one that arrives. So the result never depends on where barriers cut.

        class Aircraft(state.Keyed):
            best_day: date | None = state.min_by("day", by="arrival_delay")

    Delays of 40, 5 and 5 minutes on May 1, 2 and 3 give May 2.

    Args:
        source: the record field to keep, of any type.
        by: the record field to rank by, a scalar.
        ttl: of the whole.
        was: the name that the field had before.
    """
    return over_field("min_by", source, ttl=ttl, was=was, others=(named_field("min_by", by),))
