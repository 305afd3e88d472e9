"""What must hold after every schedule. It reads raw objects and raw records, and folds with nothing of the product."""

import json
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from tests.simulation.actors import UID
from tests.support.simulation import PIPELINE, SimulatedCluster
from tidemark.errors import TidemarkError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.core.offsets import TopicPartition
from tidemark.testing.twin.memory import MemoryCompute

Balance = tuple[int, int, int]
"""Number of payments, their sum, and the last amount."""


def violations(world: SimulatedCluster) -> list[str]:
    """Every broken invariant, in words; empty = all hold."""
    found = list(world.complaints)
    try:
        completed = world.coordinator.timelines.all()
    except TidemarkError as error:
        return [*found, f"I4: {error.what}"]
    by_id = {c.id: c for c in completed}
    found += _plans(world, by_id)
    found += _attempts(world)
    found += _told(world, completed)
    found += _ended(world)
    ends = _run_ends(world)
    for checkpoint in completed:
        found += _within_run(checkpoint, ends)
        found += _contiguous(checkpoint, by_id)
        found += _applied(world, checkpoint, by_id)
    return found


def _bodies(world: SimulatedCluster, prefix: str, suffix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, raw in sorted(world.objects.items()):
        if key.startswith(prefix) and key.endswith(suffix):
            yield key, _parsed(raw)["body"]


@lru_cache(maxsize=4096)
def _parsed(raw: bytes) -> Any:
    """What is in an object or a record; nothing here changes it."""
    return json.loads(raw)


def _plans(world: SimulatedCluster, by_id: dict[int, Checkpoint]) -> Iterator[str]:
    """Each plan is sealed once or aborted, never both; what is published was sealed (I6)."""
    sealed: dict[str, list[int]] = defaultdict(list)
    aborted = {key.removesuffix(".abort.json") for key, _ in _bodies(world, "plans/", ".abort.json")}
    last: dict[str, int] = {}
    for key, body in _bodies(world, "plans/", ".outcome.json"):
        plan, number = key.rpartition("/")[0], body["attempt"]
        if body["sealed"] is not None:
            sealed[plan].append(number)
        elif body["abort"] is not None:
            aborted.add(plan)
        if number != last.get(plan, -1) + 1:
            yield f"I6: attempt {number} of {plan} has an outcome, the one before it has none"
        last[plan] = number
    for plan, numbers in sealed.items():
        if plan in aborted:
            yield f"I6: {plan} is both sealed and aborted"
        if numbers != [last[plan]]:
            yield f"I6: {plan} was sealed by {numbers}, its last attempt is {last[plan]}"
    for checkpoint in by_id.values():
        yield from _published(checkpoint, sealed, aborted)


def _published(checkpoint: Checkpoint, sealed: dict[str, list[int]], aborted: set[str]) -> Iterator[str]:
    slot, name = checkpoint.plan.slot, checkpoint.plan.name
    plan = f"plans/{slot.timeline}/{slot.sequence:012d}.{slot.k:04d}"
    if plan in aborted:
        yield f"I6: {name} is both published and aborted"
    if checkpoint.sealed.attempt not in sealed.get(plan, ()):
        yield f"I6: {name} was published by attempt {checkpoint.sealed.attempt}, which never sealed"


def _attempts(world: SimulatedCluster) -> Iterator[str]:
    for owned in sorted(set(world.owners)):
        if world.owners.count(owned) > 1:
            yield f"I6: attempt {owned[1]} of chk-{owned[0]} had {world.owners.count(owned)} owners"


def _told(world: SimulatedCluster, completed: list[Checkpoint]) -> Iterator[str]:
    """What a caller was told to be complete is complete, whatever was restored or promoted at the same moment (I9)."""
    slots = {c.plan.slot for c in completed}
    for slot in world.told:
        if slot not in slots:
            yield f"I9: {slot} was told to be complete, and is not"


def _ended(world: SimulatedCluster) -> Iterator[str]:
    """Nothing stands behind a closing, and the closings lead from the first timeline to one live one (I6)."""
    kinds: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for key, raw in sorted(world.objects.items()):
        if key.startswith("timelines/"):
            found = _parsed(raw)
            kinds[key.split("/")[1]].append((found["kind"], found["body"]))
    successors = {}
    for name, entries in kinds.items():
        ends = [n for n, (kind, _) in enumerate(entries) if kind == "closing"]
        if ends and ends != [len(entries) - 1]:
            yield f"I6: timeline {name} goes on behind its closing"
        if ends:
            successors[name] = entries[ends[0]][1]["successor"]
    ended = {name for name, successor in successors.items() if not successor}
    successors = {name: successor for name, successor in successors.items() if successor}
    yield from (f"I6: timeline {name} was made live, and ended" for name in ended & {"t1", *successors.values()})
    if len(set(successors.values())) < len(successors):
        yield f"I6: two timelines were closed in favour of one: {successors}"


def _run_ends(world: SimulatedCluster) -> dict[str, dict[str, int]]:
    """How far each run may go, by its id: the topics of a simulation are not recreated, so the last word counts."""
    found: dict[str, dict[str, int]] = {}
    for key, body in _bodies(world, "runs/", ".json"):
        found[key.split("/")[1]] = body["ends"]
    return found


def _within_run(checkpoint: Checkpoint, ends: dict[str, dict[str, int]]) -> Iterator[str]:
    """A plan of a run ends where the run does, at most, and says that it covers exactly if it ends there (adr/0032)."""
    plan = checkpoint.plan
    if not plan.run:
        return
    reached = True
    for tp, within in plan.ranges.items():
        end = ends[plan.run].get(str(tp), within.start)
        if within.end > max(end, within.start):
            yield f"R1: {plan.name} reads {tp} up to {within.end}, its run ends at {end}"
        reached = reached and within.end >= end
    if plan.covers != reached:
        yield f"R2: {plan.name} says covers={plan.covers}, and its run has {'' if reached else 'not '}ended"


def _contiguous(checkpoint: Checkpoint, by_id: dict[int, Checkpoint]) -> Iterator[str]:
    plan = checkpoint.plan
    parent = by_id.get(plan.parent) if plan.parent is not None else None
    if plan.parent is not None and parent is None:
        yield f"I4: {plan.name} names chk-{plan.parent}, which is not there"
    for tp, within in plan.ranges.items():
        start = parent.plan.ranges[tp].end if parent else 0
        if within.start != start:
            yield f"I2: {plan.name} starts {tp} at {within.start}, its parent ended at {start}"
    if parent is not None and parent.id >= plan.id:
        yield f"E2: {plan.name} follows chk-{parent.id}"


def _applied(world: SimulatedCluster, checkpoint: Checkpoint, by_id: dict[int, Checkpoint]) -> Iterator[str]:
    """I1 and I3 by brute force over the records below the checkpoint's ends; I4, because every file is read."""
    ends = {tp: within.end for tp, within in checkpoint.plan.ranges.items()}
    wanted, dead = _fold(world, ends)
    compute = MemoryCompute(pipeline=PIPELINE, log=world.log, tables=world.tables)
    try:
        rows = compute.resolve(checkpoint, UID)
        ack = checkpoint.ack(UID)
        letters = world.tables.rows(ack.dead_letters) if ack else []
    except TidemarkError as error:
        yield f"I4: {checkpoint.plan.name}: {error.what}"
        return
    state = {key[0]: (row["payments"], row["total"], row["last"]) for key, row in rows.items()}
    if state != wanted:
        yield f"I1: {checkpoint.plan.name} holds {state}, the records make {wanted}"
    if sorted((x["partition"], x["offset"]) for x in letters) != dead:
        yield f"I3: {checkpoint.plan.name} holds {len(letters)} dead letters, the records make {len(dead)}"


def _fold(world: SimulatedCluster, ends: dict[TopicPartition, int]) -> tuple[dict[str, Balance], list[tuple[int, int]]]:
    state: dict[str, Balance] = {}
    order: dict[str, tuple[int, int, int]] = {}
    dead = []
    for tp, end in ends.items():
        for record in world.log._partition(tp).records:
            if record.offset >= end:
                continue
            assert record.value is not None, "no actor sends a tombstone"
            body = _parsed(record.value) if record.value != b"{" else {}
            if "account" not in body:
                dead.append((tp.partition, record.offset))
                continue
            key, amount = body["account"], body["amount"]
            count, total, last = state.get(key, (0, 0, 0))
            place = (record.timestamp_ms, tp.partition, record.offset)
            if place >= order.get(key, (0, 0, 0)):
                order[key], last = place, amount
            state[key] = (count + 1, total + amount, last)
    return state, sorted(dead)
