"""`state.first`: the field of the earliest record."""

from collections.abc import Sequence
from typing import Any

from tidemark.model.kinds.base.declaring import TimeToLive, over_field
from tidemark.model.kinds.base.placed import OrderedValue
from tidemark.model.kinds.base.python import comparable


class First(OrderedValue):
    """The value of the earliest record."""

    name = "first"
    function = "min"

    def pick(self, values: Sequence[Any]) -> Any:
        """See `PlacedValue`."""
        return min(values, key=comparable)


def first(source: str, *, ignore_nulls: bool = False, ttl: TimeToLive = None, was: str = "") -> Any:
    """Keeps the field of the earliest record by (event time, topic, partition, offset), including null."""
    return over_field("first", source, ignore_nulls=ignore_nulls, ttl=ttl, was=was)
