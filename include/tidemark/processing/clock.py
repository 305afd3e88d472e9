"""The clock of one key's state: the greatest access time of the records passed to its function so far."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.processing.process_records import PositionedRecord


class KeyClock:
    """Advances with the records passed to the function, never backwards: a late record does not revive expired values.

    Attributes:
        now: milliseconds on the operator's clock.
        place: the last record passed to the function, with its position; see `handed`.
    """

    __slots__ = ("now", "place")

    def __init__(self, now: int, place: Any) -> None:
        self.now = now
        self.place = place

    def handed(self, records: "Iterable[PositionedRecord]") -> Iterator[Any]:
        """Yields the records themselves, one by one; the clock has the last one."""
        for placed in records:
            # As `reach` does, without a call per record.
            self.place = placed
            if placed.at > self.now:
                self.now = placed.at
            yield placed.record

    def reach(self, placed: "PositionedRecord") -> None:
        """Moves to a record, or to a timer that fires."""
        self.place = placed
        if placed.at > self.now:
            self.now = placed.at
