"""References to a savepoint, which keep it from being disposed while something needs it."""

from collections.abc import Iterator

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.hold_records import Holds
from tidemark.coordinator.records.states import OpenPlan, SealedPlan
from tidemark.coordinator.records.timelines import Head, Stops
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.retention.savepoint import SavepointRecord


def needed_by(coordinator: CheckpointCoordinator, savepoint: SavepointRecord) -> tuple[str, ...]:
    """Lists what needs a savepoint, in words.

    A timeline that began at its checkpoint needs it until it has a checkpoint of its own (Flink's rule for NO_CLAIM). A
    plan in progress reads the checkpoint's state. A pipeline that was stopped with it continues from it. A legal hold
    lasts until it is released. Another savepoint of the same checkpoint is a separate pin and needs nothing.
    """
    hold = Holds(coordinator.objects).current(savepoint.name)
    held = () if hold is None else (f"a legal hold of {hold.owner}: {hold.why}",)
    found = tuple(_timelines_and_plans(coordinator, savepoint.checkpoint)) + tuple(_stop(coordinator, savepoint.name))
    return held + found


def _timelines_and_plans(coordinator: CheckpointCoordinator, checkpoint: int) -> Iterator[str]:
    for name in {keys.FIRST_TIMELINE: None} | dict.fromkeys(coordinator.timelines.names()):
        head: Head = coordinator.head(name)
        if isinstance(head.entry, Genesis) and head.entry.parent == checkpoint:
            yield f"timeline {name}, which began at it and has no checkpoint of its own yet"
        found = coordinator.open_plan(name)
        if isinstance(found, OpenPlan | SealedPlan) and found.plan.parent == checkpoint:
            yield f"the checkpoint in progress {found.plan.name}"


def _stop(coordinator: CheckpointCoordinator, name: str) -> Iterator[str]:
    stop = Stops(coordinator.objects).current()
    if stop is not None and stop.savepoint == name:
        yield "the pipeline, which is stopped with it"
