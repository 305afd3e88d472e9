"""Erasures: which keys are blocked, and what was made from a manifest that was revised since (ADR 0015)."""

from dataclasses import dataclass

from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.record_log import Series
from tidemark.coordinator.records.timelines import Timelines
from tidemark.coordinator.records.tombstones import released
from tidemark.errors import ConflictError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.store_objects import Closing, CompactionRecord, Genesis, JobRecord
from tidemark.model.retention.erasure import BlockedKey, ErasureEnd, ErasureRecord
from tidemark.model.schema.key_groups import typed_key


@dataclass(frozen=True, slots=True)
class Erasures:
    """Reads them; see `coordinator.retention.erasing` for the verb that writes them."""

    objects: Objects

    @property
    def series(self) -> Series[ErasureRecord]:
        """All of them, numbered."""
        return Series(self.objects, ErasureRecord, "erasures/", keys.erasure_key)

    def newest(self) -> int:
        """Number of the newest one; 0 where there is none."""
        return self.series.newest()[0]

    def get(self, number: int) -> ErasureRecord | None:
        """One of them."""
        return self.objects.read(ErasureRecord, keys.erasure_key(number))

    def has_ended(self, number: int) -> bool:
        """Whether it has found its key nowhere any more."""
        return self.objects.read(ErasureEnd, keys.erasure_end_key(number)) is not None

    def open(self) -> list[ErasureRecord]:
        """Those that have not ended, oldest first."""
        return [record for record in self.until(self.newest()) if not self.has_ended(record.number)]

    def until(self, number: int) -> list[ErasureRecord]:
        """Those up to a number, oldest first; one that somebody has removed by hand is left out."""
        found = (self.get(n) for n in range(1, number + 1))
        return [record for record in found if record is not None]

    def blocked(self, plan: CheckpointPlan) -> tuple[BlockedKey, ...]:
        """The keys that the records of a plan are held against."""
        return tuple(
            BlockedKey(uid=uid, key=typed_key(plan.schemas[uid], record.key), ends=record.ends_of(plan.topic_ids))
            for record in self.until(plan.erasures)
            for uid in record.uids
            if uid in plan.schemas
        )


def is_outdated(objects: Objects, plan: CheckpointPlan) -> bool:
    """Whether what a plan was made from was revised since: it must be made anew."""
    before = Timelines(objects).reached(plan.slot.timeline, plan.slot.sequence - 1)
    revision = 0 if before is None or isinstance(before, Closing) else before.revision
    return revision != plan.parent_revision


def revision_of(objects: Objects, checkpoint: int) -> int:
    """How often the manifest of a checkpoint was revised; 0 where there is none."""
    found = Timelines(objects).find(checkpoint)
    return 0 if found is None else found.revision


def is_stillborn(objects: Objects, genesis: Genesis) -> bool:
    """Whether a timeline began with a manifest that was revised before, unseen by who began it."""
    # An erasure revises geneses ahead of their parents.
    return revision_of(objects, genesis.parent) > genesis.parent_revision


def refuse_stillborn(objects: Objects, genesis: Genesis) -> None:
    """Returns where a timeline began with what its parent is now; asked once its genesis is written, and by plans.

    Raises:
        ConflictError: a key was erased from the parent while the timeline began.
    """
    if is_stillborn(objects, genesis):
        raise ConflictError(
            f"a key was erased from chk-{genesis.parent} while timeline {genesis.timeline or '(new)'} began there",
            safe="the timeline takes no checkpoint; every restore point is intact, without the key.",
            next="begin again, under another name.",
        )


def is_void(objects: Objects, made: CompactionRecord | JobRecord) -> bool:
    """Whether a compaction read a manifest that was revised since: nobody may adopt what it makes.

    A released manifest is not revised, so nobody knows what it would be: where keys were erased at all, what was made
    of it is not adopted either.
    """
    found = Timelines(objects).find(made.checkpoint)
    if found is None or found.revision != made.revision:
        return True
    return Erasures(objects).newest() > 0 and released(objects, found.plan.name) is not None
