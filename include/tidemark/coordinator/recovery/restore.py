"""Begins timelines: a fork runs next to the live timeline, a restore takes its place.

Both begin with a genesis record, which at once pins every checkpoint that it names; nothing is copied. A restore then
closes the live timeline by taking its next slot: with that put, the new timeline is live. If a process dies between the
two puts, it leaves a timeline that nothing runs on; the same request finds that timeline again and finishes.
"""

from dataclasses import dataclass, replace

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.plans.ancestry import since_split
from tidemark.coordinator.plans.inputs import Parent
from tidemark.coordinator.plans.replay_ranges import left_to_repeat
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.plans.sink_inputs import SentRecords, gone_back, restored_sinks
from tidemark.coordinator.records.objects import SlotEntry
from tidemark.coordinator.records.released_checkpoints import usable
from tidemark.coordinator.records.states import Forked, Restored, Superseded
from tidemark.coordinator.records.timelines import Head, is_stillborn, refuse_stillborn
from tidemark.coordinator.records.tombstones import read_release
from tidemark.coordinator.recovery.promotion import ended_timeline
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import ConflictError, CorruptObjectError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Closing, Genesis, PutOutcome
from tidemark.model.core.names import checked_timeline
from tidemark.model.core.offsets import OffsetCoverage
from tidemark.model.retention.savepoint import TombstoneKind


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """Begins timelines of one pipeline.

    Attributes:
        coordinator: of the pipeline.
        pipeline: the current declaration, which the restored state must fit; None = the first plan checks it.
    """

    coordinator: CheckpointCoordinator
    pipeline: Pipeline | None = None

    def fork(self, restore_point: RestorePoint, name: str, request: str = "") -> Forked:
        """Begins a named timeline next to the live one; a repeated call finds the timeline of the first one.

        Args:
            restore_point: the checkpoint to begin at, and the options.
            name: name of the timeline.
            request: the caller's id; a fork begun by another request is a different fork.

        Raises:
            NameRefusedError: the name is outside the allow-list, or one of those that restores take (`t<n>`).
            ConflictError: a timeline of this name began differently.
            UsageError, IncompatibleStateError, CorruptObjectError: see `genesis`.
        """
        wanted = self.fork_draft(restore_point, name, request)
        found = self._put(wanted)
        _refuse_another(found, wanted)
        # The process that put the genesis may have died before its check, or while it was being refused.
        self._refuse_doomed(wanted)
        return Forked(genesis=found or wanted, won=found is None)

    def fork_draft(self, restore_point: RestorePoint, name: str, request: str = "") -> Genesis:
        """Returns the genesis that `fork` would put now; nothing is written.

        Raises:
            NameRefusedError, ConflictError, UsageError, IncompatibleStateError, CorruptObjectError: as `fork`.
        """
        wanted = replace(self.genesis(restore_point), timeline=checked_timeline(name), why="fork", request=request)
        _refuse_another(self.coordinator.objects.slot(name, 1), wanted)
        return wanted

    def restore(self, restore_point: RestorePoint, request: str = "") -> Restored | Superseded:
        """Makes a new timeline live that begins at a checkpoint of any timeline.

        Args:
            restore_point: the checkpoint to begin at, and the options.
            request: the caller's id. A later call with the same id finds the result of the first one, whatever has been
                restored since. Without an id, that is true only while the same timeline is live.

        Returns:
            Restored; `overtaken` lists the checkpoints that took the slot first: they stay on the old timeline.
            Superseded: another restore or promote closed that timeline first.

        Raises:
            ConflictError: the id belongs to another restore; another timeline claimed the savepoint; or a checkpoint
                that it pins is about to be deleted.
            UsageError, IncompatibleStateError, CorruptObjectError: see `genesis`.
        """
        wanted = self.draft(restore_point, request)
        found = self._find_or_put_genesis(wanted)
        while found.write_id != wanted.write_id and self._is_given_up(found, again := _after(found), request):
            wanted = replace(wanted, request=again)
            found = self._find_or_put_genesis(wanted)
        if _terms(found) != _terms(wanted):
            raise ConflictError(
                f"request {request} has restored chk-{found.parent} to timeline {found.timeline}",
                next="give a new request a new id.",
            )
        return self._close(found)

    def draft(self, restore_point: RestorePoint, request: str = "") -> Genesis:
        """Returns the genesis that a restore would put now, without a name yet.

        Raises:
            UsageError, IncompatibleStateError, CorruptObjectError: see `genesis`.
            BrokerError: sinks go back, and Kafka did not return its topics.
            ConflictError: sinks would stay that a drain has given the rows of all windows.
        """
        c, head = self.coordinator, self.coordinator.head()
        live, made, sent = Parent.of(head), self.genesis(restore_point), SentRecords(c.timelines).of(head.timeline)
        if restore_point.restore_sinks and sent:
            sent = gone_back(sent, made, c.log.topic_ids({*made.topic_ids, *live.topic_ids}))
        found = restored_sinks(made, live, sent, go_back=restore_point.restore_sinks)
        if found.keeps_sinks and any(table.handle for table in live.sinks.values()):
            sinks_of, revision = _sinks_of(head.entry)
            found = replace(found, sinks_of=sinks_of, sinks_revision=revision)
        if found.keeps_sinks and _has_clocks(found, live):
            _refuse_drained_sinks(head.entry)
            found = replace(found, repeats_to=self._repeats_to(restore_point.checkpoint, found, head))
        wanted = request or restore_point.request(head.timeline)
        return replace(found, why="restore", request=wanted, closes=head.timeline)

    def _repeats_to(self, begins: Checkpoint, found: Genesis, head: Head) -> int:
        """Id of the checkpoint up to which a timeline repeats cuts, because sinks have its windows; 0 = none.

        Other cuts would make other records late, so the sinks would not fit the state (adr/0057).

        Raises:
            ConflictError: the checkpoint is not on the line of the sinks, so their cuts are not known.
        """
        if not _continues_sinks(begins, found):
            return found.repeats_to
        to = _newest_cuts(head.entry)
        try:
            return to if any(left_to_repeat(self.coordinator.timelines, begins, to)) else 0
        except ConflictError as error:
            raise ConflictError(
                f"sinks cannot stay: {error.what}, so it is not known which records were late for their windows",
                safe="nothing was written.",
                next="repeat it with --restore-sinks.",
            ) from error

    def genesis(self, restore_point: RestorePoint) -> Genesis:
        """Returns the record that a timeline would begin with, without a name and not written yet.

        Raises:
            UsageError, IncompatibleStateError: see `RestorePoint.genesis`.
            ReleasedError: retention has released the checkpoint.
            CorruptObjectError: files of the checkpoint are gone.
        """
        c = self.coordinator
        made = restore_point.genesis(self.pipeline, write_id=c.write_ids(), at_ms=c.clock.now_ms())
        broken = [uid for uid, handle in made.handles.items() if not c.files_exist(handle)]
        if broken:
            # The checkpoint may have been released since it was chosen.
            usable(c.timelines, restore_point.checkpoint)
            refuse_stillborn(c.objects, made)
            raise CorruptObjectError(
                f"{restore_point.checkpoint.plan.name} cannot be restored: files of {', '.join(broken)} are gone",
                safe="nothing was written.",
                next="choose another checkpoint, or restore the files from a backup of the warehouse.",
            )
        return made

    def _find_or_put_genesis(self, wanted: Genesis) -> Genesis:
        """Returns the genesis of a request: that of an earlier call, or a new one under the next free name.

        Names are taken in order, and every name before the free one is looked at. So a request has at most one genesis,
        whatever a listing shows.
        """
        while True:
            found, free = self._genesis_of(wanted.request)
            if found is not None:
                return found
            named = replace(wanted, timeline=free)
            if self._put(named) is None:
                return named

    def _genesis_of(self, request: str) -> tuple[Genesis | None, str]:
        """The genesis that a request has begun, and the first free name after all that were looked at."""
        number = 2
        while (found := self.coordinator.objects.slot(f"t{number}", 1)) is not None:
            if isinstance(found, Genesis) and found.request == request:
                return found, ""
            number += 1
        return None, f"t{number}"

    def _is_given_up(self, found: Genesis, again: str, request: str) -> bool:
        """Whether an earlier call's timeline can never become live, so that the same request may begin another.

        A request with its own id is not carried out again after its timeline was closed by hand.
        """
        c = self.coordinator
        closing = c.head(found.closes).entry
        if isinstance(closing, Closing):
            return closing.successor != found.timeline and self._genesis_of(again)[0] is not None
        if found.sinks_of and read_release(c.objects, f"chk-{found.sinks_of}") is not None:
            return True
        if is_stillborn(c.objects, found):
            return True
        return not request and c.promotion_claims.has_ended(found.timeline)

    def _put(self, genesis: Genesis) -> Genesis | None:
        """Puts a genesis. None if it was put; otherwise the genesis in its place."""
        c, key = self.coordinator, keys.slot_key(genesis.timeline, 1)
        c.listener("genesis", "before")
        won = c.objects.put(key, genesis) is PutOutcome.WON
        c.listener("genesis", "after")
        found = None if won else c.objects.slot(genesis.timeline, 1)
        if not won and not isinstance(found, Genesis):
            raise CorruptObjectError(
                f"object damaged: {key} is not the genesis of timeline {genesis.timeline}",
                next="restore the object from a backup of the warehouse.",
            )
        return found if isinstance(found, Genesis) else None

    def _refuse_doomed(self, genesis: Genesis) -> None:
        """Refuses a genesis whose pins are about to be deleted. A genesis is a pin, so it is written first."""
        tombstones = Savepoints(self.coordinator).tombstones
        tombstones.refuse_doomed(TombstoneKind.CHECKPOINT, f"chk-{genesis.parent}")
        refuse_stillborn(self.coordinator.objects, genesis)
        if genesis.sinks_of and tombstones.active(TombstoneKind.CHECKPOINT, f"chk-{genesis.sinks_of}") is not None:
            raise ConflictError(
                f"chk-{genesis.sinks_of}, whose sinks timeline {genesis.timeline} would continue,"
                " is about to be deleted",
                safe="the live timeline continues; every restore point that is kept is intact.",
                next="repeat the same restore: it continues the sinks as they are by then; or add --restore-sinks.",
            )
        if genesis.savepoint:
            tombstones.refuse_doomed(TombstoneKind.SAVEPOINT, genesis.savepoint)

    def _close(self, genesis: Genesis) -> Restored | Superseded:
        c, overtaken = self.coordinator, list[Checkpoint]()
        while True:
            head = c.head(genesis.closes)
            if isinstance(head.entry, Closing):
                return self._closed(genesis, head.entry, overtaken)
            self._refuse_doomed(genesis)
            if genesis.claim:
                Savepoints(c).claim(genesis.savepoint, genesis.timeline)
            closing = Closing(
                timeline=genesis.closes,
                sequence=head.sequence + 1,
                successor=genesis.timeline,
                why="restore",
                write_id=c.write_ids(),
                at_ms=c.clock.now_ms(),
            )
            self._claim(genesis, closing)
            c.listener("closing", "before")
            won = c.objects.put(keys.slot_key(closing.timeline, closing.sequence), closing) is PutOutcome.WON
            c.listener("closing", "after")
            if won:
                return self._closed(genesis, closing, overtaken, won=True)
            taken = c.objects.slot(closing.timeline, closing.sequence)
            if isinstance(taken, Checkpoint):
                overtaken.append(taken)

    def _claim(self, genesis: Genesis, closing: Closing) -> None:
        """Claims the slot of a closing, so that a restore and an end of its timeline meet (ADR 0024).

        Raises:
            ConflictError: the timeline has ended.
        """
        c = self.coordinator
        c.listener("fate", "before")
        if not c.promotion_claims.claim(genesis.timeline, closing.timeline, closing.sequence):
            if genesis.claim:
                Savepoints(c).give_back(genesis.savepoint, genesis.timeline, pinned=False)
            raise ended_timeline(c.name, genesis.timeline)
        c.listener("fate", "after")

    def _closed(
        self, genesis: Genesis, closing: Closing, overtaken: list[Checkpoint], *, won: bool = False
    ) -> Restored | Superseded:
        if closing.successor != genesis.timeline:
            return Superseded(closing=closing, genesis=genesis)
        timelines = self.coordinator.timelines
        old = timelines.chain(closing.timeline)
        left = tuple(since_split(old, timelines.ancestry(timelines.checkpoint(genesis.parent))))
        return Restored(genesis=genesis, closing=closing, left=left, overtaken=tuple(overtaken), won=won)


