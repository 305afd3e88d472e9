"""Makes a fork live: its closing of the live timeline and that timeline's next manifest compete for one slot."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.plans.ancestry import Reach, since_split
from tidemark.coordinator.plans.sink_inputs import SentRecords, merge_sent
from tidemark.coordinator.records.states import Promoted, PromotionBlocked, Superseded
from tidemark.coordinator.records.timelines import Head
from tidemark.errors import ConflictError, NotFoundError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.emitted import emitted_by
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Closing, Genesis, PutOutcome
from tidemark.model.core.offsets import OffsetCoverage


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """Promotes forks of one pipeline."""

    coordinator: CheckpointCoordinator

    def promote(
        self, name: str, *, discard: bool = False, send: bool = False
    ) -> Promoted | PromotionBlocked | Superseded:
        """Makes a fork the live timeline, if it has applied everything that the live one has.

        Args:
            name: the fork.
            discard: promote even if it has not. The checkpoints that it lacks when this is called, and only these, are
                left behind.
            send: the next delivery sends the rows in the fork's outboxes that the live timeline has not sent.

        Returns:
            Promoted. Behind: catch up and ask again; `overtaken` says that a checkpoint won the slot in the meantime.
            Superseded: the fork was live already, and was closed since.

        Raises:
            NotFoundError: no such timeline.
            ConflictError: the timeline has ended, or is about to end.
        """
        c, approved = self.coordinator, set[int]()
        first = True
        while True:
            live, fork = c.head(), c.head(name)
            if isinstance(fork.entry, Closing) and fork.entry.successor:
                return Superseded(closing=fork.entry)
            if live.timeline == name:
                return Promoted(closing=self._closing_of(name))
            found = self.compare(live, fork, send=send)
            if discard and first:
                approved = {x.id for x in found.left}
            if not {x.id for x in found.left} <= approved:
                return PromotionBlocked(timeline=name, lacking=found.left, overtaken=not first)
            if self._wins(found.closing):
                return Promoted(closing=found.closing, replaced=found.replaced, left=found.left, won=True)
            first = False

    def compare(self, live: Head, fork: Head, *, send: bool = False) -> Promoted:
        """The effect of a promote: which checkpoints of the live timeline it replaces, and which it leaves behind."""
        timelines, entry = self.coordinator.timelines, fork.entry
        if isinstance(entry, Closing) and not entry.successor:
            raise ended_timeline(self.coordinator.name, fork.timeline)
        if not isinstance(entry, Checkpoint | Genesis):
            raise NotFoundError(f"timeline {fork.timeline} has no head", next="name a fork.")
        reach = Reach.of(entry)
        beside = list(since_split(timelines.chain(fork.timeline), timelines.chain(live.timeline)))
        since = list(since_split(timelines.chain(live.timeline), timelines.chain(fork.timeline)))
        return Promoted(
            closing=self._closing(live, fork, () if send else beside),
            replaced=tuple(x for x in since if reach.contains(Reach.of(x))),
            left=tuple(x for x in since if not reach.contains(Reach.of(x))),
        )

    def _wins(self, closing: Closing) -> bool:
        """Claims the slot of a closing, then writes the closing, unless a checkpoint is faster.

        Raises:
            ConflictError: the successor has ended.
        """
        c = self.coordinator
        c.listener("fate", "before")
        if not c.promotion_claims.claim(closing.successor, closing.timeline, closing.sequence):
            raise ended_timeline(c.name, closing.successor)
        c.listener("fate", "after")
        c.listener("closing", "before")
        won = c.objects.put(keys.slot_key(closing.timeline, closing.sequence), closing) is PutOutcome.WON
        c.listener("closing", "after")
        return won

    def _closing(self, live: Head, fork: Head, mute: Iterable[Checkpoint]) -> Closing:
        c = self.coordinator
        return Closing(
            timeline=live.timeline,
            sequence=live.sequence + 1,
            successor=fork.timeline,
            why="promote",
            write_id=c.write_ids(),
            at_ms=c.clock.now_ms(),
            delivered=SentRecords(c.timelines).of(live.timeline),
            withheld=_emitted(mute),
        )

    def _closing_of(self, successor: str) -> Closing:
        """Returns the closing that made a timeline live.

        Raises:
            ConflictError: the timeline is the first one, so no closing did.
        """
        for closing in self.coordinator.timelines.closings():
            if closing.successor == successor:
                return closing
        raise ConflictError(f"timeline {successor} is live from the beginning", next="name a fork.")


def _emitted(found: Iterable[Checkpoint]) -> dict[str, OffsetCoverage]:
    """Per Kafka sink, the source offsets of the checkpoints that emitted anything to its outbox."""
    emitted: dict[str, OffsetCoverage] = {}
    for checkpoint in found:
        for uid, table in checkpoint.plan.sinks.items():
            output = checkpoint.outputs.get(uid)
            if table.needs_delivery and output is not None and output.emitted:
                mine = emitted_by(checkpoint.plan, uid, checkpoint.sealed.facts.clocks)
                emitted = merge_sent(emitted, {table.name: mine})
    return emitted


def ended_timeline(pipeline: str, name: str) -> ConflictError:
    """The error of an operation that would continue a timeline that has ended."""
    return ConflictError(
        f"timeline {name} was closed and cannot continue",
        safe="its checkpoints that are kept can be read, restored and forked; the live timeline is intact.",
        next=f"tidemark fork {pipeline} ANOTHER-NAME --checkpoint ID    (begins at one of its checkpoints).",
    )
