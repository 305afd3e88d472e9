"""Records numbered from 1 in one folder, of which the newest counts: stops, revisions, tombstones.

The number is the compare-and-set: a process that has read n and puts n + 1 wins only if no other process put it first.
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
    """One log of numbered records.

    Attributes:
        objects: the store.
        kind: type of the records.
        folder: the folder of the records, with its final `/`; it holds nothing else.
        key: returns the key of a number.
    """

    objects: Objects
    kind: type[T]
    folder: str
    key: Callable[[int], str]

    def newest(self) -> tuple[int, T | None]:
        """The greatest number with its record; (0, None) if there is none. A stale listing costs only reads."""
        number = greatest(self.objects.list(self.folder))
        found = self.objects.read(self.kind, self.key(number)) if number else None
        while (later := self.objects.read(self.kind, self.key(number + 1))) is not None:
            number, found = number + 1, later
        return number, found

    def put(self, number: int, value: T) -> PutOutcome:
        """Puts the record of a number; LOST if another process put it first."""
        return self.objects.put(self.key(number), value)
