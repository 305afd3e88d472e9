"""Tombstones: what is about to be deleted, so that a pin and a deletion meet safely without clocks (design section 6).

Who pins: write the pin, then `refuse_doomed`, and withdraw the pin where it raises. Who deletes: `raise_for` the
thing, then look for pins, and `withdraw` its own tombstone where there is one. Whatever the order, at least one sees
the other. The look for pins is a listing, which must be fresh: it is on local disks and on S3.
"""

from dataclasses import dataclass, replace

from tidemark.coordinator.objects import Objects
from tidemark.coordinator.series import Series
from tidemark.errors import ConflictError
from tidemark.model import keys
from tidemark.model.savepoint import TombstoneKind, TombstoneRecord
from tidemark.ports import Clock, PutOutcome, WriteIds


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstones:
    """Writes and finds the tombstones of one pipeline."""

    objects: Objects
    clock: Clock
    write_ids: WriteIds

    def active(self, kind: TombstoneKind, name: str) -> TombstoneRecord | None:
        """The tombstone of something, unless there is none or it was withdrawn."""
        _, found = self._series(kind, name).newest()
        return None if found is None or found.withdrawn else found

    def refuse_doomed(self, kind: TombstoneKind, name: str) -> None:
        """Raises where something is about to be deleted; a pinner asks before it writes its pin, and after.

        Raises:
            ConflictError: a tombstone stands.
        """
        found = self.active(kind, name)
        if found is not None:
            raise ConflictError(
                f"{kind.value} {name} is about to be deleted: {found.why}",
                safe="nothing that is still needed is deleted.",
                next="take another one; `tidemark savepoint list` shows what is pinned.",
            )

    def raise_for(self, kind: TombstoneKind, name: str, why: str) -> tuple[TombstoneRecord, bool]:
        """Writes the tombstone, or finds one that stands; the flag says whether this call wrote it."""
        series = self._series(kind, name)
        while True:
            number, found = series.newest()
            if found is not None and not found.withdrawn:
                return found, False
            record = self._record(kind, name, number + 1, why)
            if series.put(record.number, record) is PutOutcome.WON:
                return record, True

    def withdraw(self, standing: TombstoneRecord, why: str) -> None:
        """Takes a tombstone back: a pin was found.

        Only who wrote it may, before deleting anything: another deleter may have looked for pins earlier, found none,
        and be about to delete. Who can make that one's deletion fail may withdraw its tombstone too.
        """
        record = self._record(standing.kind, standing.name, standing.number + 1, why)
        self._series(standing.kind, standing.name).put(record.number, replace(record, withdrawn=True))

    def _record(self, kind: TombstoneKind, name: str, number: int, why: str) -> TombstoneRecord:
        return TombstoneRecord(
            kind=kind,
            name=name,
            number=number,
            withdrawn=False,
            why=why,
            at_ms=self.clock.now_ms(),
            write_id=self.write_ids(),
        )

    def _series(self, kind: TombstoneKind, name: str) -> Series[TombstoneRecord]:
        return Series(
            self.objects,
            TombstoneRecord,
            f"tombstones/{kind.value}s/{name}/",
            lambda n: keys.tombstone_key(kind.value, name, n),
        )
