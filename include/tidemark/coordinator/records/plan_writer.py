"""Writes a plan: allocates its id, puts the texts of SQL that it names, then puts the plan itself."""

from dataclasses import dataclass

from tidemark.coordinator.records.objects import Objects
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.plan import CheckpointPlan, Slot
from tidemark.model.checkpoint.store_objects import IdRecord
from tidemark.ports import PutOutcome, StepListener, WriteIds
from tidemark.sql.stored_queries import stored_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Freezer:
    """Puts plans and the objects that they need.

    Attributes:
        objects: the store.
        write_ids: ids that distinguish this process's put from an equal one of another process.
        listener: called at steps `ids`, `queries` and `plan`.
    """

    objects: Objects
    write_ids: WriteIds
    listener: StepListener

    def take_id(self, slot: Slot, least: int) -> int:
        """Allocates a checkpoint id of at least `least` for the plan of a slot. An unused id is never used again."""
        number = max(least, keys.greatest(self.objects.list("ids/")) + 1)
        self.listener("ids", "before")
        while True:
            record = IdRecord(id=number, slot=slot, write_id=self.write_ids())
            if self.objects.put(keys.id_key(number), record) is PutOutcome.WON:
                self.listener("ids", "after")
                return number
            number += 1

    def freeze(self, draft: CheckpointPlan) -> PutOutcome:
        """Puts a plan into its slot, unless the slot has one.

        The texts that the plan names are put first, so that every reader of the plan or its manifest finds them.
        """
        self.listener("queries", "before")
        for schema in draft.schemas.values():
            for text in stored_texts(schema).values():
                self.objects.put_query(text)
        self.listener("queries", "after")
        self.listener("plan", "before")
        outcome = self.objects.put(keys.plan_key(draft.slot), draft)
        self.listener("plan", "after")
        return outcome
