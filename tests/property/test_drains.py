"""Drains in the twin: what one closes and emits, by a brute force, and that going back from it leaves no trace."""

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.scale import cases
from tests.support.window_cases import (
    Model,
    Rules,
    Sent,
    agree,
    finals,
    key_of,
    pipeline,
    random_batches,
    random_rules,
    record,
)
from tidemark import FlatMap, KafkaSink
from tidemark.errors import ConflictError, UsageError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.sinks import ROW_ID
from tidemark.testing import BARRIER, Barrier, Harness, Replayed, Restore, replay
from tidemark.testing.script import Crash

DRAIN = Barrier(drains=True)
END = datetime(9999, 12, 31, tzinfo=UTC)
FOREVER = 10**9
"""Minutes, after all windows."""
STEPS = ("plan", "read", "emitted.sold", "commit.outputs.sold", "fold.ever", "commit.outputs.days", "seal", "publish")
"""Where a drain that closes windows may die, in order."""
seeds = st.integers(0, 2**32 - 1)


def drained(model: Model) -> Model:
    """Closes all that is open, at the end of time."""
    model.frontier = FOREVER
    model.checkpoint([])
    return model


def state(done: Replayed, uid: str, checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """The rows without the ids of the checkpoints that changed them."""
    return [{n: v for n, v in row.items() if n != "_changed"} for row in done.rows(uid, checkpoint).values()]


def all_rows(done: Replayed, uid: str, checkpoints: Any) -> list[Any]:
    return [row for checkpoint in checkpoints for row in done.emitted(uid, checkpoint)]


@settings(max_examples=cases(30), deadline=None)
@given(seeds)
def test_a_drain_leaves_no_open_window_and_the_sinks_have_each_row_once(seed: int) -> None:
    chance = random.Random(seed)
    rules = random_rules(chance)
    batches = random_batches(chance, rules)
    harness, model = Harness(pipeline(rules), partitions=2), Model(rules)
    for batch in batches:
        harness.send(*map(record, batch))
        harness.checkpoint()
        model.checkpoint(batch)
    steps = STEPS if model.open else ()
    last = harness.checkpoint(DRAIN, [Crash(step) for step in steps if chance.random() < 0.5])
    drained(model)
    done = harness.results
    assert not model.open and not model.days, "the model has closed all"
    assert not done.rows("sold", last) and not done.rows("days", last)
    assert [last.now.frontiers[uid] for uid in ("sold", "days")] == [END.timestamp() * 1000] * 2
    agree(model, finals(done.emitted("sold")), model.closed)
    assert {key_of(r): (r["hours"], r["cents"]) for r in done.emitted("days")} == Model.sums(model.closed_days)
    assert done.counts("days", last).late == 0, "rows of windows are not late for windows over them"
    assert (last.sealed.facts.records, last.plan.ranges.span) == (0, 0)
    ids = [repr([r[name] for name, _ in ROW_ID]) for r in done.emitted("sold")]
    assert len({*ids}) == len(ids)


@settings(max_examples=cases(30), deadline=None)
@given(seeds)
def test_going_back_equals_never_having_drained(seed: int) -> None:
    chance = random.Random(seed)
    rules = random_rules(chance)
    batches = random_batches(chance, rules)
    cut = chance.randrange(1, len(batches) + 1)
    script: list[list[Any]] = [[[*map(record, batch)], BARRIER] for batch in batches]
    back: list[Any] = [DRAIN, Restore(to=f"chk-{cut}", restore_sinks=True)]
    one = replay(pipeline(rules), [part for step in script for part in step], partitions=2)
    steps = [*script[:cut], back, *script[cut:]]
    other = replay(pipeline(rules), [part for step in steps for part in step], partitions=2)
    kept = [*other.checkpoints[:cut], *other.checkpoints[cut + 1 :]]
    for uid in ("sold", "days"):
        assert all_rows(one, uid, one.checkpoints) == all_rows(other, uid, kept)
    for left, right in zip(one.checkpoints, kept, strict=True):
        for uid in ("sold", "days", "ever"):
            assert state(one, uid, left) == state(other, uid, right)
        assert left.now.frontiers == right.now.frontiers


def test_nothing_is_planned_behind_a_drain_and_nothing_begins_at_it() -> None:
    rules = random_rules(random.Random(1))
    harness = Harness(pipeline(rules), partitions=2)
    harness.send(*map(record, random_batches(random.Random(1), rules)[0]))
    harness.checkpoint()
    harness.checkpoint(DRAIN)
    with pytest.raises(UsageError, match=r"drained: chk-2 has closed all windows") as caught:
        harness.checkpoint()
    assert "--force" in caught.value.next and "chk-1" in caught.value.next
    with pytest.raises(UsageError, match="drained"):
        harness.checkpoint(DRAIN)
    with pytest.raises(ConflictError, match="chk-2 has drained") as refused:
        harness.restore(Restore(to="chk-2", restore_sinks=True))
    assert "chk-1" in refused.value.next
    harness.restore(Restore(to="chk-1", restore_sinks=True))
    assert harness.checkpoint().plan.parent == 1


def test_records_that_wait_stay_unread() -> None:
    rules = random_rules(random.Random(2))
    harness = Harness(pipeline(rules), partitions=1)
    batch = [record(sent) for sent in random_batches(random.Random(3), rules)[0] or ()]
    harness.send(*batch)
    harness.checkpoint()
    harness.send(*batch)
    last = harness.checkpoint(DRAIN)
    assert sum(last.plan.pending.values()) == len(batch)
    harness.restore(Restore(to="chk-1", restore_sinks=True))
    assert harness.checkpoint().sealed.facts.records == len(batch)


@dataclass(frozen=True)
class Seen:
    """What a topic is sent of each closed window."""

    end: datetime
    n: int


def test_a_topic_is_sent_windows_again_that_close_after_going_back() -> None:
    topic = KafkaSink("seen", topic="seen", guarantee="at_least_once")
    seen = FlatMap("seen", input="sold", function=lambda row: [Seen(row.window_end, row.n)], emits=Seen, sink=topic)
    declared = pipeline(Rules())
    declared = replace(declared, operators=[declared.operators[0], seen])
    first, second, third = ([record(Sent(0, "a", minute, 1))] for minute in (1, 2, 15))
    back = Restore(to="chk-1", restore_sinks=True)
    done = replay(declared, [first, BARRIER, DRAIN, back, second, BARRIER, third, BARRIER])
    (_, one), (_, two) = done.sent("seen")
    assert (one["n"], two["n"]) == (1, 2), "what a drain has sent stays; the whole window comes when it closes"
