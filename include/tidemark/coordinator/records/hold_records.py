"""Legal holds: while a hold is in place, its savepoint can neither be disposed nor expire."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.coordinator.records.objects import Objects, Series
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.retention.sweep_records import HoldRecord


@dataclass(frozen=True, slots=True)
class Holds:
    """Reads legal holds; `coordinator.retention.legal_holds` writes them."""

    objects: Objects

    def series(self, savepoint: str) -> Series[HoldRecord]:
        """The holds of a savepoint, numbered."""
        return Series(self.objects, HoldRecord, f"holds/{savepoint}/", lambda n: keys.hold_key(savepoint, n))

    def current(self, savepoint: str) -> HoldRecord | None:
        """The hold that is in place; None if there is none."""
        _, found = self.series(savepoint).newest()
        return None if found is None or found.released else found

    def all(self) -> Mapping[str, HoldRecord]:
        """Every hold that is in place, by savepoint."""
        names = {key.split("/")[1] for key in self.objects.list("holds/")}
        found = {name: self.current(name) for name in sorted(names)}
        return {name: record for name, record in found.items() if record is not None}
