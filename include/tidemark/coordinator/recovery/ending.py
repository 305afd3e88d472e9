"""A timeline that nobody promotes ends: its closing takes its next place and names no successor (adr/0018)."""

from dataclasses import dataclass

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.states import Ended, OpenPlan, SealedPlan
from tidemark.coordinator.records.timelines import Head
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.errors import ConflictError, NotFoundError
from tidemark.model import keys
from tidemark.model.checkpoint import Checkpoint
from tidemark.model.fates import FateRecord
from tidemark.model.records import Closing, Genesis, PutOutcome

_SAFE = "nothing was written; every checkpoint is intact."


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Ends timelines of one pipeline that are not live."""

    coordinator: CheckpointCoordinator

    def plan(self, name: str) -> Ended:
        """What an end would come to; writes nothing.

        Raises:
            NotFoundError: no such timeline.
            ConflictError: it is live, or was; a plan of its is open; or somebody is about to promote it.
        """
        c = self.coordinator
        head = c.head(name)
        if isinstance(head.entry, Closing) and not head.entry.successor:
            return self._ended(head.entry)
        self._refuse_live(head)
        claim = c.fates.standing(name)
        if claim is not None:
            raise _claimed(c.name, claim)
        found = c.standing(head)
        if isinstance(found, OpenPlan | SealedPlan):
            raise ConflictError(
                f"{found.plan.name} is in progress on timeline {name}",
                safe=_SAFE,
                next=f"tidemark run {c.name} --timeline {name}, or tidemark checkpoint abort {c.name}"
                f" {found.plan.name}; then close the timeline.",
            )
        return self._ended(self._closing(head))

    def close(self, name: str) -> Ended:
        """Ends a timeline; a repeated call finishes what one left that died.

        From the moment at which the end is announced nobody may promote it. A plan that was made since is void, unless
        its checkpoint wins the place: then it is the timeline's last one.

        Raises:
            NotFoundError, ConflictError: as `plan`.
        """
        c, found = self.coordinator, self.plan(name)
        if c.head(name).entry == found.closing:
            return found
        c.crash("fate", "before")
        claim = c.fates.end(name)
        c.crash("fate", "after")
        if claim is not None:
            raise _claimed(c.name, claim)
        while True:
            head = c.head(name)
            if isinstance(head.entry, Closing):
                return self._ended(head.entry)
            closing = self._closing(head)
            c.crash("closing", "before")
            won = c.objects.put(keys.slot_key(name, closing.sequence), closing) is PutOutcome.WON
            c.crash("closing", "after")
            if won:
                return self._ended(closing, won=True)

    def _refuse_live(self, head: Head) -> None:
        c, entry = self.coordinator, head.entry
        if isinstance(entry, Closing):
            raise ConflictError(
                f"timeline {head.timeline} was closed for {entry.successor}",
                safe=_SAFE,
                next=f"tidemark timeline list {c.name}",
            )
        if head.timeline == c.timelines.live():
            raise ConflictError(
                f"timeline {head.timeline} is live",
                safe=_SAFE,
                next=f"tidemark restore {c.name}, or tidemark promote {c.name}    (these close it for another one).",
            )
        if entry is None:
            raise NotFoundError(f"timeline {head.timeline} holds nothing", next=f"tidemark timeline list {c.name}")
        genesis = c.timelines.entry(head.timeline, 1)
        if isinstance(genesis, Genesis) and genesis.why == "restore":
            raise ConflictError(
                f"timeline {head.timeline} was begun by a restore, which a repetition finishes",
                safe=_SAFE,
                next=f"repeat the restore, then restore where you want to be: tidemark restore {c.name}",
            )

    def _closing(self, head: Head) -> Closing:
        c = self.coordinator
        return Closing(
            timeline=head.timeline,
            sequence=head.sequence + 1,
            successor="",
            why="close",
            write_id=c.write_ids(),
            at_ms=c.clock.now_ms(),
        )

    def _ended(self, closing: Closing, *, won: bool = False) -> Ended:
        """With what it is going to let go, and what stays all the same."""
        c, name = self.coordinator, closing.timeline
        entries = [c.timelines.entry(name, n) for n in range(1, closing.sequence)]
        own = tuple(e for e in entries if isinstance(e, Checkpoint))
        ids = {e.id for e in own}
        begun = [c.timelines.entry(other, 1) for other in c.timelines.names() if other != name]
        return Ended(
            closing=closing,
            checkpoints=own,
            savepoints=tuple(r.name for r in Savepoints(c).list() if r.checkpoint in ids),
            forks=tuple(g.timeline for g in begun if isinstance(g, Genesis) and g.parent in ids),
            won=won,
        )


def _claimed(pipeline: str, claim: FateRecord) -> ConflictError:
    return ConflictError(
        f"timeline {claim.timeline} is being promoted: it may take the next place of {claim.closes} at any moment",
        safe=_SAFE,
        next=f"tidemark promote {pipeline} {claim.timeline} --execute    (finishes it), or complete a checkpoint of"
        f" {claim.closes}: tidemark run {pipeline}    (takes the place); then ask again.",
    )
