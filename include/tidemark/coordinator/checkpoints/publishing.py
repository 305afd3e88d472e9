"""Publication: the put-if-absent of a manifest is the commit point of a checkpoint (E5)."""

from dataclasses import dataclass

from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.states import Completed, Void
from tidemark.coordinator.records.timelines import Timelines
from tidemark.errors import ConflictError, CorruptObjectError, FencedError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.store_objects import Closing
from tidemark.ports import PutOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """Publishes what is sealed; any process may, and all write the same bytes."""

    objects: Objects

    def publish(self, plan: CheckpointPlan, sealed: Sealed) -> Completed | Void:
        """Puts the manifest into the plan's slot.

        Raises:
            FencedError: what is offered was never sealed (I6).
            ConflictError: another plan's manifest is in the slot.
            StoreError: the store could not be written.
        """
        self._refuse_unsealed(plan, sealed)
        checkpoint = Checkpoint(plan=plan, sealed=sealed, covered_until_ms=self._covered_until(plan))
        slot = plan.slot
        won = self.objects.put(keys.slot_key(slot.timeline, slot.sequence), checkpoint) is PutOutcome.WON
        if won:
            return Completed(checkpoint=checkpoint, won=True)
        entry = self.objects.published(slot.timeline, slot.sequence)
        if isinstance(entry, Closing):
            return Void(plan=plan, closing=entry)
        if entry == checkpoint:
            now = self.objects.slot(slot.timeline, slot.sequence)
            return Completed(checkpoint=now if isinstance(now, Checkpoint) else checkpoint)
        raise ConflictError(
            f"{plan.name} cannot be published: its slot {slot} belongs to another checkpoint",
            safe="the other checkpoint and every older restore point are intact.",
            next="run the pipeline again: it plans anew.",
        )

    def _refuse_unsealed(self, plan: CheckpointPlan, sealed: Sealed) -> None:
        outcome = self.objects.outcome(plan.slot, sealed.attempt)
        if outcome is None or outcome.sealed != sealed:
            raise FencedError(
                f"attempt {sealed.attempt} of {plan.name} is not sealed and may never publish",
                safe="nothing was published.",
                next="run the pipeline again: it takes the next attempt.",
            )

    def _covered_until(self, plan: CheckpointPlan) -> int | None:
        before = self._covered_before(plan)
        if plan.interval is None or not plan.covers:
            return before
        return max(plan.interval.end_ms, before if before is not None else plan.interval.end_ms)

    def _covered_before(self, plan: CheckpointPlan) -> int | None:
        if plan.parent is None:
            return None
        slot = plan.slot
        entry = Timelines(self.objects).reached(slot.timeline, slot.sequence - 1)
        if entry is None or isinstance(entry, Closing):
            raise CorruptObjectError(
                f"object missing: {keys.slot_key(slot.timeline, slot.sequence - 1)}, the parent of {plan.name}",
                safe="nothing was published.",
                next="put the object back from a backup of the warehouse, or restore an older restore point.",
            )
        return entry.covered_until_ms
