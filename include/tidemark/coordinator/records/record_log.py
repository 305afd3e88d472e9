"""Objects numbered from 1 below one folder, of which the newest counts: stops, revisions, tombstones.

The number is the compare-and-set: who has read n and puts n + 1 wins only if nobody did so in between.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidemark.coordinator.records.objects import Objects
from tidemark.model.checkpoint.object_keys import greatest
from tidemark.ports import PutOutcome

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Series(Generic[T]):
    """One of them.

    Attributes:
        objects: the store.
        kind: type of the objects.
        folder: where they lie, with its final `/`; nothing else lies there.
        key: the key of a number.
    """

    objects: Objects
    kind: type[T]
    folder: str
    key: Callable[[int], str]

    def newest(self) -> tuple[int, T | None]:
        """The greatest number with its object; (0, None) where there is none. A stale listing costs reads only."""
        number = greatest(self.objects.list(self.folder))
        found = self.objects.read(self.kind, self.key(number)) if number else None
        while (later := self.objects.read(self.kind, self.key(number + 1))) is not None:
            number, found = number + 1, later
        return number, found

    def put(self, number: int, value: T) -> PutOutcome:
        """Puts the object of a number; LOST where somebody else did."""
        return self.objects.put(self.key(number), value)
