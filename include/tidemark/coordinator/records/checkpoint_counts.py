"""Counts checkpoints by their outcome, from key names: thousands of them cost two listings and no reads."""

from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.timeline_tree import branches
from tidemark.coordinator.records.timelines import Timelines
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.metrics import CheckpointCounts
from tidemark.model.checkpoint.plan import Slot
from tidemark.model.checkpoint.store_objects import OutcomeKind

_PLAN, _ABORT = ".json", ".abort.json"


def count_checkpoints(objects: Objects) -> CheckpointCounts:
    """The counts of a pipeline. A plan whose slot was taken by the end of its timeline is not counted.

    Raises:
        StoreError: the store could not be listed or read.
    """
    plans, aborted, tries = _named(objects)
    taken = {keys.place_of(key) for key in objects.list("timelines/")}
    waiting = {slot for slot in plans - aborted if (slot.timeline, slot.sequence) not in taken}
    running = sum(not _ended(objects, slot, tries[slot]) for slot in waiting if slot in tries)
    return CheckpointCounts(
        completed=sum(b.checkpoints for b in branches(Timelines(objects))),
        failed=len(aborted),
        in_progress=len(waiting),
        restarts=sum(max(0, last - 1) for last in tries.values()) + running,
    )


def _named(objects: Objects) -> tuple[set[Slot], set[Slot], dict[Slot, int]]:
    """All plans, the aborted plans, and per plan the last attempt that has an outcome."""
    plans, aborted, tries = set[Slot](), set[Slot](), dict[Slot, int]()
    for key in objects.list("plans/"):
        _, timeline, place, *below = key.split("/")
        if below:
            slot = Slot.parse(f"{timeline}/{place}")
            tries[slot] = max(tries.get(slot, 0), int(below[0].partition(".")[0]))
        elif place.endswith(_ABORT):
            aborted.add(Slot.parse(f"{timeline}/{place.removesuffix(_ABORT)}"))
        else:
            plans.add(Slot.parse(f"{timeline}/{place.removesuffix(_PLAN)}"))
    return plans, aborted, tries


def _ended(objects: Objects, slot: Slot, last: int) -> bool:
    """Whether the last attempt of a plan in progress has ended.

    If attempt n was revoked, attempt n + 1 continues and has no outcome yet. That is a restart, unless n is 0: attempt
    0 exists only to be revoked by the first attempt.
    """
    outcome = objects.outcome(slot, last)
    return last == 0 or outcome is None or outcome.kind is OutcomeKind.SEALED
