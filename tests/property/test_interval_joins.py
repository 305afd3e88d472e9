"""Interval joins in the twin: equal to DuckDB's join of all records that were not late, for any cut and compaction."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.bug_finds import is_found
from tests.support.interval_join_cases import (
    Arrival,
    JoinModel,
    JoinRules,
    agree_on_pairs,
    joined_pipeline,
    random_arrivals,
    random_join_rules,
    waiting_in,
)
from tests.support.partial_compactions import partial_compactions
from tests.support.scale import cases
from tidemark.model.core.ttl import Now
from tidemark.model.schema.event_windows import StoredWindow, to_ms
from tidemark.model.schema.interval_joins import MATCHED, StoredJoin
from tidemark.testing import BARRIER, CRASH, Barrier, Harness, Replayed
from tidemark.testing import replay as replay_script
from tidemark.testing.twin import compute, pairs
from tidemark.testing.twin.entries import state_rows
from tidemark.testing.twin.merge import compact_rows, resolve_rows

seeds = st.integers(0, 2**32 - 1)


def replayed(rules: JoinRules, batches: Sequence[Sequence[Arrival]], chance: random.Random | None = None) -> Replayed:
    """Runs batches; with `chance` some attempts crash, and the join meets its state compacted."""
    script = list[Any]()
    for batch in batches:
        crash = [CRASH] if chance is not None and chance.random() < 0.3 else []
        script += [[arrival.record for arrival in batch], *crash, BARRIER]
    with compacted(chance):
        return replay_script(joined_pipeline(rules), script, partitions=2)


@contextmanager
def compacted(chance: random.Random | None) -> Iterator[None]:
    """Compacts a random suffix of the stored runs, or all of them, before each checkpoint."""

    def join_rows(task: Any, run: Any, stored: Any) -> Any:
        if chance is None or not stored or chance.random() < 0.4:
            return pairs.join_rows(task, run, stored)
        first = min(row["_changed"] for row in stored)
        since = chance.choice([first, chance.randint(first, task.plan.id)])
        before = task.plan.frontier_before(task.join.uid)
        now = Now(frontiers={} if before is None else {task.join.uid: before})
        picked = [row for row in stored if row["_changed"] >= since]
        made = compact_rows(task.schema, picked, now, deepest=since == first)
        return pairs.join_rows(task, run, [row for row in stored if row["_changed"] < since] + made)

    with patch.object(compute, "join_rows", join_rows):
        yield


def check(seed: int) -> None:
    """One random case."""
    chance = random.Random(seed)
    rules = random_join_rules(chance)
    batches = random_arrivals(chance, rules)
    done, model = replayed(rules, batches, chance), JoinModel(rules)
    for batch, checkpoint in zip(batches, done.checkpoints, strict=True):
        model.checkpoint(batch)
        emitted = done.emitted("shipped", checkpoint)
        agree_on_pairs(model, emitted)
        assert waiting_in([*done.rows("shipped", checkpoint).values()]) == model.waiting
        counts = done.counts("shipped", checkpoint)
        assert (counts.late, counts.dead_lettered) == (model.late, model.late + model.unkeyed)
        assert counts.read == len(batch)
        assert done.counts("sizes", checkpoint).late == 0, "nothing that a join emits is late for a window over it"
        assert done.counts("sizes", checkpoint).read == counts.emitted
        assert sum(row.n for row in done.state("ever", checkpoint).values()) == len(emitted)
        frontier = checkpoint.now.frontiers.get("shipped")
        start = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000)
        assert frontier == (None if model.frontier is None else start + model.frontier)


@settings(max_examples=cases(50), deadline=None)
@given(seeds)
def test_a_join_is_duckdbs_join_of_all_that_was_not_late(seed: int) -> None:
    check(seed)


@settings(max_examples=cases(20), deadline=None)
@given(seeds)
def test_no_compaction_changes_what_is_kept(seed: int) -> None:
    chance = random.Random(seed)
    rules = random_join_rules(chance)
    done = replayed(rules, random_arrivals(chance, rules))
    schema = done.checkpoints[0].plan.schemas["shipped"]
    for found in partial_compactions(done, "shipped", chance):
        now = found.newest.now
        assert resolve_rows(schema, found.left, now) == resolve_rows(schema, found.rows, now)


@settings(max_examples=cases(15), deadline=None)
@given(seeds)
def test_a_drain_emits_what_waits_alone_and_keeps_nothing(seed: int) -> None:
    chance = random.Random(seed)
    rules = random_join_rules(chance)
    harness, model = Harness(joined_pipeline(rules), partitions=2), JoinModel(rules)
    for batch in random_arrivals(chance, rules):
        harness.send(*(arrival.record for arrival in batch))
        harness.checkpoint()
        model.checkpoint(batch)
    last = harness.checkpoint(Barrier(drains=True))
    model.frontier = 10**12
    agree_on_pairs(model, harness.results.emitted("shipped"))
    assert not harness.results.rows("shipped", last) and not harness.results.rows("sizes", last)
    assert harness.results.counts("sizes", last).late == 0


@settings(max_examples=cases(20), deadline=None)
@given(seeds)
def test_ids_do_not_depend_on_the_cut(seed: int) -> None:
    chance = random.Random(seed)
    rules = JoinRules(lower=-4, upper=6, how="inner", lateness=1000)  # nothing is late
    arrivals = [a for batch in random_arrivals(chance, rules) for a in batch]
    cut = chance.randint(0, len(arrivals))
    one, two = replayed(rules, [arrivals]), replayed(rules, [arrivals[:cut], arrivals[cut:]])
    assert one.emitted("shipped") == two.emitted("shipped")


def test_a_run_holds_no_row_whose_time_is_over() -> None:
    arrivals = [Arrival("orders", 0, 1, "a", 1, 0), Arrival("orders", 0, 2, "a", 1, 40_000)]
    arrivals += [Arrival("shipments", 0, 3, "a", 1, 30_000)]
    done = replayed(JoinRules(upper=10), [arrivals])
    schema = done.checkpoints[0].plan.schemas["shipped"]
    stored = state_rows(done._tables, schema, done.checkpoints[0].handles["shipped"])
    assert {row["join_position"].partition("@")[0] for row in stored} == {"orders", "shipments"}
    assert {row["window_start"] for row in stored} == {
        datetime(2024, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms) for ms in (30, 40)
    }
    assert [row["number"] for row in done.emitted("shipped")] == [1]


def _exclusive(bound: str) -> Callable[[Any], Any]:
    def planted(real: Any) -> Any:
        def inside(schema: Any, window: Any, new: Any, old: Any) -> Any:
            edge = timedelta(milliseconds=getattr(window, bound))
            return [p for p in real(schema, window, new, old) if p[1]["window_start"] - p[0]["window_start"] != edge]

        return inside

    return planted


def _unmarked(real: Any) -> Any:
    return lambda schema, plan, left: real(schema, plan, left) | {MATCHED: None}


def _marks_stored_rows_only(real: Any) -> Any:
    """A left row of the batch has no operand below it yet."""

    def mark(schema: Any, plan: Any, left: Any) -> Any:
        return real(schema, plan, left) | ({MATCHED: None} if left["_changed"] == plan.id else {})

    return mark


def _pairs_new_rows_only(real: Any) -> Any:
    return lambda schema, window, new, old: real(schema, window, new, {})


def _pairs_old_rows_again(real: Any) -> Any:
    return lambda schema, window, new, old: real(schema, window, {**old, **new}, {})


def _at(row: Any) -> Any:
    return row["window_start"]


def _keeps(left: Callable[[StoredJoin], int], right: Callable[[StoredJoin], int]) -> Callable[[Any], Any]:
    return lambda real: lambda self, side: left(self) if side == "left" else right(self)


PLANTED: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "the lower bound is exclusive": (pairs, "_pairs", _exclusive("lower_ms")),
    "the upper bound is exclusive": (pairs, "_pairs", _exclusive("upper_ms")),
    "left rows are not marked": (pairs, "_mark", _unmarked),
    "left rows of the batch are not marked": (pairs, "_mark", _marks_stored_rows_only),
    "stored rows find no partners": (pairs, "_pairs", _pairs_new_rows_only),
    "stored pairs are emitted again": (pairs, "_pairs", _pairs_old_rows_again),
    "right rows go when their time comes": (
        StoredJoin, "keeps_ms", _keeps(lambda j: max(j.upper_ms, 0), lambda j: 0),
    ),
    "left rows go before their time, if all partners are earlier": (
        StoredJoin, "keeps_ms", _keeps(lambda j: j.upper_ms, lambda j: -j.lower_ms),
    ),
    "rows at the frontier are late": (
        StoredJoin, "is_late", lambda real: lambda self, at, frontier: to_ms(at) <= (frontier or 0),
    ),
    "a record is late when its own time is over": (
        StoredJoin, "is_late", lambda real: StoredWindow.is_late,
    ),
    "a pair has the event time of its left row": (
        pairs, "_pair", lambda real: lambda task, left, right: real(task, left, right | {"window_start": _at(left)}),
    ),
}  # fmt: skip
"""What is wrong: where, and what takes the place of the real function."""


@pytest.mark.parametrize("wrong", PLANTED)
def test_a_planted_fault_is_found(wrong: str) -> None:
    where, name, planted = PLANTED[wrong]
    with patch.object(where, name, planted(getattr(where, name))):
        assert is_found(check, range(400)), "no seed finds it"
