"""Records that Kafka refuses: failures of deliveries, and the records that a person decided to skip.

Both are objects of the store, put if absent and never edited. A skip names a record by its id, which belongs to one
plan. The record that another plan emits for the same source record has another id, and is sent or refused on its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidemark.coordinator.records.objects import Objects, Series
from tidemark.model.checkpoint.object_keys import delivery_failure_key, skip_key
from tidemark.model.checkpoint.refused_records import DeliveryFailure, SkippedRecord
from tidemark.ports import PutOutcome


@dataclass(frozen=True, slots=True)
class Refusals:
    """The delivery failures and skipped records of one pipeline."""

    objects: Objects

    def put_failure(self, failure: DeliveryFailure) -> None:
        """Records a failure, unless it repeats the sink's last one."""
        series = self._failures(failure.sink)
        number, last = series.newest()
        if last is None or replace(failure, at_ms=last.at_ms, write_id=last.write_id) != last:
            series.put(number + 1, failure)

    def failures(self, sink: str) -> Iterator[DeliveryFailure]:
        """Failures of a sink, newest first."""
        series = self._failures(sink)
        number, last = series.newest()
        while last is not None:
            yield last
            number -= 1
            last = self.objects.read(DeliveryFailure, delivery_failure_key(sink, number)) if number else None

    def refusal(self, sink: str, checkpoint: int) -> DeliveryFailure | None:
        """The last refusal of a checkpoint's record; None if there was none since the sink reached the checkpoint."""
        for failure in self.failures(sink):
            if failure.checkpoint != checkpoint:
                return None
            if failure.record:
                return failure
        return None

    def skip(self, record: SkippedRecord) -> bool:
        """Leaves a record out from now on. Returns whether this call did so."""
        return self.objects.put(skip_key(record.sink, record.record), record) is PutOutcome.WON

    def list_skipped(self, sink: str) -> list[SkippedRecord]:
        """The records of a sink that are left out, oldest first."""
        read = (self.objects.read(SkippedRecord, key) for key in self.objects.list(f"skips/{sink}/"))
        return sorted((found for found in read if found is not None), key=lambda r: (r.at_ms, r.record))

    def skipped_ids(self, sink: str) -> frozenset[str]:
        """Ids of the records of a sink that are left out."""
        return frozenset(found.record for found in self.list_skipped(sink))

    def sinks(self) -> list[str]:
        """Names of the sinks that leave records out."""
        return sorted({key.split("/")[1] for key in self.objects.list("skips/")})

    def _failures(self, sink: str) -> Series[DeliveryFailure]:
        return Series(
            self.objects,
            DeliveryFailure,
            f"delivery_failures/{sink}/",
            lambda number: delivery_failure_key(sink, number),
        )
