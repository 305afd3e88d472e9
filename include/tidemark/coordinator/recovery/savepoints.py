"""Savepoints: named pins of completed checkpoints. You can pin any checkpoint that is retained, at any time.

A pin is written first; then the tombstone of its checkpoint is looked for, and if there is one the pin is withdrawn.
Nothing here needs Kafka, Spark, or the declaration: the pipeline may be running, paused, or broken.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.objects import Series
from tidemark.coordinator.records.tombstones import Tombstones
from tidemark.coordinator.recovery.savepoint_references import needed_by
from tidemark.errors import ConflictError, NotFoundError, ReleasedError, UsageError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.retention.savepoint import (
    SavepointChange,
    SavepointRecord,
    SavepointRequest,
    TombstoneKind,
    checked_savepoint,
)
from tidemark.ports import PutOutcome


@dataclass(frozen=True, slots=True)
class Savepoints:
    """The savepoints of one pipeline. You can repeat every verb after a crash."""

    coordinator: CheckpointCoordinator

    def plan(self, request: SavepointRequest) -> Checkpoint:
        """Returns the checkpoint that `create` would pin; writes nothing.

        Raises:
            NotFoundError, ConflictError, UsageError: as `create`.
        """
        _refuse_past(request.expires_at_ms, self.coordinator.clock.now_ms())
        taken = self.find(request.name)
        if taken is not None:
            if not _same_call(taken, request):
                raise _taken(taken)
            return self.coordinator.checkpoint(taken.checkpoint)
        found = self._found(request)
        self.tombstones.refuse_doomed(TombstoneKind.CHECKPOINT, found.plan.name)
        return found

    def create(self, request: SavepointRequest) -> SavepointRecord:
        """Pins a completed checkpoint under a name; a repetition of the same call finds its own savepoint.

        Raises:
            NotFoundError: no such checkpoint or timeline, or no checkpoint yet; or the checkpoint was released.
            ConflictError: the name is or was taken; or the checkpoint is about to be deleted, and the pin was
                withdrawn.
            UsageError: the savepoint would expire before it is made.
        """
        listener, draft = self.coordinator.listener, self._draft(request, self._planned(request))
        listener("savepoint", "before")
        won = self._series(request.name).put(1, draft) is PutOutcome.WON
        listener("savepoint", "after")
        made = draft if won else self.find(request.name)
        if made is None or not _same_call(made, request):
            raise _taken(made or draft)
        return self._keep_unless_doomed(made)

    def find(self, name: str) -> SavepointRecord | None:
        """Returns the newest revision of a savepoint, disposed or not; None if the name was never used.

        Raises:
            NameRefusedError: a savepoint cannot have this name.
        """
        return self._series(checked_savepoint(name)).newest()[1]

    def get(self, name: str) -> SavepointRecord:
        """Returns the newest revision of a savepoint that pins its checkpoint.

        Raises:
            NotFoundError: there is no such savepoint, or it is disposed.
        """
        found = self.find(name)
        if found is None or found.disposed:
            past = "" if found is None else f": it was {_end(found)}"
            raise NotFoundError(f"no savepoint {name!r}{past}", next=self._list)
        return found

    def checkpoint_of(self, name: str) -> Checkpoint:
        """Returns the checkpoint that a savepoint pins.

        Raises:
            NotFoundError: no such savepoint, or it is disposed.
        """
        return self.coordinator.checkpoint(self.get(name).checkpoint)

    def list(self, *, disposed: bool = False) -> Sequence[SavepointRecord]:
        """The newest revision of every savepoint, oldest savepoint first; disposed ones only on request."""
        names = sorted({key.split("/")[1] for key in self.coordinator.objects.list("savepoints/")})
        found = [record for name in names if (record := self.find(name)) is not None]
        return sorted((r for r in found if disposed or not r.disposed), key=lambda r: (r.created_at_ms, r.name))

    def pins(self) -> Mapping[int, tuple[str, ...]]:
        """Names of the savepoints that pin a checkpoint, by its id."""
        pinned: dict[int, list[str]] = defaultdict(list)
        for record in self.list():
            pinned[record.checkpoint].append(record.name)
        return {number: tuple(names) for number, names in pinned.items()}

    def change(self, name: str, change: SavepointChange) -> SavepointRecord:
        """Changes the note or the expiry, as a new revision.

        Raises:
            NotFoundError: no such savepoint, or it is disposed.
            ConflictError: another process changed the savepoint at the same moment.
            UsageError: the savepoint would have expired already.
        """
        found = self.get(name)
        now = self.coordinator.clock.now_ms()
        if change.moves_expiry:
            _refuse_past(change.expires_at_ms, now)
        return self._put(found.revise(change, now_ms=now, write_id=self.coordinator.write_ids()))

    def needed_by(self, name: str) -> Sequence[str]:
        """Lists what keeps a savepoint from being disposed, in words; empty if nothing does.

        Raises:
            NotFoundError: no such savepoint.
        """
        return needed_by(self.coordinator, self.get(name))

    def refuse_needed(self, name: str) -> None:
        """Refuses to dispose a savepoint that something needs.

        Raises:
            NotFoundError: no such savepoint.
            ConflictError: a timeline, a stop or a running plan needs it.
        """
        self._refuse_needed(self.get(name))

    def dispose(self, name: str) -> SavepointRecord:
        """Disposes a savepoint: tombstone, search for references, final revision. Retention deletes its files.

        Disposing a disposed savepoint changes nothing.

        Raises:
            NotFoundError: no such savepoint.
            ConflictError: a timeline, a stop or a running plan needs it; the savepoint stays.
        """
        found = self.find(name)
        if found is not None and found.disposed:
            return found
        listener, found = self.coordinator.listener, found or self.get(name)
        self._refuse_needed(found)
        listener("tombstone", "before")
        tombstone, _ = self.tombstones.raise_for(TombstoneKind.SAVEPOINT, name, "disposed")
        listener("tombstone", "after")
        try:
            self._refuse_needed(found)
        except ConflictError:
            # Another disposal may have searched earlier and found nothing: one more revision makes its last put fail.
            c = self.coordinator
            self._put(found.revise(SavepointChange(), now_ms=c.clock.now_ms(), write_id=c.write_ids()))
            self.tombstones.withdraw(tombstone, "it is needed")
            raise
        listener("dispose", "before")
        done = self._ended(found)
        listener("dispose", "after")
        return done

    def claim(self, name: str, timeline: str) -> SavepointRecord:
        """Hands the pin over to a timeline that began at it (Flink's CLAIM); a second claim is refused.

        Called once the timeline's genesis is in place: from then on only the genesis keeps the checkpoint.

        Raises:
            NotFoundError: no such savepoint.
            ConflictError: another timeline claimed it, or it was changed at the same moment.
        """
        found = self.find(name)
        if found is not None and found.claimed_by is not None:
            if found.claimed_by == timeline:
                return found
            raise ConflictError(
                f"savepoint {name} was {_end(found)}",
                safe="it belongs to that timeline; nothing changed.",
                next=self._list,
            )
        return self._ended(self.get(name), claimed_by=timeline)

    def give_back(self, name: str, timeline: str, *, pinned: bool) -> SavepointRecord | None:
        """Undoes the claim of a timeline that ended before it was live; None if it has claimed nothing.

        Args:
            name: name of the savepoint.
            timeline: the timeline that ends.
            pinned: whether the timeline itself still pins the checkpoint, so that retention cannot have released it.

        Raises:
            ConflictError: retention released the checkpoint meanwhile, or another call is giving it back.
        """
        found = self.find(name) if name else None
        if found is None or found.claimed_by != timeline:
            return None
        c = self.coordinator
        given = self._put(found.given_back(now_ms=c.clock.now_ms(), write_id=c.write_ids()))
        return given if pinned else self._keep_unless_doomed(given)

    @property
    def tombstones(self) -> Tombstones:
        """The tombstones of the pipeline."""
        c = self.coordinator
        return Tombstones(objects=c.objects, clock=c.clock, write_ids=c.write_ids)

    def _planned(self, request: SavepointRequest) -> Checkpoint:
        """As `plan`; if an earlier call pinned a checkpoint that was released since, that pin is withdrawn."""
        try:
            return self.plan(request)
        except ReleasedError:
            left = self.find(request.name)
            if left is not None and not left.disposed:
                self._ended(left)
            raise

    def _found(self, request: SavepointRequest) -> Checkpoint:
        if request.checkpoint is not None:
            return self.coordinator.checkpoint(request.checkpoint)
        for newest in self.coordinator.checkpoints(request.timeline):
            return newest
        raise NotFoundError(
            "no checkpoint yet, so there is nothing to pin", next=f"tidemark run {self.coordinator.name}"
        )

    @property
    def _list(self) -> str:
        return f"tidemark savepoint list {self.coordinator.name}    (lists them)."

    def _show(self, name: str) -> str:
        return f"tidemark savepoint show {self.coordinator.name} {name}"

    def _draft(self, request: SavepointRequest, found: Checkpoint) -> SavepointRecord:
        now = self.coordinator.clock.now_ms()
        return SavepointRecord(
            name=request.name,
            revision=1,
            checkpoint=found.id,
            timeline=found.plan.slot.timeline,
            owner=request.owner,
            note=request.note,
            expires_at_ms=request.expires_at_ms,
            created_at_ms=now,
            changed_at_ms=now,
            origin=request.origin,
            drained=request.drained,
            disposed=False,
            write_id=self.coordinator.write_ids(),
        )

    def _keep_unless_doomed(self, record: SavepointRecord) -> SavepointRecord:
        """Returns the pin, unless its checkpoint is about to be deleted; in that case the pin is withdrawn."""
        try:
            self.tombstones.refuse_doomed(TombstoneKind.CHECKPOINT, record.checkpoint_name)
        except ConflictError:
            self._ended(record)
            raise
        return record

    def _refuse_needed(self, record: SavepointRecord) -> None:
        found = needed_by(self.coordinator, record)
        if found:
            raise ConflictError(
                f"savepoint {record.name} is needed by {'; '.join(found)}",
                safe="it still pins its checkpoint.",
                next=f"{self._show(record.name)}: try again later; it can be disposed when nothing needs it any more.",
            )

    def _ended(self, record: SavepointRecord, claimed_by: str | None = None) -> SavepointRecord:
        c = self.coordinator
        return self._put(record.end(now_ms=c.clock.now_ms(), write_id=c.write_ids(), claimed_by=claimed_by))

    def _put(self, record: SavepointRecord) -> SavepointRecord:
        if self._series(record.name).put(record.revision, record) is PutOutcome.LOST:
            raise ConflictError(
                f"savepoint {record.name} was changed at the same moment",
                safe="the other change is in effect; the savepoint still pins its checkpoint, unless it was disposed.",
                next=f"{self._show(record.name)}, then try again.",
            )
        return record

    def _series(self, name: str) -> Series[SavepointRecord]:
        return Series(
            self.coordinator.objects, SavepointRecord, f"savepoints/{name}/", lambda n: keys.savepoint_key(name, n)
        )


def _same_call(found: SavepointRecord, request: SavepointRequest) -> bool:
    ours = (found.origin, found.drained) == (request.origin, request.drained) and not found.disposed
    return ours and request.checkpoint in (None, found.checkpoint)


def _taken(found: SavepointRecord) -> ConflictError:
    what = f"was {_end(found)}, and a name is used once" if found.disposed else f"pins {found.checkpoint_name}"
    return ConflictError(f"savepoint {found.name} {what}", safe="it is unchanged.", next="use another name.")


def _end(found: SavepointRecord) -> str:
    return "disposed" if found.claimed_by is None else f"claimed by timeline {found.claimed_by}"


def _refuse_past(expires_at_ms: int | None, now_ms: int) -> None:
    if expires_at_ms is not None and expires_at_ms <= now_ms:
        raise UsageError("it would have expired already", next="give a later time, or omit the expiry.")
