"""New timelines: a fork beside the live one, a restore in its place (design section 6; G10-G12, fault 37).

Both begin with a genesis record, which pins what it names at once; nothing is copied. A restore then closes the live
timeline by taking its next slot: that put is the moment at which the new timeline is live. Whoever dies between the
two leaves a timeline that nothing runs on, and the same request finds it again and finishes.
"""

from dataclasses import dataclass, replace

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.plans.ancestry import since_split
from tidemark.coordinator.plans.parents import Parent
from tidemark.coordinator.plans.restore_point import Beginning
from tidemark.coordinator.plans.sent_offsets import SentRecords, gone_back
from tidemark.coordinator.plans.sink_inputs import restored_sinks
from tidemark.coordinator.records.erasure_records import refuse_stillborn
from tidemark.coordinator.records.objects import SlotEntry
from tidemark.coordinator.records.released_checkpoints import usable
from tidemark.coordinator.records.states import Forked, Restored, Superseded
from tidemark.coordinator.records.tombstones import released
from tidemark.coordinator.recovery.promotion import ended
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import ConflictError, CorruptObjectError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Closing, Genesis, PutOutcome
from tidemark.model.core.names import checked_timeline
from tidemark.model.retention.savepoint import TombstoneKind


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """Begins timelines of one pipeline.

    Attributes:
        coordinator: of the pipeline.
        pipeline: the declaration of today, which what is restored must fit; None = the first plan finds out.
    """

    coordinator: CheckpointCoordinator
    pipeline: Pipeline | None = None

    def fork(self, beginning: Beginning, name: str, request: str = "") -> Forked:
        """Begins a named timeline beside the live one; a repeated call finds what the first one began.

        Args:
            beginning: where, and on which terms.
            name: of the timeline.
            request: an id of the caller's; a fork that was begun by another request is another one.

        Raises:
            NameRefusedError: a name outside the allow-list, or one of those that restores take (`t<n>`).
            ConflictError: a timeline of this name began otherwise.
            UsageError, IncompatibleStateError, CorruptObjectError: see `genesis`.
        """
        wanted = self.fork_draft(beginning, name, request)
        found = self._put(wanted)
        _refuse_another(found, wanted)
        # Who put the genesis may have died before it looked, or while it was refused.
        self._refuse_doomed(wanted)
        return Forked(genesis=found or wanted, won=found is None)

    def fork_draft(self, beginning: Beginning, name: str, request: str = "") -> Genesis:
        """The genesis that `fork` would put now; nothing is written.

        Raises:
            NameRefusedError, ConflictError, UsageError, IncompatibleStateError, CorruptObjectError: as `fork`.
        """
        wanted = replace(self.genesis(beginning), timeline=checked_timeline(name), why="fork", request=request)
        _refuse_another(self.coordinator.objects.slot(name, 1), wanted)
        return wanted

    def restore(self, beginning: Beginning, request: str = "") -> Restored | Superseded:
        """Makes a new timeline live, which begins at a checkpoint of any timeline.

        Args:
            beginning: where, and on which terms.
            request: an id of the caller's: a later call with the same one finds what the first one did, whatever has
                been restored since. Without it the same is true only while the same timeline is live.

        Returns:
            Restored; `overtaken` names the checkpoints that took the slot first: they stay on the old timeline.
            Superseded: another restore or promote closed that timeline first.

        Raises:
            ConflictError: the request is that of another restore; another timeline claimed the savepoint; or what
                it pins is about to be deleted.
            UsageError, IncompatibleStateError, CorruptObjectError: see `genesis`.
        """
        wanted = self.draft(beginning, request)
        found = self._begun(wanted)
        while found.write_id != wanted.write_id and self._is_given_up(found, again := _after(found), request):
            wanted = replace(wanted, request=again)
            found = self._begun(wanted)
        if _terms(found) != _terms(wanted):
            raise ConflictError(
                f"request {request} has restored chk-{found.parent} to timeline {found.timeline}",
                next="give a new id to a new request.",
            )
        return self._close(found)

    def draft(self, beginning: Beginning, request: str = "") -> Genesis:
        """The genesis that a restore would put now, without a name yet.

        Raises:
            UsageError, IncompatibleStateError, CorruptObjectError: see `genesis`.
            BrokerError: sinks go back, and Kafka did not say which topics it has.
        """
        c, head = self.coordinator, self.coordinator.head()
        live, made, sent = Parent.of(head), self.genesis(beginning), SentRecords(c.timelines).of(head.timeline)
        if beginning.restore_sinks and sent:
            sent = gone_back(sent, made, c.log.topic_ids({*made.topic_ids, *live.topic_ids}))
        found = restored_sinks(made, live, sent, go_back=beginning.restore_sinks)
        if found.keeps_sinks and any(table.handle for table in live.sinks.values()):
            found = replace(found, sinks_of=_sinks_of(head.entry))
        wanted = request or beginning.request(head.timeline)
        return replace(found, why="restore", request=wanted, closes=head.timeline)

    def genesis(self, beginning: Beginning) -> Genesis:
        """The record that a timeline would begin with, not named and not written yet.

        Raises:
            UsageError, IncompatibleStateError: see `Beginning.genesis`.
            ReleasedError: retention has let the checkpoint go.
            CorruptObjectError: files of the checkpoint are gone.
        """
        c = self.coordinator
        made = beginning.genesis(self.pipeline, write_id=c.write_ids(), at_ms=c.clock.now_ms())
        broken = [uid for uid, handle in made.handles.items() if not c.files_exist(handle)]
        if broken:
            # It may have been released since somebody asked for it.
            usable(c.timelines, beginning.checkpoint)
            refuse_stillborn(c.objects, made)
            raise CorruptObjectError(
                f"{beginning.checkpoint.plan.name} cannot be restored: files of {', '.join(broken)} are gone",
                safe="nothing was written.",
                next="choose another checkpoint, or put the files back from a backup of the warehouse.",
            )
        return made

    def _begun(self, wanted: Genesis) -> Genesis:
        """The genesis of a request: that of an earlier call, or ours under the next free name.

        Names are taken in order, and every one before the free one is looked at: so a request has one at most,
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
        """What a request has begun, and the first name that is free behind all that were looked at."""
        number = 2
        while (found := self.coordinator.objects.slot(f"t{number}", 1)) is not None:
            if isinstance(found, Genesis) and found.request == request:
                return found, ""
            number += 1
        return None, f"t{number}"

    def _is_given_up(self, found: Genesis, again: str, request: str) -> bool:
        """Whether an earlier call's timeline can never become live, so that the same request may begin another.

        A request with an id of its own is not carried out again after its timeline was closed by hand.
        """
        c = self.coordinator
        closing = c.head(found.closes).entry
        if isinstance(closing, Closing):
            return closing.successor != found.timeline and self._genesis_of(again)[0] is not None
        if found.sinks_of and released(c.objects, f"chk-{found.sinks_of}") is not None:
            return True
        return not request and c.fates.has_ended(found.timeline)

    def _put(self, genesis: Genesis) -> Genesis | None:
        """None where it was put; else what is there."""
        c, key = self.coordinator, keys.slot_key(genesis.timeline, 1)
        c.listener("genesis", "before")
        won = c.objects.put(key, genesis) is PutOutcome.WON
        c.listener("genesis", "after")
        found = None if won else c.objects.slot(genesis.timeline, 1)
        if not won and not isinstance(found, Genesis):
            raise CorruptObjectError(
                f"object damaged: {key} is not the genesis of timeline {genesis.timeline}",
                next="put the object back from a backup of the warehouse.",
            )
        return found if isinstance(found, Genesis) else None

    def _refuse_doomed(self, genesis: Genesis) -> None:
        """A genesis is a pin: once it is written, what it pins must not be about to be deleted (design section 6)."""
        tombstones = Savepoints(self.coordinator).tombstones
        tombstones.refuse_doomed(TombstoneKind.CHECKPOINT, f"chk-{genesis.parent}")
        refuse_stillborn(self.coordinator.objects, genesis)
        if genesis.sinks_of and tombstones.active(TombstoneKind.CHECKPOINT, f"chk-{genesis.sinks_of}") is not None:
            raise ConflictError(
                f"chk-{genesis.sinks_of}, whose sinks timeline {genesis.timeline} would go on with,"
                " is about to be deleted",
                safe="the live timeline goes on; every restore point that is kept is intact.",
                next="repeat the same restore: it goes on with the sinks as they are by then; or add --restore-sinks.",
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
        """Claims the place of a closing, so that a restore and an end of its timeline meet (adr/0024).

        Raises:
            ConflictError: the timeline has ended.
        """
        c = self.coordinator
        c.listener("fate", "before")
        if not c.fates.claim(genesis.timeline, closing.timeline, closing.sequence):
            if genesis.claim:
                Savepoints(c).give_back(genesis.savepoint, genesis.timeline, pinned=False)
            raise ended(c.name, genesis.timeline)
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
    """The request that goes on where an earlier one with the same words came to nothing."""
    return f"{given_up.request} after {given_up.timeline}"


def _sinks_of(live: SlotEntry | None) -> int:
    """The checkpoint whose sinks the live timeline has; 0 where it has none yet."""
    if isinstance(live, Checkpoint):
        return live.id
    return live.sinks_of or live.parent if isinstance(live, Genesis) else 0


def _refuse_another(found: object, wanted: Genesis) -> None:
    """Whatever a timeline begins with that is not the fork that is wanted."""
    if isinstance(found, Genesis) and (_terms(found), found.request) != (_terms(wanted), wanted.request):
        raise ConflictError(
            f"timeline {wanted.timeline} is there already: it began at chk-{found.parent}",
            next="take another name; a name is never used again.",
        )


def _terms(genesis: Genesis) -> tuple[object, ...]:
    """What two calls of one request have in common."""
    return (genesis.parent, genesis.why, genesis.savepoint, genesis.claim, dict(genesis.renamed))
