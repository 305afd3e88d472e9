"""Restores that keep sinks with closed windows: which checkpoints they repeat, and what they say first."""

from dataclasses import replace

import pytest

from tests.support.bank import ASK, P0, P1, BankPipeline
from tests.unit.coordinator.test_frontiers import bank, closed, frontier, pipeline, until, visit
from tests.unit.coordinator.test_restoring import plan, restored
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.records.states import Promoted
from tidemark.declare.watermark import Watermark
from tidemark.errors import ConflictError, DataLostError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import Genesis


def hours(made: BankPipeline, found: Checkpoint) -> list[tuple[float, int]]:
    """The rows of the sink: the hour at which a window ends, and its count."""
    ((_, table),) = found.sinks.items()
    rows = made.tables.rows(table.handle)
    return sorted((int(str(row["_offset"])) // 3_600_000 % 24, int(str(row["n"]))) for row in rows)


def five(made: BankPipeline) -> list[Checkpoint]:
    """Five checkpoints; the record of the last but one is late for the hour from 1:00."""
    found = []
    for hour in (1.5, 2.5, 3.5, 1.7, 5.5):
        visit(made, hour)
        found.append(made.complete())
    return found


def test_a_restore_that_keeps_sinks_repeats_each_checkpoint_and_then_reads_on() -> None:
    made = bank()
    recorded = five(made)
    dry = plan(made, checkpoint=2)
    assert [p.name for p in dry.repeats] == ["chk-3", "chk-4", "chk-5"]
    assert dry.sinks == {"hours": "keeps its rows; rows that are emitted again for the same records are skipped"}
    done = restored(made, checkpoint=2)
    assert done.genesis.repeats_to == 5
    visit(made, 6.5)
    again = [made.complete() for _ in range(4)]
    assert [(c.plan.replays, c.plan.repeats_to) for c in again] == [((3,), 5), ((4,), 5), ((5,), 0), ((), 0)]
    assert [frontier(c) for c in again] == [*(frontier(c) for c in recorded[2:]), 6.5]
    late = [ack.late for c in again if (ack := c.ack("hours")) is not None]
    assert late == [0, 1, 0, 0]
    assert hours(made, again[-1]) == [(2, 1), (3, 1), (4, 1), (6, 1)]
    assert hours(made, again[0]) == hours(made, recorded[4]), "the sink never goes back"


def test_one_run_repeats_all_of_it_and_reads_on() -> None:
    made = bank()
    five(made)
    restored(made, checkpoint=2)
    visit(made, 6.5)
    found = made.loop.make_checkpoints(replace(ASK, run="a run")).checkpoints
    assert [c.plan.replays for c in found] == [(3,), (4,), (5,), ()]


def test_the_tasks_of_a_run_repeat_with_the_code_of_now() -> None:
    made = bank()
    recorded = five(made)
    restored(made, checkpoint=2)
    planned = made.plan()
    made.pipeline = replace(made.pipeline, max_dead_letters=0.9)
    folded = made.loop.fold(planned, ASK)
    found = [*folded.checkpoints]
    assert [c.plan.replays for c in found] == [(3,), (4,), (5,)], "and the last plan is sealed"
    assert planned.id not in {c.id for c in found}, "it was made for other code"
    assert hours(made, found[-1]) == hours(made, recorded[4])


def test_a_cleared_run_repeats_its_own_interval_and_a_later_one_all_that_is_left() -> None:
    made = bank(closes_by="logical_time")
    for hour in (1, 2, 3, 4):
        visit(made, hour - 0.5)
        made.complete(until(hour))
    restored(made, checkpoint=1)
    cleared = made.loop.make_checkpoints(until(2)).checkpoints
    assert [c.plan.replays for c in cleared] == [(2,)]
    visit(made, 4.5)
    found = made.loop.make_checkpoints(until(5)).checkpoints
    assert [c.plan.replays for c in found] == [(3,), (4,), ()]
    assert [frontier(c) for c in found] == [3, 4, 5]
    assert hours(made, found[-1]) == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]


def test_a_restore_in_the_middle_of_a_repetition_repeats_what_the_sinks_have() -> None:
    made = bank()
    recorded = five(made)
    restored(made, checkpoint=1)
    middle = made.complete()
    assert middle.plan.replays == (2,)
    assert [p.name for p in plan(made, checkpoint=middle.id).repeats] == ["chk-3", "chk-4", "chk-5"]
    assert restored(made, checkpoint=1).genesis.repeats_to == 5, "of the closed timeline, not of its own head"
    assert restored(made, checkpoint=4).genesis.repeats_to == 5
    assert made.complete().plan.replays == (5,)
    assert hours(made, made.complete()) == hours(made, recorded[4])


def test_sinks_that_go_back_into_a_repetition_still_have_what_it_repeats() -> None:
    made = bank()
    five(made)
    restored(made, checkpoint=1)
    middle = made.complete()
    assert restored(made, checkpoint=middle.id, restore_sinks=True).genesis.repeats_to == 5
    assert restored(made, checkpoint=1, restore_sinks=True).genesis.repeats_to == 0
    found = made.complete()
    assert (found.plan.replays, hours(made, found)) == ((), [(2, 2), (3, 1), (4, 1)]), "one batch: nothing is late"


def test_a_fork_of_a_repetition_repeats_the_rest_before_it_reads_anything() -> None:
    made = bank()
    five(made)
    restored(made, checkpoint=1)
    middle = made.complete()
    made.recovery.fork(RestorePoint(checkpoint=middle), "mine")
    loop = replace(made.loop, timeline="mine")
    found = [loop.run_once(ASK).checkpoints[0] for _ in range(4)]
    assert [c.plan.replays for c in found] == [(3,), (4,), (5,), ()]
    assert isinstance(made.promotion.promote("mine"), Promoted)
    assert made.complete().plan.replays == ()


def test_without_rows_behind_the_checkpoint_nothing_is_repeated() -> None:
    made = bank()
    five(made)
    assert restored(made, checkpoint=5).genesis.repeats_to == 0
    assert made.complete().plan.replays == ()


def test_a_checkpoint_of_another_line_is_refused_while_sinks_stay() -> None:
    made = bank()
    five(made)
    restored(made, checkpoint=1, restore_sinks=True)
    visit(made, 7.5)
    made.complete()
    with pytest.raises(ConflictError, match="sinks cannot stay: chk-3 is not an ancestor of chk-6") as refused:
        plan(made, checkpoint=3)
    assert "--restore-sinks" in refused.value.next
    assert plan(made, checkpoint=3, restore_sinks=True).repeats == ()


def test_equal_offsets_are_not_equal_cuts() -> None:
    made = bank()
    recorded = five(made)
    restored(made, checkpoint=1, restore_sinks=True)
    found = made.complete()
    same = [(c.plan.ranges.ends, c.plan.logical_time_ms) for c in (found, recorded[4])]
    assert same[0] == same[1] and hours(made, found) != hours(made, recorded[4])
    visit(made, 7.5)
    made.complete()
    with pytest.raises(ConflictError, match="sinks cannot stay: chk-5 is not an ancestor of chk-7"):
        plan(made, checkpoint=5)


def test_lost_records_end_the_repetition_only_with_consent() -> None:
    made = bank()
    recorded = five(made)
    made.log.trim(P0, 3)
    dry = plan(made, checkpoint=2)
    assert "with --accept-loss, chk-3, chk-4, chk-5 cannot be repeated: other records are late" in dry.sinks["hours"]
    with pytest.raises(DataLostError):
        dry.refuse_gaps()
    restored(made, checkpoint=2)
    with pytest.raises(DataLostError, match="chk-3 cannot be repeated") as lost:
        made.plan()
    assert "--accept-loss" in lost.value.next and "--restore-sinks" in lost.value.next
    found = made.complete(replace(ASK, accept_loss=True))
    assert (found.plan.replays, found.plan.repeats_to) == ((), 0)
    assert [gap.lost.start for gap in found.plan.losses] == [2]
    assert hours(made, found) == hours(made, recorded[4]), "and no window twice"


def test_a_partition_that_is_idle_or_cut_then_is_it_again() -> None:
    made = bank(watermark=Watermark(idle_after="1h"))
    visit(made, 1.5)
    visit(made, 1.2, P1)
    made.complete()
    made.clock.advance(2 * 3_600_000)
    visit(made, 3.5)
    idle = made.complete()
    assert frontier(idle) == 3.5, "the other partition holds nothing back"
    visit(made, 3.2, P1)
    made.complete()
    made.clock.advance(1)
    restored(made, checkpoint=1)
    found = [made.complete() for _ in range(3)]
    assert [(frontier(c), closed(c)) for c in found] == [(3.5, 1), (3.5, 0), (3.5, 0)]
    assert hours(made, found[-1]) == hours(made, idle)


def test_a_renamed_fold_closes_no_window_again() -> None:
    for declared in (False, True):
        made = bank()
        recorded = five(made)
        (fold,) = made.pipeline.operators
        made.pipeline = replace(made.pipeline, operators=[replace(fold, uid="by", was="hours" if declared else "")])
        if declared:
            made.recovery.restore(RestorePoint(checkpoint=recorded[1]))
        else:
            restored(made, checkpoint=2, renamed={"hours": "by"})
        found = [made.complete() for _ in range(4)][-1]
        assert (found.plan.repeats_to, hours(made, found)) == (0, hours(made, recorded[4])), declared


def test_a_later_lateness_reopens_nothing_in_the_sink() -> None:
    made = bank()
    recorded = five(made)
    made.pipeline = pipeline(lateness="3h")
    restored(made, checkpoint=1)
    visit(made, 5.6)
    found = [made.complete() for _ in range(5)]
    assert [frontier(c) for c in found] == [1.5, 1.5, 1.5, 2.5, 2.6]
    assert hours(made, found[-1]) == hours(made, recorded[4])
    entry = made.coordinator.timelines.entry("t2", 1)
    assert isinstance(entry, Genesis) and entry.repeats_to == 5


def test_updates_that_the_sink_has_are_not_emitted_again() -> None:
    made = bank(emit="update")
    for hour in (1.1, 1.2, 1.3):
        visit(made, hour)
        before = made.complete()
    shown = [(row["n"], row["_path"]) for row in made.tables.rows(before.sinks["hours"].handle)]
    assert [n for n, _ in shown] == [1, 2, 3]
    restored(made, checkpoint=1)
    visit(made, 1.4)
    found = [made.complete() for _ in range(3)]
    again = [[(row["n"], row["_path"]) for row in made.tables.rows(c.sinks["hours"].handle)] for c in found]
    assert again[:2] == [shown, shown]
    assert again[2][:3] == shown and [n for n, _ in again[2]] == [1, 2, 3, 4]
