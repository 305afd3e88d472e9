"""Tombstones: what is about to be deleted, so that a pin and a deletion meet safely without clocks (design section 6).

Who pins: write the pin, then `refuse_doomed`, and withdraw the pin where it raises. Who deletes: `raise_for` the
thing, then look for pins, and `withdraw` where there is one. Whatever the order, at least one sees the other.
"""

from dataclasses import dataclass

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
                next="take another one.",
            )

    def raise_for(self, kind: TombstoneKind, name: str, why: str) -> TombstoneRecord:
        """Writes the tombstone, or finds that it stands already."""
        return self._write(kind, name, why, withdrawn=False)

    def withdraw(self, kind: TombstoneKind, name: str, why: str) -> None:
        """Takes it back: a pin was found. Nothing where none stands."""
        if self.active(kind, name) is not None:
            self._write(kind, name, why, withdrawn=True)

    def _write(self, kind: TombstoneKind, name: str, why: str, *, withdrawn: bool) -> TombstoneRecord:
        series = self._series(kind, name)
        while True:
            number, found = series.newest()
            if found is not None and found.withdrawn is withdrawn:
                return found
            record = TombstoneRecord(
                kind=kind,
                name=name,
                number=number + 1,
                withdrawn=withdrawn,
                why=why,
                at_ms=self.clock.now_ms(),
                write_id=self.write_ids(),
            )
            if series.put(record.number, record) is PutOutcome.WON:
                return record

    def _series(self, kind: TombstoneKind, name: str) -> Series[TombstoneRecord]:
        return Series(
            self.objects,
            TombstoneRecord,
            f"tombstones/{kind.value}s/{name}/",
            lambda n: keys.tombstone_key(kind.value, name, n),
        )
