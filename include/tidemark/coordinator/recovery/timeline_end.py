"""Ends a timeline that never became live: its closing takes its next slot and names no successor (ADR 0018, 0024).

Such a timeline is a fork that was not promoted, or the timeline of a restore that died between its two puts or lost to
another one.
"""

from dataclasses import dataclass, replace

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.states import Ended, OpenPlan, SealedPlan
from tidemark.coordinator.records.timelines import Head
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.errors import ConflictError, NotFoundError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Closing, Genesis, PutOutcome
from tidemark.model.retention.promotion_claims import PromotionClaim

_SAFE = "nothing was written; every checkpoint is intact."


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Ends timelines of one pipeline that are not live."""

    coordinator: CheckpointCoordinator

    def plan(self, name: str) -> Ended:
        """Returns the effect of an end; writes nothing.

        Raises:
            NotFoundError: there is no such timeline.
            ConflictError: the timeline is or was live; it has an open plan; or it may become live at any moment.
        """
        c = self.coordinator
        head = c.head(name)
        if isinstance(head.entry, Closing) and not head.entry.successor:
            return self._ended(head.entry)
        self._refuse_live(head)
        claim = c.promotion_claims.current(name)
        if claim is not None:
            raise self._claimed(claim)
        found = c.next_plan(head)
        if isinstance(found, OpenPlan | SealedPlan):
            raise ConflictError(
                f"{found.plan.name} is in progress on timeline {name}",
                safe=_SAFE,
                next=f"tidemark run {c.name} --timeline {name}, or tidemark checkpoint abort {c.name}"
                f" {found.plan.name}; then close the timeline.",
            )
        return self._ended(self._closing(head))

    def close(self, name: str) -> Ended:
        """Ends a timeline; a repeated call finishes what a killed one left.

        Once the end is announced, the timeline cannot become live. A plan made since is void, unless its checkpoint
        wins the slot: then it is the timeline's last checkpoint. A savepoint that a restore claimed for the timeline is
        given back before the closing, because until then the timeline itself pins the checkpoint.

        Raises:
            NotFoundError, ConflictError: as `plan`.
        """
        c, found = self.coordinator, self.plan(name)
        if c.head(name).entry == found.closing:
            if found.gives_back:  # claimed by a restore that the end overtook, and that died
                Savepoints(c).give_back(found.gives_back, name, pinned=False)
            return found
        c.listener("fate", "before")
        claim = c.promotion_claims.end(name)
        c.listener("fate", "after")
        if claim is not None:
            raise self._claimed(claim)
        gives_back = self._claimed_savepoint(name)
        if gives_back:
            c.listener("give_back", "before")
            Savepoints(c).give_back(gives_back, name, pinned=True)
            c.listener("give_back", "after")
        while True:
            head = c.head(name)
            if isinstance(head.entry, Closing):
                return self._ended(head.entry)
            closing = self._closing(head)
            c.listener("closing", "before")
            won = c.objects.put(keys.slot_key(name, closing.sequence), closing) is PutOutcome.WON
            c.listener("closing", "after")
            if won:
                return replace(self._ended(closing, won=True), gives_back=gives_back)

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
                next=f"tidemark restore {c.name}, or tidemark promote {c.name}    (these replace it by another one).",
            )
        if entry is None:
            raise NotFoundError(f"timeline {head.timeline} holds nothing", next=f"tidemark timeline list {c.name}")

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
        """Adds what the end releases, and what stays nevertheless."""
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
            gives_back=self._claimed_savepoint(name),
            won=won,
        )

    def _claimed_savepoint(self, name: str) -> str:
        """The savepoint that a restore has claimed for a timeline; empty if there is none."""
        genesis = self.coordinator.timelines.entry(name, 1)
        if not isinstance(genesis, Genesis) or not genesis.claim:
            return ""
        found = Savepoints(self.coordinator).find(genesis.savepoint)
        return genesis.savepoint if found is not None and found.claimed_by == name else ""

    def _claimed(self, claim: PromotionClaim) -> ConflictError:
        c = self.coordinator
        genesis = c.timelines.entry(claim.timeline, 1)
        verb, finishes = "promoted", f"tidemark promote {c.name} {claim.timeline} --execute"
        if isinstance(genesis, Genesis) and genesis.why == "restore":
            where = f"--savepoint {genesis.savepoint}" if genesis.savepoint else f"--checkpoint chk-{genesis.parent}"
            verb, finishes = "restored", f"tidemark restore {c.name} {where} --execute"
        return ConflictError(
            f"timeline {claim.timeline} is being {verb}: it may take the next slot of {claim.closes} at any moment",
            safe=_SAFE,
            next=f"{finishes}    (finishes it), or complete a checkpoint of {claim.closes}: tidemark run {c.name}"
            "    (takes the slot); then run the command again.",
        )
