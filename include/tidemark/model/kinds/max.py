"""`state.max`: the greatest value of a field."""

import builtins
from collections.abc import Sequence
from typing import Any

from tidemark.model.kinds.base.declaring import TimeToLive, over_field
from tidemark.model.kinds.base.extremes import Extreme


class Greatest(Extreme):
    """The greatest value that is not null."""

    name = function = "max"

    def pick(self, values: Sequence[Any]) -> Any:
        """See `Extreme`."""
        return builtins.max(values)


def max(source: str, *, ttl: TimeToLive = None, was: str = "") -> Any:  # noqa: A001
    """Keeps the greatest value that is not null."""
    return over_field("max", source, ttl=ttl, was=was)
