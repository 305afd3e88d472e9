"""Tombstones announce deletions, so that a pin and a deletion meet safely without clocks.

A process that pins writes the pin, then calls `refuse_doomed`, and withdraws the pin if that raises. A process that
deletes calls `raise_for` for the thing, then looks for pins, and either `withdraw`s the tombstone or `confirm`s it. The
two decisions compete for the next number, so several deleters reach the same answer. Whatever the order, at least one
of pinner and deleter sees the other. The search for pins is a listing, which must be fresh: it is fresh on local disks
and on S3.

A checkpoint whose tombstone is confirmed is *released*, for good: its manifest stays, its files may be deleted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tidemark.coordinator.records.objects import Objects, Series
from tidemark.errors import ConflictError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.retention.savepoint import TombstoneKind, TombstoneRecord
from tidemark.ports import Clock, PutOutcome, WriteIds


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstones:
    """Writes and finds the tombstones of one pipeline."""

    objects: Objects
    clock: Clock
    write_ids: WriteIds

    def active(self, kind: TombstoneKind, name: str) -> TombstoneRecord | None:
        """The tombstone of something, confirmed or not; None if there is none or it was withdrawn."""
        _, found = _series(self.objects, kind, name).newest()
        return None if found is None or found.withdrawn else found

    def refuse_doomed(self, kind: TombstoneKind, name: str) -> None:
        """Refuses a thing that is about to be deleted. A pinner calls this before it writes its pin, and after.

        Raises:
            ConflictError: the thing has a tombstone.
        """
        found = self.active(kind, name)
        if found is not None:
            raise ConflictError(
                f"{kind.value} {name} is about to be deleted: {found.why}",
                safe="nothing that is still needed is deleted.",
                next=f"tidemark savepoint list {self.objects.pipeline}    (lists pinned checkpoints; use another).",
            )

    def raise_for(
        self, kind: TombstoneKind, name: str, why: str, place: str = "", *, given_up: bool = False
    ) -> tuple[TombstoneRecord, bool]:
        """Writes the tombstone, or finds the one in place; the flag says whether this call wrote it."""
        series = _series(self.objects, kind, name)
        while True:
            number, found = series.newest()
            if found is not None and not found.withdrawn:
                return found, False
            record = replace(self._record(kind, name, number + 1, why), place=place, given_up=given_up)
            if series.put(record.number, record) is PutOutcome.WON:
                return record, True

    def withdraw(self, standing: TombstoneRecord, why: str) -> bool:
        """Withdraws a tombstone because a pin was found. Returns False if it was confirmed first.

        A savepoint's tombstone may be withdrawn only by the process that wrote it, before it ends the savepoint:
        nothing confirms such a tombstone, and another deleter may have looked for pins earlier, found none, and be
        about to delete. A process that can make that deletion fail may withdraw its tombstone too.
        """
        if standing.confirmed:
            return False
        record = self._record(standing.kind, standing.name, standing.number + 1, why)
        return self._settled(replace(record, withdrawn=True)).withdrawn

    def confirm(self, standing: TombstoneRecord) -> bool:
        """Makes a tombstone final, because no pin was found since. Returns False if it was withdrawn first.

        Nothing is deleted before a tombstone is confirmed.
        """
        if standing.confirmed:
            return True
        record = self._record(standing.kind, standing.name, standing.number + 1, standing.why)
        return self._settled(
            replace(record, confirmed=True, place=standing.place, given_up=standing.given_up)
        ).confirmed

    def _settled(self, record: TombstoneRecord) -> TombstoneRecord:
        """Puts the decision about a tombstone, and returns the first decision that was put."""
        series = _series(self.objects, record.kind, record.name)
        if series.put(record.number, record) is PutOutcome.WON:
            return record
        found = self.objects.read(TombstoneRecord, series.key(record.number))
        return record if found is None else found

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


def read_release(objects: Objects, checkpoint: str) -> TombstoneRecord | None:
    """The confirmed tombstone of a checkpoint; None while the checkpoint may be used."""
    _, found = _series(objects, TombstoneKind.CHECKPOINT, checkpoint).newest()
    return found if found is not None and found.confirmed else None


def given_up(objects: Objects, place: str) -> TombstoneRecord | None:
    """The tombstone of a checkpoint that was given up, by the key of its damaged manifest; None if there is none."""
    found = (t for t in of_checkpoints(objects).values() if t.given_up and t.confirmed and t.place == place)
    return next(found, None)


def of_checkpoints(objects: Objects) -> Mapping[str, TombstoneRecord]:
    """The newest tombstone of every checkpoint that has one, by name, without withdrawn ones."""
    newest = newest_keys(objects.list(tombstones_of_checkpoints()))
    return drop_withdrawn({name: objects.read(TombstoneRecord, key) for name, key in newest.items()})


def tombstones_of_checkpoints() -> str:
    """The folder of all tombstones of checkpoints."""
    return f"tombstones/{TombstoneKind.CHECKPOINT.value}s/"


def newest_keys(listed: Iterable[str]) -> dict[str, str]:
    """The newest key of each thing among listed tombstones, by the thing's name."""
    return {key.split("/")[2]: key for key in listed}


def drop_withdrawn(newest: Mapping[str, TombstoneRecord | None]) -> dict[str, TombstoneRecord]:
    """The tombstones that are in place, i.e. not withdrawn."""
    return {name: record for name, record in newest.items() if record is not None and not record.withdrawn}


def _series(objects: Objects, kind: TombstoneKind, name: str) -> Series[TombstoneRecord]:
    return Series(
        objects,
        TombstoneRecord,
        f"tombstones/{kind.value}s/{name}/",
        lambda n: keys.tombstone_key(kind.value, name, n),
    )
