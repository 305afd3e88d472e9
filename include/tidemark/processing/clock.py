"""The clock of one key's state: the greatest access time of the records that its function has been given so far."""

from typing import Any


class KeyClock:
    """Moves with the records that are handed out, and never back: a late record does not revive what has expired.

    Attributes:
        now: milliseconds on the operator's clock.
        place: the record handed out last, with its position; see `records`.
    """

    __slots__ = ("now", "place")

    def __init__(self, now: int, place: Any) -> None:
        self.now = now
        self.place = place
