"""Stop records: while the newest one says stopped, no plan is made."""

from dataclasses import dataclass

from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.record_log import Series
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.store_objects import StopRecord


@dataclass(frozen=True, slots=True)
class Stops:
    """Reads stop records; `coordinator.recovery.stop_and_resume` writes them."""

    objects: Objects

    @property
    def series(self) -> Series[StopRecord]:
        """All stop records, numbered."""
        return Series(self.objects, StopRecord, "stops/", keys.stop_key)

    def standing(self) -> StopRecord | None:
        """The stop that is in effect; None if plans may be made."""
        _, found = self.series.newest()
        return found if found is not None and found.stopped else None
