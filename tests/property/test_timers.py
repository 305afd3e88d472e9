"""Timers of a process in the twin, against a brute force: any order, lateness and barriers, crashes and compactions."""

import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.partial_compactions import partial_compactions
from tests.support.scale import cases
from tests.support.timer_cases import (
    AGAIN,
    START,
    Found,
    Model,
    Rules,
    Sent,
    agree,
    pipeline,
    random_batches,
    random_rules,
    record,
)
from tidemark.errors import ProcessFunctionError
from tidemark.model.checkpoint import emitted
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.schema.event_windows import to_ms
from tidemark.processing.live import StateType
from tidemark.processing.processor import Processing
from tidemark.processing.timer_merge import FiringRules, TimerQueue, Upcoming
from tidemark.testing import BARRIER, CRASH, Barrier, Harness, Replayed, Restore, replay
from tidemark.testing.twin import merge
from tidemark.testing.twin import process as twin
from tidemark.testing.twin.entries import state_rows, values_of
from tidemark.testing.twin.merge import resolve_rows

seeds = st.integers(0, 2**32 - 1)


def found_at(done: Replayed, checkpoint: Checkpoint) -> Found:
    return Found(
        state=[*done.rows("desks", checkpoint).values()],
        fired=done.emitted("desks", checkpoint),
        said=done.emitted("desks.said", checkpoint),
        alarms=done.emitted("alarms", checkpoint),
    )


def judge(seed: int) -> None:
    """Runs one random case, and compares all its checkpoints with the model."""
    chance = random.Random(seed)
    rules = random_rules(chance)
    batches, script = random_batches(chance), list[Any]()
    for batch in batches:
        script += [[record(sent) for sent in batch], *([CRASH] if chance.random() < 0.3 else []), BARRIER]
    done, model = replay(pipeline(rules), script, partitions=2), Model(rules)
    for batch, checkpoint in zip(batches, done.checkpoints, strict=True):
        model.checkpoint(batch)
        agree(model, found_at(done, checkpoint))
        ack = done.counts("desks", checkpoint)
        assert ack.fired == model.firings
        assert ack.read == ack.applied + ack.dead_lettered
        assert done.counts("alarms", checkpoint).late == 0


def judge_restores(seed: int) -> None:
    """Goes back to an earlier checkpoint, keeps the sinks, and compares the end with a history that did not."""
    chance = random.Random(seed)
    rules, batches = random_rules(chance), random_batches(chance)
    back = chance.randrange(len(batches))
    first: list[Any] = [part for batch in batches[:-1] for part in ([*map(record, batch)], BARRIER)]
    restored: list[Any] = [Restore(to=f"chk-{back}"), *[BARRIER] * (len(batches) - 1 - back)] if back else []
    done = replay(pipeline(rules), [*first, *restored, [*map(record, batches[-1])], BARRIER], partitions=2)
    model = Model(rules)
    for batch in batches:
        model.checkpoint(batch)
    agree(model, found_at(done, done.checkpoints[-1]))


def judge_compactions(seed: int) -> None:
    """Compacts any suffix of the runs of each checkpoint, or all of them, and compares what is left."""
    chance = random.Random(seed)
    batches = random_batches(chance)
    script = [part for batch in batches for part in ([*map(record, batch)], BARRIER)]
    done = replay(pipeline(random_rules(chance)), script, partitions=2)
    schema = done.checkpoints[0].plan.schemas["desks"]
    for found in partial_compactions(done, "desks", chance):
        now = found.newest.now
        expected = resolve_rows(schema, found.rows, now)
        assert resolve_rows(schema, found.left, now) == expected, "no timer comes back, and none is lost"
        beyond(found.newest, values_of(schema, found.left), found.left)


def beyond(checkpoint: Checkpoint, newest: dict[Any, Any], rows: list[Any]) -> None:
    """A checkpoint leaves no timer up to its frontier, and a search between two frontiers finds all between them."""
    frontier = checkpoint.now.frontiers.get("desks")
    timers = {
        (key, row["timers__key"], to_ms(row["timers"]))
        for key, found in newest.items()
        for row in found
        if row["_field"] == "timers"
    }
    assert frontier is None or all(at > frontier for _, _, at in timers)
    for until in {at for _, _, at in timers}:
        stored = {
            row["desk"]
            for row in rows
            if row["_field"] == "timers"
            and row["_kind"] != "tombstone"
            and (frontier is None or to_ms(row["timers"]) > frontier)
            and to_ms(row["timers"]) <= until
        }
        assert {key[0] for key, _, at in timers if at <= until} <= stored


@settings(max_examples=cases(60), deadline=None)
@given(seeds)
def test_every_timer_fires_once_among_the_records_of_its_key(seed: int) -> None:
    judge(seed)


@settings(max_examples=cases(30), deadline=None)
@given(seeds)
def test_no_compaction_brings_a_timer_back(seed: int) -> None:
    judge_compactions(seed)


@settings(max_examples=cases(25), deadline=None)
@given(seeds)
def test_a_restore_that_keeps_sinks_fires_no_timer_twice(seed: int) -> None:
    judge_restores(seed)


