"""`state.latest`: the field of the latest record."""

from collections.abc import Sequence
from typing import Any

from tidemark.model.kinds.base.declaring import TimeToLive, over_field
from tidemark.model.kinds.base.placed import OrderedValue
from tidemark.model.kinds.base.python import comparable


class Latest(OrderedValue):
    """The value of the latest record."""

    name = "latest"
    function = "max"

    def pick(self, values: Sequence[Any]) -> Any:
        """See `PlacedValue`."""
        return max(values, key=comparable)


def latest(source: str, *, ignore_nulls: bool = False, ttl: TimeToLive = None, was: str = "") -> Any:
    """Keeps the field of the latest record by (event time, topic, partition, offset), including null."""
    return over_field("latest", source, ignore_nulls=ignore_nulls, ttl=ttl, was=was)
