"""Records of erasures: which keys are blocked, and which plans and results are outdated by a revision (ADR 0015)."""

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
    """Reads the records of erasures; `coordinator.retention.key_erasure` writes them."""

    objects: Objects

    @property
    def series(self) -> Series[ErasureRecord]:
        """All erasures, numbered."""
        return Series(self.objects, ErasureRecord, "erasures/", keys.erasure_key)

    def newest(self) -> int:
        """Number of the newest erasure; 0 if there is none."""
        return self.series.newest()[0]

    def get(self, number: int) -> ErasureRecord | None:
        """One erasure by its number."""
        return self.objects.read(ErasureRecord, keys.erasure_key(number))

    def has_ended(self, number: int) -> bool:
        """Whether the erasure has ended, because its key was found nowhere any more."""
        return self.objects.read(ErasureEnd, keys.erasure_end_key(number)) is not None

    def open(self) -> list[ErasureRecord]:
        """Erasures that have not ended, oldest first."""
        return [record for record in self.until(self.newest()) if not self.has_ended(record.number)]

    def until(self, number: int) -> list[ErasureRecord]:
        """Erasures up to a number, oldest first, without those that were removed by hand."""
        found = (self.get(n) for n in range(1, number + 1))
        return [record for record in found if record is not None]

    def blocked(self, plan: CheckpointPlan) -> tuple[BlockedKey, ...]:
        """The blocked keys that the records of a plan are compared with."""
        return tuple(
            BlockedKey(uid=uid, key=typed_key(plan.schemas[uid], record.key), ends=record.ends_of(plan.topic_ids))
            for record in self.until(plan.erasures)
            for uid in record.uids
            if uid in plan.schemas
        )


def is_outdated(objects: Objects, plan: CheckpointPlan) -> bool:
    """Whether a plan is based on a state that was revised since, so that it must be made again."""
    before = Timelines(objects).reached(plan.slot.timeline, plan.slot.sequence - 1)
    revision = 0 if before is None or isinstance(before, Closing) else before.revision
    return revision != plan.parent_revision


def revision_of(objects: Objects, checkpoint: int) -> int:
    """How often the manifest of a checkpoint was revised; 0 if it has no manifest."""
    found = Timelines(objects).find(checkpoint)
    return 0 if found is None else found.revision


def is_stillborn(objects: Objects, genesis: Genesis) -> bool:
    """Whether a timeline began with a manifest that had been revised, unnoticed by the process that began it."""
    # An erasure revises a genesis before its parent.
    return revision_of(objects, genesis.parent) > genesis.parent_revision


def refuse_stillborn(objects: Objects, genesis: Genesis) -> None:
    """Refuses a timeline that began with an outdated manifest. Called after its genesis is written, and by plans.

    Raises:
        ConflictError: a key was erased from the parent while the timeline began.
    """
    if is_stillborn(objects, genesis):
        raise ConflictError(
            f"a key was erased from chk-{genesis.parent} while timeline {genesis.timeline or '(new)'} began there",
            safe="the timeline takes no checkpoint; every restore point is intact, without the key.",
            next="run the command again, with another name for the timeline.",
        )


def is_void(objects: Objects, made: CompactionRecord | JobRecord) -> bool:
    """Whether a compaction read a manifest that was revised since, so that its result must not be adopted.

    A released manifest is not revised, so it is unknown whether a key was erased from it. If any key was erased at all,
    a result made from it is not adopted either.
    """
    found = Timelines(objects).find(made.checkpoint)
    if found is None or found.revision != made.revision:
        return True
    return Erasures(objects).newest() > 0 and released(objects, found.plan.name) is not None
