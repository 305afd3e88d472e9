"""New timelines: a fork beside the live one, a restore in its place (design section 6; G10-G12, fault 37).

Both begin with a genesis record, which pins what it names at once; nothing is copied. A restore then closes the live
timeline by taking its next slot: that put is the moment at which the new timeline is live. Whoever dies between the
two leaves a timeline that nothing runs on, and the same request finds it again and finishes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.checkpoints.deliveries import sent_until
from tidemark.coordinator.plans.beginnings import Beginning
from tidemark.coordinator.plans.lineage import Reach, since_split
from tidemark.coordinator.plans.parents import Parent
from tidemark.coordinator.plans.sinks import appended_sinks
from tidemark.coordinator.records.erasures import refuse_stillborn
from tidemark.coordinator.records.releases import usable
from tidemark.coordinator.records.states import Forked, Restored, Superseded
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.errors import ConflictError, CorruptObjectError
from tidemark.model import keys
from tidemark.model.checkpoint import Checkpoint
from tidemark.model.names import checked_timeline
from tidemark.model.offsets import TopicPartition
from tidemark.model.records import Closing, Genesis, PutOutcome
from tidemark.model.savepoint import TombstoneKind
from tidemark.pipeline import Pipeline


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
        """
        head = self.coordinator.head()
        live, found = Parent.of(head), self.genesis(beginning)
        if not beginning.restore_sinks and Reach.of_parent(live).contains(Reach.of(found)):
            found = replace(found, sinks=appended_sinks(found.sinks, live, self.sent(live)))
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

    def sent(self, live: Parent) -> dict[str, Mapping[TopicPartition, int]]:
        """Per sink with an outbox where the offsets end whose records the live timeline has sent."""
        outboxes = [table.name for table in live.sinks.values() if table.kind == "kafka"]
        return {name: sent_until(self.coordinator, name) for name in outboxes}

    def _begun(self, wanted: Genesis) -> Genesis:
        """The genesis of a request: that of an earlier call, or ours under the next free name.

        Names are taken in order, and every one before the free one is looked at: so a request has one at most,
        whatever a listing shows.
        """
        number = 2
        while True:
            named = replace(wanted, timeline=f"t{number}")
            found = self.coordinator.objects.slot(named.timeline, 1)
            if found is None:
                found = self._put(named)
                if found is None:
                    return named
            if isinstance(found, Genesis) and found.request == wanted.request:
                return found
            number += 1

    def _put(self, genesis: Genesis) -> Genesis | None:
        """None where it was put; else what is there."""
        c, key = self.coordinator, keys.slot_key(genesis.timeline, 1)
        c.crash("genesis", "before")
        won = c.objects.put(key, genesis) is PutOutcome.WON
        c.crash("genesis", "after")
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
            c.crash("closing", "before")
            won = c.objects.put(keys.slot_key(closing.timeline, closing.sequence), closing) is PutOutcome.WON
            c.crash("closing", "after")
            if won:
                return self._closed(genesis, closing, overtaken, won=True)
            taken = c.objects.slot(closing.timeline, closing.sequence)
            if isinstance(taken, Checkpoint):
                overtaken.append(taken)

    def _closed(
        self, genesis: Genesis, closing: Closing, overtaken: list[Checkpoint], *, won: bool = False
    ) -> Restored | Superseded:
        if closing.successor != genesis.timeline:
            return Superseded(closing=closing, genesis=genesis)
        timelines = self.coordinator.timelines
        old = timelines.chain(closing.timeline)
        left = tuple(since_split(old, timelines.ancestry(timelines.checkpoint(genesis.parent))))
        return Restored(genesis=genesis, closing=closing, left=left, overtaken=tuple(overtaken), won=won)


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
