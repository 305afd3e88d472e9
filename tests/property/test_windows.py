"""Folds with windows in the twin, against a brute force: any order, lateness and barriers, crashes and compactions."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.partial_compactions import partial_compactions
from tests.support.scale import cases
from tests.support.window_cases import (
    START,
    Model,
    Rules,
    Sent,
    agree,
    agree_on_late,
    agree_on_updates,
    finals,
    key_of,
    pipeline,
    random_batches,
    random_rules,
    record,
)
from tidemark import Pipeline
from tidemark.errors import DeadLettersExceededError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.schema.event_windows import SessionWindows, SlidingWindows, TumblingWindows, from_ms, to_ms
from tidemark.testing import BARRIER, CRASH, Replayed
from tidemark.testing import replay as replay_script
from tidemark.testing.script import Script
from tidemark.testing.twin.entries import state_rows
from tidemark.testing.twin.merge import resolve_rows

seeds = st.integers(0, 2**32 - 1)


def replay(declared: Pipeline, script: Script) -> Replayed:
    return replay_script(declared, script, partitions=2)


def windows(done: Replayed, uid: str, checkpoint: Checkpoint) -> list[dict[str, Any]]:
    return [*done.rows(uid, checkpoint).values()]


@settings(max_examples=cases(60), deadline=None)
@given(seeds)
def test_every_window_closes_once_with_what_was_in_time(seed: int) -> None:
    chance = random.Random(seed)
    rules = random_rules(chance)
    batches, script = random_batches(chance, rules), list[Any]()
    for batch in batches:
        script += [[record(sent) for sent in batch], *([CRASH] if chance.random() < 0.3 else []), BARRIER]
    done, model = replay(pipeline(rules), script), Model(rules)
    for batch, checkpoint in zip(batches, done.checkpoints, strict=True):
        model.checkpoint(batch)
        agree(model, windows(done, "sold", checkpoint), model.open)
        agree(model, finals(done.emitted("sold", checkpoint)), model.closed)
        if rules.updates:
            agree_on_updates(model, done.emitted("sold", checkpoint))
        if rules.keeps_late:
            missed = {r["shop"]: r["cents"] for r in windows(done, "missed", checkpoint)}
            agree_on_late(model, done.emitted("sold.late", checkpoint), missed)
        found = {key_of(r): (r["hours"], r["cents"]) for r in done.emitted("days", checkpoint)}
        assert found == Model.sums(model.closed_days)
        still_open = {key_of(r): (r["hours"], r["cents"]) for r in windows(done, "days", checkpoint)}
        assert still_open == Model.sums(model.days)
        ever = {r["shop"]: r["cents"] for r in windows(done, "ever", checkpoint)}
        assert ever == {
            shop: sum(c for (s, _, _), found in model.closed.items() for _, c in found if s == shop)
            for shop in {s for s, _, _ in model.closed}
        }
        assert done.counts("sold", checkpoint).late == model.late
        frontier = checkpoint.sealed.facts.clocks["sold"].watermark_ms
        at = None if model.frontier is None else (START + timedelta(minutes=model.frontier)).timestamp() * 1000
        assert frontier == at


@settings(max_examples=cases(30), deadline=None)
@given(seeds)
def test_no_compaction_changes_an_answer(seed: int) -> None:
    chance = random.Random(seed)
    rules = random_rules(chance)
    done = replay(pipeline(rules), [p for b in random_batches(chance, rules) for p in ([*map(record, b)], BARRIER)])
    schema = done.checkpoints[0].plan.schemas["sold"]
    for found in partial_compactions(done, "sold", chance):
        now = found.newest.now
        assert resolve_rows(schema, found.left, now) == resolve_rows(schema, found.rows, now)
        if not rules.sessions or found.deepest:
            window, frontier = schema.window, found.before.now.frontiers.get("sold")
            assert window is not None
            assert all(window.outlives(row, frontier) for row in found.made)


def test_a_run_holds_no_row_of_a_window_that_closes_in_it() -> None:
    done = replay(pipeline(Rules()), [[record(Sent(0, "a", m, 1)) for m in (1, 12, 25)], BARRIER])
    schema = done.checkpoints[0].plan.schemas["sold"]
    stored = state_rows(done._tables, schema, done.checkpoints[0].handles["sold"])
    assert [row["window_end"] for row in stored] == [START + timedelta(minutes=30)]
    assert [row["window_end"] for row in done.emitted("sold")] == [START + timedelta(minutes=m) for m in (10, 20)]


def test_late_records_do_not_stop_a_pipeline_and_others_do() -> None:
    strict = replace(pipeline(Rules()), max_dead_letters=0.0)
    first, late = record(Sent(0, "a", 50, 1)), record(Sent(0, "a", 1, 1))
    done = replay(strict, [[first], BARRIER, [late, late], BARRIER])
    assert [r["reason"] for r in done.dead_letters("sold")] == ["late", "late"]
    with pytest.raises(DeadLettersExceededError):
        replay(strict, [[first, record(Sent(0, None, 1, 1))], BARRIER])


def test_a_checkpoint_without_records_closes_nothing_by_watermark() -> None:
    done = replay(pipeline(Rules()), [[record(Sent(0, "a", 5, 1))], BARRIER, [], BARRIER])
    assert len(done.checkpoints) == 2 and done.emitted("sold") == []


def test_ids_of_closed_windows_are_their_key_and_their_end() -> None:
    sales = [record(Sent(n % 2, shop, 5, 1)) for n, shop in enumerate("aabc")]
    push = [record(Sent(n, "z", 40, 1)) for n in (0, 1)]
    one = replay(pipeline(Rules()), [sales, push, BARRIER]).emitted("sold")
    other = replay(pipeline(Rules()), [sales[2:], BARRIER, sales[:2], BARRIER, push, BARRIER]).emitted("sold")
    ids = ("_uid", "_topic", "_partition", "_offset", "_path")
    assert sorted(repr([r[i] for i in ids]) for r in one) == sorted(repr([r[i] for i in ids]) for r in other)
    assert len({repr([r[i] for i in ids]) for r in one}) == len(one) == 3


@given(st.integers(1, 60), st.integers(1, 60), st.integers(-500, 500))
def test_a_pane_belongs_to_the_windows_that_hold_it_and_closes_with_the_last(size: int, every: int, at: int) -> None:
    every = min(size, every)
    window = SlidingWindows(size_ms=size, every_ms=every)
    right = {(s, s + size) for s in range(at - size - 1, at + 1) if s % every == 0 and s <= at < s + size}
    start, end = window.span(at)
    row = {"window_start": from_ms(start), "window_end": from_ms(end)}
    found = {(to_ms(r["window_start"]), to_ms(r["window_end"])) for r in window.windows([row], lambda _: ())}
    assert start <= at < end and found == right
    last = max(end for _, end in right)
    assert window.closes((start, end)) == last
    for frontier in (last - 1, last):
        assert window.outlives(row, frontier) is not (last <= frontier)
        assert window.is_late(from_ms(at), frontier) is (last <= frontier)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(-200, 200), st.integers(0, 60))
def test_a_frontier_closes_nothing_unless_a_window_ends_up_to_it(size: int, every: int, before: int, by: int) -> None:
    every, after = min(size, every), before + by
    starts = range(before - 2 * size - every, after + 1)
    for window, step in ((TumblingWindows(size_ms=size), size), (SlidingWindows(size_ms=size, every_ms=every), every)):
        ends = [start + size for start in starts if start % step == 0]
        assert window.may_close(before, after) is any(before < end <= after for end in ends)
        assert window.may_close(None, after)
    assert SessionWindows(gap_ms=size).may_close(before, after)


@given(st.integers(1, 10**7), st.integers(-(10**13), 10**13))
def test_a_window_holds_its_record_and_is_aligned_to_the_epoch(size_ms: int, at_ms: int) -> None:
    epoch, ms = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
    start, end = TumblingWindows(size_ms=size_ms).bounds(epoch + at_ms * ms)
    assert start <= epoch + at_ms * ms < end and end - start == size_ms * ms
    assert (start - epoch) // ms % size_ms == 0
