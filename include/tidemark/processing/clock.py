"""The clock of one key's state: the greatest access time of the records passed to its function so far."""

from typing import Any


class KeyClock:
    """Advances with the records passed to the function, never backwards: a late record does not revive expired values.

    Attributes:
        now: milliseconds on the operator's clock.
        place: the last record passed to the function, with its position; see `records`.
    """

    __slots__ = ("now", "place")

    def __init__(self, now: int, place: Any) -> None:
        self.now = now
        self.place = place
