"""A compaction of rows beside everything else: kills, plans, restores, forks, sweeps, erasures (adr/0041)."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.retention.leftovers import leaks
from tests.row_compaction.emitted_oracle import EmittedOracle, files_of
from tests.support.crashes import CrashAt, Killed
from tests.support.retention import ASK, OUTBOX, TOPIC, MemoryRetentionPipeline
from tidemark.coordinator.checkpoints.loop import list_undelivered, record_delivery
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.states import OpenPlan
from tidemark.coordinator.records.timelines import revision_of
from tidemark.declare.retention import Retention
from tidemark.errors import ConflictError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.row_tables import row_tables
from tidemark.model.checkpoint.segments import is_base
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.state.row_compaction import RowPolicy
from tidemark.ports import StepListener

NOW = RowPolicy(runs=2)
STEPS = 10
"""Crash points of one compaction: four steps and the gap inside the commit, before and after each."""


def lined(checkpoints: int = 4) -> tuple[MemoryRetentionPipeline, EmittedOracle]:
    """A pipeline with so many checkpoints, none of them compacted."""
    retained = MemoryRetentionPipeline()
    line = EmittedOracle(retained)
    for _ in range(checkpoints):
        line.pay("a", "", "b")
    return retained, line


def compact_sink(retained: MemoryRetentionPipeline, listener: StepListener, found: Checkpoint | None = None) -> None:
    """Compacts the sink of a checkpoint, by default of the newest one."""
    found = found or next(retained.coordinator.checkpoints())
    (table,) = (t for t in row_tables(found) if t.owner == "told~sinks")
    retained.row_compactor(listener).compact(found, table, NOW)


def is_compacted(found: Checkpoint) -> bool:
    """Whether the sink of a checkpoint has compacted files."""
    return any(is_base(s.path) for s in found.sinks["teller"].handle)


class Once:
    """A listener that does something else at one point."""

    def __init__(self, act: Callable[[], object], step: str, moment: str) -> None:
        self.left, self.at = [act], (step, moment)

    def __call__(self, step: str, moment: str) -> None:
        if (step, moment) == self.at and self.left:
            self.left.pop()()


@pytest.mark.parametrize("nth", range(1, STEPS + 1))
def test_a_compactor_that_is_killed_anywhere_changes_nothing_and_leaves_nothing(nth: int) -> None:
    retained, line = lined()
    with pytest.raises(Killed):
        compact_sink(retained, CrashAt(nth))
    found = line.pay("a", "")
    line.compare()
    assert is_compacted(found) == (nth == STEPS), "only what is recorded is adopted"
    retained.compact_rows(NOW)
    line.pay("b", "")
    line.compare()
    for _ in range(2):
        retained.sweep(Retention.keep_last(1))
    assert leaks(retained) == []
    line.compare(found.id + 1)


def test_no_crash_point_is_missed() -> None:
    seen: list[tuple[str, str]] = []
    retained, _ = lined()
    compact_sink(retained, lambda step, moment: seen.append((step, moment)))
    assert len(seen) == STEPS


def test_a_late_compaction_is_adopted_behind_the_checkpoints_that_followed() -> None:
    retained, line = lined()
    read = next(retained.coordinator.checkpoints())
    line.pay("a", "")
    line.pay("b")
    compact_sink(retained, lambda *_: None, read)
    found = line.pay("a")
    handle = found.sinks["teller"].handle
    assert [(s.after, s.through, is_base(s.path)) for s in handle] == [(0, 4, True), (4, 7, False)]
    line.compare()


def test_of_two_compactors_at_once_one_is_adopted_and_the_other_one_harms_nothing() -> None:
    for step in ("job", "files", "commit", "record"):
        for moment in ("before", "after"):
            retained, line = lined()
            other = Once(lambda r=retained: compact_sink(r, lambda *_: None), f"compact_rows.{step}", moment)  # type: ignore[misc]
            try:
                compact_sink(retained, other)
            except ConflictError:
                assert step in ("job", "files", "commit")
            assert not other.left, "the point was reached"
            assert is_compacted(line.pay("a", "")), (step, moment)
            retained.compact_rows(NOW)
            line.pay("b")
            line.compare()


def test_a_restore_while_a_compaction_runs_adopts_nothing_of_the_closed_timeline() -> None:
    for step, moment in (
        ("compact_rows.job", "after"),
        ("commit.compact_rows", "after"),
        ("compact_rows.record", "before"),
    ):
        retained, line = lined()
        restored = Once(lambda r=retained: r.restore(2), step, moment)  # type: ignore[misc]
        compact_sink(retained, restored)
        assert not restored.left
        found = retained.checkpoint()
        assert found.plan.slot.timeline == "t2" and not is_compacted(found)
        kept = retained.held(found.sinks["teller"].handle)
        assert len(kept) == len(line.emitted), "the sink keeps its rows, and skips those that are emitted again"
        line.compare()
        retained.merge_rows()
        assert retained.rows(retained.checkpoint())["teller sink"] == sorted(map(repr, kept))
        for _ in range(2):
            retained.sweep(Retention.keep_last(1))
        assert leaks(retained) == []


def test_a_plan_that_has_adopted_is_abandoned_by_a_restore_behind_the_compacted_range() -> None:
    retained, line = lined()
    retained.compact_rows(NOW)
    opened = retained.coordinator.trigger(retained.pipeline, ASK)
    assert isinstance(opened, OpenPlan) and "told~sinks" in opened.plan.adopted
    retained.restore(3)
    assert not is_compacted(retained.checkpoint("a"))
    line.compare()
    for _ in range(2):
        retained.sweep(Retention.keep_last(1))
    assert leaks(retained) == []


def test_a_savepoint_and_a_fork_in_the_middle_of_a_compacted_range_show_their_own_rows() -> None:
    retained, line = lined(9)
    retained.compact_rows(NOW)
    line.pay("a", "")
    retained.save("middle", 5)
    for _ in range(2):
        retained.sweep(Retention.keep_last(1))
    line.compare(5, 10)
    retained.fork("trial", 5)
    forked = retained.checkpoint(timeline="trial")
    own = retained.held(forked.sinks["teller"].handle)
    at_five = [row for row in own if row["checkpoint"] <= 5]
    assert len(at_five) == len(line.shown[5][0])
    retained.compact_rows(NOW, "trial")
    again = retained.checkpoint("b", timeline="trial")
    rows = retained.held(again.sinks["teller"].handle)
    assert is_compacted(again) and [row for row in rows if row["checkpoint"] <= forked.id] == own
    line.compare(5, 10)


def test_a_sweep_at_every_step_of_a_compaction_deletes_nothing_that_it_needs() -> None:
    points: list[tuple[str, str]] = []
    retained, _ = lined()
    compact_sink(retained, lambda step, moment: points.append((step, moment)))
    for step, moment in points:
        retained, line = lined()
        sweep = Once(lambda r=retained: [r.sweep(Retention.keep_last(1)) for _ in range(2)], step, moment)  # type: ignore[misc]
        compact_sink(retained, sweep)
        found = line.pay("a", "")
        assert is_compacted(found), (step, moment)
        line.compare(4, 5)


def test_a_compaction_beside_an_erasure_brings_no_row_of_the_key_back() -> None:
    points: list[tuple[str, str]] = []
    retained, _ = lined()
    compact_sink(retained, lambda step, moment: points.append((step, moment)))
    for step, moment in points:
        retained, _ = lined()
        erased = Once(lambda r=retained: r.erase("teller", "a"), step, moment)  # type: ignore[misc]
        compact_sink(retained, erased)
        assert not erased.left
        for _ in range(2):
            found = retained.checkpoint("b")
            assert "'account': 'a'" not in str(retained.rows(found)["teller sink"]), (step, moment)
            retained.compact_rows(NOW)
        retained.erase("teller", "a")
        for _ in range(2):
            retained.sweep(Retention.keep_last(1))
        sink = {p: rows for p, rows in retained.tables.files.items() if "/told/" in p}
        held = [p for p, rows in sink.items() if any(row["account"] == "a" for row in rows)]
        assert held == [], (step, moment)


def test_an_erasure_leaves_every_other_row_of_compacted_files_where_it_was() -> None:
    retained, line = lined(8)
    body = json.dumps({"account": "a"}).encode()  # no amount: a dead letter of the key
    retained.log.append(TopicPartition(TOPIC, 0), body, timestamp_ms=0)
    found = retained.checkpoint("b")
    retained.compact_rows(NOW)
    found = retained.checkpoint("b")
    assert is_compacted(found)
    before = {n: retained.rows(retained.coordinator.checkpoint(n)) for n in range(1, found.id + 1)}
    done = retained.erase("teller", "a")
    assert done.rows > 8 and done.files >= 3
    for n, rows in before.items():
        after = retained.rows(retained.coordinator.checkpoint(n))
        assert after["teller sink"] == [row for row in rows["teller sink"] if "'account': 'a'" not in row]
        letters = [row for row in rows["teller dead letters"] if '"account": "a"' not in row]
        assert after["teller dead letters"] == letters
        assert after["accounts dead letters"] == rows["accounts dead letters"], "another operator's"
    assert len(line.shown) == 8


def test_a_restore_that_took_the_sinks_over_before_an_erasure_is_found_out() -> None:
    retained, _ = lined()
    retained.restore(2)
    for _ in range(2):
        retained.checkpoint("c")  # only tables of t2 have the key, so an erasure does not revise chk-1
    erased = Once(lambda: retained.erase("teller", "c"), "genesis", "before")
    recovery = replace(retained.recovery, coordinator=replace(retained.coordinator, listener=erased))
    point = RestorePoint(checkpoint=retained.coordinator.checkpoint(1))
    with pytest.raises(ConflictError, match="a key was erased"):
        recovery.restore(point)
    assert revision_of(retained.coordinator.objects, 1) == 0 and retained.coordinator.timelines.live() == "t2"
    assert "'account': 'c'" not in str(retained.rows(retained.checkpoint("b"))["teller sink"])
    retained.restore(1)
    found = retained.checkpoint("b")
    assert found.plan.slot.timeline not in {"t1", "t2"}
    assert "'account': 'c'" not in str(retained.rows(found)["teller sink"])


def test_rows_that_wait_in_an_outbox_are_delivered_each_checkpoint_by_itself() -> None:
    retained = MemoryRetentionPipeline(pipeline=OUTBOX)
    sent: list[tuple[int, int]] = []

    def deliver(most: int) -> None:
        for due in list_undelivered(retained.coordinator)[:most]:
            rows = [r for r in retained.held(due.table.handle) if r["checkpoint"] == due.checkpoint.id]
            sent.extend((due.checkpoint.id, int(r["_offset"])) for r in rows)
            assert len(rows) == due.records
            record_delivery(retained.coordinator, due)

    for number in range(1, 25):
        retained.checkpoint("a", "b")
        retained.compact_rows(NOW)
        if number % 5 == 0:
            deliver(3)
        if number % 7 == 0:
            retained.sweep(Retention.keep_last(1))
    found = next(retained.coordinator.checkpoints())
    assert is_base(found.sinks["sender"].handle.segments[0].path)
    deliver(100)
    assert sent == [(n, offset) for n in range(1, 25) for offset in (2 * n - 2, 2 * n - 1)]
    assert files_of(found)["sink of sender"] < 12