# Planted faults: each is found by one of the properties above within the given number of cases.
NEXT_DUE, FIRE = TimerQueue.next_due, TimerQueue.fire
COLLECT, ROWS, COMPACT = Processing.collect, Processing._rows, merge.compact_rows


def behind_all(queue: TimerQueue, event_time_us: int | None = None) -> Any:
    return None if event_time_us is not None else NEXT_DUE(queue)


def behind_its_own_time(queue: TimerQueue, event_time_us: int | None = None) -> Any:
    return NEXT_DUE(queue, None if event_time_us is None else event_time_us - 1)


def whatever_waits(queue: TimerQueue, event_time_us: int | None = None) -> Any:
    waiting = queue._waiting
    if not waiting or not queue._rules.is_due(waiting[0][0]):
        return None
    return waiting[0] if event_time_us is None or waiting[0][0] * 1000 <= event_time_us else None


def fire_whatever_waits(queue: TimerQueue, due: tuple[int, str]) -> Any:
    queue._waiting.remove(due)
    return FIRE(queue, due)


def by_the_frontier_before(rules: FiringRules, at_ms: int) -> bool:
    return rules.before_ms is not None and at_ms <= rules.before_ms


def whole_batch(upcoming: Upcoming, _: TimerQueue) -> Iterator[Any]:
    while (placed := upcoming.take()) is not None:
        yield placed


def one_record(upcoming: Upcoming, _: TimerQueue) -> Iterator[Any]:
    if (placed := upcoming.take()) is not None:
        yield placed


def numbered_anew(of: Processing, found: Any, clock: Any, emitted: Any, numbers: Any = None) -> None:
    COLLECT(of, found, clock, emitted)


def as_if_deepest(schema: Any, rows: Any, now: Any, *, deepest: bool) -> Any:
    return COMPACT(schema, rows, now, deepest=True)


def without_tombstones_of_entries(of: Processing, *given: Any) -> list[Any]:
    return [row for row in ROWS(of, *given) if row[-3] != "tombstone" or row[1] is None]


FAULTS: dict[str, tuple[Callable[[int], None], list[tuple[Any, str, Any]]]] = {
    "timers fire behind all records": (judge, [(TimerQueue, "next_due", behind_all)]),
    "a timer fires behind records of its own time": (judge, [(TimerQueue, "next_due", behind_its_own_time)]),
    "replaced and cancelled timers fire": (
        judge,
        [(TimerQueue, "next_due", whatever_waits), (TimerQueue, "fire", fire_whatever_waits)],
    ),
    "the frontier before the records decides": (judge, [(FiringRules, "is_due", by_the_frontier_before)]),
    "a time that has passed is kept": (judge, [(FiringRules, "settable", lambda rules, at_ms: at_ms)]),
    "keys without records do not fire": (judge, [(twin, "due_keys", lambda *given: [])]),
    "clear() of state takes timers back": (judge, [(StateType, "_hidden", None)]),
    "a call sees records behind a firing": (judge, [(Upcoming, "until_due", whole_batch)]),
    "each record is a call": (judge, [(Upcoming, "until_due", one_record)]),
    "rows of a timer are numbered anew": (judge, [(Processing, "collect", numbered_anew)]),
    "any compaction drops fired timers": (judge_compactions, [(merge, "compact_rows", as_if_deepest)]),
    "sinks do not remember timers": (
        judge_restores,
        [(emitted, "timers_of", lambda uid: TopicPartition(f"none/{uid}", 0))],
    ),
    "a fired timer leaves no trace": (judge_compactions, [(Processing, "_rows", without_tombstones_of_entries)]),
}
WITHIN = 400
"""Cases in which each fault is found; most take a handful."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check, changes = FAULTS[fault]
    for owner, name, other in changes:
        monkeypatch.setattr(owner, name, other)
    for seed in range(WITHIN):
        try:
            check(seed)
        except (AssertionError, ProcessFunctionError):
            return
    pytest.fail(f"not found: {fault}")


def test_a_drain_fires_what_is_stored_and_keeps_what_that_sets() -> None:
    orders = [Sent(0, "a", 1, "set", name, minutes) for name, minutes in ((AGAIN, 60), ("x", 10**6))]
    harness = Harness(pipeline(Rules()))
    harness.send(*map(record, orders))
    first = harness.checkpoint()
    last, done = harness.checkpoint(Barrier(drains=True)), harness.results
    rows: list[Any] = done.emitted("desks", last)
    assert [(row["name"], (row["at"] - START) // timedelta(minutes=1)) for row in rows] == [
        (AGAIN, 61),
        ("x", 10**6 + 1),
    ]
    schema = last.plan.schemas["desks"]
    (stored,) = values_of(schema, state_rows(done._tables, schema, last.handles["desks"])).values()
    kept = {row["timers__key"]: row["timers"] for row in stored if row["_field"] == "timers"}
    assert kept == {AGAIN: START + timedelta(minutes=68)}
    assert not done.emitted("desks", first) and not done.rows("alarms", last)
    assert done.counts("desks", last).fired == 2 and len(done.emitted("alarms", last)) == 2
