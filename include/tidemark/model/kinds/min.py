"""`state.min`: the least value of a field."""

import builtins
from collections.abc import Sequence
from typing import Any

from tidemark.model.kinds.base.declaring import TimeToLive, over_field
from tidemark.model.kinds.base.extremes import Extreme


class Least(Extreme):
    """The least value that is not null."""

    name = function = "min"

    def pick(self, values: Sequence[Any]) -> Any:
        """See `Extreme`."""
        return builtins.min(values)


def min(source: str, *, ttl: TimeToLive = None, was: str = "") -> Any:  # noqa: A001
    """Keeps the least value that is not null."""
    return over_field("min", source, ttl=ttl, was=was)
