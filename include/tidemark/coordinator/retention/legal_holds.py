"""Legal holds on savepoints: like every pin, a hold is put first, then the tombstone is looked for."""

from dataclasses import dataclass, replace

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.hold_records import Holds
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.errors import ConflictError, NotFoundError
from tidemark.model.retention.savepoint import TombstoneKind
from tidemark.model.retention.sweep_records import HoldRecord
from tidemark.ports import PutOutcome


@dataclass(frozen=True, slots=True)
class Holding:
    """Puts and releases legal holds on the savepoints of one pipeline. You can repeat every verb."""

    coordinator: CheckpointCoordinator

    def hold(self, name: str, *, why: str, owner: str) -> HoldRecord:
        """Keeps a savepoint from being disposed and from expiring. A hold that is in place stays as it is.

        Raises:
            NotFoundError: there is no such savepoint, or it is disposed.
            ConflictError: it is being disposed at this moment, or another process changed the hold.
        """
        savepoints = Savepoints(self.coordinator)
        savepoints.get(name)
        number, found = Holds(self.coordinator.objects).series(name).newest()
        if found is None or found.released:
            found = self._put(self._record(name, number + 1, why, owner))
        try:
            savepoints.tombstones.refuse_doomed(TombstoneKind.SAVEPOINT, name)
        except ConflictError:
            self._put(self._ended(found))
            raise
        return found

    def release(self, name: str) -> HoldRecord:
        """Ends the hold on a savepoint.

        Raises:
            NotFoundError: there is no hold.
            ConflictError: another process changed it at the same moment.
        """
        found = Holds(self.coordinator.objects).current(name)
        if found is None:
            raise NotFoundError(
                f"no legal hold on savepoint {name!r}", next=f"tidemark savepoint list {self.coordinator.name}"
            )
        return self._put(self._ended(found))

    def _record(self, name: str, revision: int, why: str, owner: str) -> HoldRecord:
        c = self.coordinator
        return HoldRecord(
            savepoint=name,
            revision=revision,
            why=why,
            owner=owner,
            released=False,
            at_ms=c.clock.now_ms(),
            write_id=c.write_ids(),
        )

    def _ended(self, found: HoldRecord) -> HoldRecord:
        again = self._record(found.savepoint, found.revision + 1, found.why, found.owner)
        return replace(again, released=True)

    def _put(self, record: HoldRecord) -> HoldRecord:
        if Holds(self.coordinator.objects).series(record.savepoint).put(record.revision, record) is PutOutcome.LOST:
            raise ConflictError(
                f"the legal hold on {record.savepoint} was changed at the same moment",
                safe="the other change is in effect; the savepoint still pins its checkpoint.",
                next=f"tidemark savepoint show {self.coordinator.name} {record.savepoint}, then try again.",
            )
        return record