def _after(given_up: Genesis) -> str:
    """The request that continues after an earlier one with the same words failed."""
    return f"{given_up.request} after {given_up.timeline}"


def _sinks_of(live: SlotEntry | None) -> tuple[int, int]:
    """The checkpoint that the sinks of the live timeline belong to, and `Genesis.sinks_revision` of it."""
    if isinstance(live, Checkpoint):
        return live.id, live.revision + 1
    if not isinstance(live, Genesis):
        return 0, 0
    return (live.sinks_of, live.sinks_revision) if live.sinks_of else (live.parent, live.parent_revision + 1)


def _refuse_drained_sinks(live: SlotEntry | None) -> None:
    if isinstance(live, Checkpoint) and live.plan.drains:
        raise ConflictError(
            f"sinks cannot stay: {live.plan.name} has closed all windows, and they have the rows",
            safe="nothing was written.",
            next="repeat it with --restore-sinks.",
        )


def _newest_cuts(live: SlotEntry | None) -> int:
    """Id of the newest checkpoint whose cuts the sinks of the live timeline have."""
    if isinstance(live, Checkpoint):
        return live.plan.repeats_to or live.id
    return (live.repeats_to or live.parent) if isinstance(live, Genesis) else 0


def _has_clocks(found: Genesis, live: Parent) -> bool:
    schemas = (*found.schemas.values(), *live.schemas.values())
    return any(schema.window is not None or schema.timers is not None for schema in schemas)


def _continues_sinks(begins: Checkpoint, found: Genesis) -> bool:
    """Whether a sink has, or has sent, other rows than it had at the checkpoint that the timeline begins at.

    Another line may have reached the same coverage by other cuts, so with other rows.
    """
    before = {(table.is_transactional, table.name): table for table in begins.sinks.values()}
    for table in (*found.sinks.values(), *found.outboxes.values()):
        old = before.get((table.is_transactional, table.name))
        known = OffsetCoverage() if old is None else old.coverage(begins.plan.topic_ids)
        if not known.contains(table.coverage(found.topic_ids)) or (old is not None and old.handle != table.handle):
            return True
    return False


def _refuse_another(found: object, wanted: Genesis) -> None:
    """Refuses a timeline that does not begin with the requested fork."""
    if isinstance(found, Genesis) and (_terms(found), found.request) != (_terms(wanted), wanted.request):
        raise ConflictError(
            f"timeline {wanted.timeline} exists already: it began at chk-{found.parent}",
            next="use another name; a name is never used again.",
        )


def _terms(genesis: Genesis) -> tuple[object, ...]:
    """The values that two calls of one request have in common."""
    return (genesis.parent, genesis.why, genesis.savepoint, genesis.claim, dict(genesis.renamed))
