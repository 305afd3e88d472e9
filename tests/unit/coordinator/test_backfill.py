"""What a backfill refuses, before anything is written; and the rules by which recorded checkpoints become steps."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.support.bank import ASK, P0, P1, PIPELINE, Account, BankPipeline, Wider, at
from tests.support.memory import dag_run
from tidemark import Fold, KafkaSource, state
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.plans.replay_ranges import steps
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.coordinator.recovery.backfill import Backfill, BackfillRequest
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.declare.operators import Process
from tidemark.declare.pipeline import Broadcast, Pipeline
from tidemark.errors import (
    ConflictError,
    DataLostError,
    IncompatibleStateError,
    NameRefusedError,
    NotFoundError,
    UsageError,
)
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.object_keys import slot_key
from tidemark.model.checkpoint.store_objects import StopRecord
from tidemark.ports import PlanRequest
from tidemark.state import Keyed
from tidemark.testing.twin.memory import MemoryStore


class Renamed(Keyed):
    """The same operator without its old fields."""

    payments: int = state.value(0)


def five(bank: BankPipeline) -> list[Checkpoint]:
    """Checkpoints of 1, 2, 3, 0 and 4 records."""
    made = []
    for n in (1, 2, 3, 0, 4):
        bank.send(n)
        bank.clock.advance(10)
        made.append(bank.complete())
    return made


def backfill(bank: BankPipeline, begins: Checkpoint, pipeline: Pipeline | None = None, **more: Any) -> Backfill:
    request = BackfillRequest(begins=RestoreRequest(checkpoint=begins.id), **more)
    return Backfill(coordinator=bank.coordinator, pipeline=pipeline or bank.pipeline, request=request)


def repeat(bank: BankPipeline, one: Backfill) -> list[Checkpoint]:
    one.begin()
    return list(one.repeat(lambda attempt: bank.executed(one.pipeline, attempt)))


def objects(bank: BankPipeline) -> list[str]:
    return list(bank.store.list(""))


@pytest.mark.parametrize(
    ("max_records", "wanted"),
    [
        (None, [(2,), (3,), (4,), (5,)]),
        (1, [(2,), (3,), (4,), (5,)]),
        (5, [(2, 3, 4), (5,)]),
        (7, [(2, 3, 4), (5,)]),
        (9, [(2, 3, 4, 5)]),
    ],
)
def test_steps_are_as_large_as_the_bound_allows(max_records: int | None, wanted: list[tuple[int, ...]]) -> None:
    bank = BankPipeline()
    made = five(bank)
    one = backfill(bank, made[0], max_records=max_records)
    before = objects(bank)
    assert [step.ids for step in one.outlook().left] == wanted
    assert objects(bank) == before, "an outlook writes nothing"
    assert [c.plan.replays for c in repeat(bank, one)] == wanted
    assert one.outlook().left == ()


def test_steps_end_before_a_broadcast_record() -> None:
    @dataclass(frozen=True)
    class Name:
        account: str
        name: str

    def function(key: str, records: Any, kept: Any, broadcast: Mapping[str, Any]) -> None:
        """Does nothing."""

    bank = BankPipeline()
    bank.log.create("names", 1)
    pipeline = replace(
        PIPELINE,
        operators=[Process("walk", key_by="account", state=Renamed, function=function)],
        broadcast=[Broadcast("names", KafkaSource("names", Name), key_by="account")],
    )
    bank.pipeline = pipeline
    made = []
    for n in range(5):
        bank.send(1)
        if n == 3:
            bank.log.append(replace(P0, topic="names"), b'{"account":"a","name":"A"}')
        made.append(bank.complete())
    assert [s.ids for s in steps(pipeline, [c.plan for c in made], 100)] == [(1, 2, 3), (4, 5)]


def test_a_bound_below_one_is_refused() -> None:
    bank = BankPipeline()
    made = five(bank)
    with pytest.raises(UsageError, match="max_records=0"):
        backfill(bank, made[0], max_records=0).outlook()


def test_it_ends_where_it_is_told_and_cannot_become_live_then() -> None:
    bank = BankPipeline()
    made = five(bank)
    one = backfill(bank, made[1], to=3)
    assert [c.plan.replays for c in repeat(bank, one)] == [(3,)]
    assert one.pair() is not None
    with pytest.raises(UsageError, match="up to chk-3 cannot become live"):
        one.promote(lambda: None)
    # The same fork goes on when the end is left out.
    assert [s.ids for s in backfill(bank, made[1]).outlook().left] == [(4,), (5,)]


def test_trimmed_records_are_named_exactly_and_nothing_is_written() -> None:
    bank = BankPipeline()
    made = five(bank)
    bank.log.trim(P0, 4)
    before = objects(bank)
    with pytest.raises(
        DataLostError, match=r"topic payments, partition 0, offsets \[3, 4\) were deleted since"
    ) as lost:
        backfill(bank, made[1]).begin()
    assert lost.value.code == 6
    with pytest.raises(DataLostError, match=r"offsets \[1, 4\) were deleted since"):
        backfill(bank, made[0], to=3).outlook()
    assert objects(bank) == before
    assert len(repeat(bank, backfill(bank, made[2]))) == 2, "what lies behind it can be repeated"


def test_records_trimmed_in_the_middle_stop_it_there_and_what_is_done_stays() -> None:
    bank = BankPipeline()
    made = five(bank)
    one = backfill(bank, made[0])
    one.begin()
    steps_done = one.repeat(lambda attempt: bank.executed(one.pipeline, attempt))
    assert next(steps_done).plan.replays == (2,)
    bank.log.trim(P0, 5)
    before = objects(bank)
    with pytest.raises(DataLostError, match=r"offsets \[3, 5\) were deleted since"):
        next(steps_done)
    assert objects(bank) == before


def test_a_topic_that_was_deleted_recreated_or_cut_is_named() -> None:
    bank = BankPipeline()
    made = five(bank)
    bank.log.create("payments", 2)
    with pytest.raises(DataLostError, match="the topic was recreated as payments/2"):
        backfill(bank, made[0]).outlook()
    bank.log.delete("payments")
    with pytest.raises(DataLostError, match=r"offsets \[1, 10\) are gone: the topic was deleted"):
        backfill(bank, made[0]).outlook()


def test_the_end_of_the_log_is_not_asked_for() -> None:
    bank = BankPipeline()
    made = five(bank)
    bank.send(50)
    bank.log.add_partitions("payments")
    (*_, last) = repeat(bank, backfill(bank, made[0]))
    assert {tp: r.end for tp, r in last.plan.ranges.items()} == {P0: 10, P1: 0}


def test_a_savepoint_that_the_live_timeline_did_not_come_through_is_refused() -> None:
    bank = BankPipeline()
    made = five(bank)
    bank.recovery.restore(RestorePoint(checkpoint=made[1]))
    bank.send(1)
    bank.complete()
    with pytest.raises(ConflictError, match="is at chk-4, which is not an ancestor of chk-6"):
        backfill(bank, made[3]).outlook()
    assert [s.ids for s in backfill(bank, made[0]).outlook().left] == [(2,), (6,)]


def test_a_savepoint_of_a_line_that_was_promoted_away_is_found_on_the_new_one() -> None:
    bank = BankPipeline()
    made = five(bank)
    one = backfill(bank, made[0], fork="one")
    one.begin()
    one.promote(lambda: list(one.repeat(lambda attempt: bank.executed(one.pipeline, attempt))))
    fork = list(bank.coordinator.checkpoints())[::-1][1:]
    again = backfill(bank, made[2], fork="two")
    assert [s.ids for s in again.outlook().left] == [(fork[2].id,), (fork[3].id,)]
    last = repeat(bank, again)[-1]
    assert bank.state("accounts") == {("a",): (10, 10)}
    assert last.plan.ranges.ends == made[-1].plan.ranges.ends


def test_other_code_begins_another_fork_and_is_refused_on_this_one() -> None:
    bank = BankPipeline()
    made = five(bank)
    wider = replace(PIPELINE, operators=[Fold("accounts", key_by="account", state=Account), _second()])
    one, other = backfill(bank, made[0]), backfill(bank, made[0], wider)
    assert one.fork != other.fork
    assert one.fork.startswith("backfill-chk-1-")
    repeat(bank, one)
    with pytest.raises(ConflictError, match="other code made its checkpoints"):
        backfill(bank, made[0], wider, fork=one.fork).outlook()
    with pytest.raises(ConflictError, match="it began at another checkpoint"):
        backfill(bank, made[1], fork=one.fork).outlook()
    with pytest.raises(IncompatibleStateError, match=r"accounts\.total"):
        backfill(bank, made[0], replace(PIPELINE, operators=[Fold("accounts", key_by="account", state=Wider)])).begin()


def _second() -> Fold:
    return Fold("again", key_by="account", state=Account)


def test_a_fork_that_reads_on_by_itself_is_nobodys_backfill() -> None:
    bank = BankPipeline()
    made = five(bank)
    bank.recovery.fork(RestorePoint(checkpoint=made[3]), "mine")
    own = CheckpointLoop(coordinator=bank.coordinator, pipeline=PIPELINE, execute=bank.execute, timeline="mine")
    own.run_once(ASK)
    with pytest.raises(ConflictError, match="has read new records"):
        backfill(bank, made[3], fork="mine").outlook()
    bank.recovery.fork(RestorePoint(checkpoint=made[3]), "open")
    bank.coordinator.trigger(PIPELINE, ASK, "open")
    with pytest.raises(ConflictError, match="reads new records there"):
        repeat(bank, backfill(bank, made[3], fork="open"))


def test_names_and_ends_that_make_no_sense_are_refused() -> None:
    bank = BankPipeline()
    made = five(bank)
    with pytest.raises(NameRefusedError):
        backfill(bank, made[0], fork="../x").outlook()
    with pytest.raises(NameRefusedError, match="reserved for restores"):
        backfill(bank, made[0], fork="t7").begin()
    with pytest.raises(NotFoundError):
        backfill(bank, made[0], to=77).outlook()
    with pytest.raises(ConflictError):
        backfill(bank, made[3], to=2).outlook()


def test_a_stopped_pipeline_repeats_nothing_and_the_minimum_pause_does_not_count() -> None:
    bank = BankPipeline()
    made = five(bank)
    bank.clock.advance(10**6)
    one = backfill(bank, made[0], replace(PIPELINE, min_pause=at(3_600_000) - at(0)))
    assert len(repeat(bank, one)) == 4
    bank.coordinator.objects.put("stops/00000001.json", StopRecord(stopped=True, why="x", at_ms=1, write_id="w"))
    two = backfill(bank, made[0], fork="two")
    two.begin()
    with pytest.raises(ConflictError, match="STOPPED: the pipeline is stopped"):
        list(two.repeat(bank.execute))


def test_intervals_are_covered_on_the_fork_as_they_were() -> None:
    bank, made = BankPipeline(), list[Checkpoint]()
    for day in range(1, 5):
        bank.send(2, timestamp_ms=day * 1000 - 500)
        wanted = PlanRequest(
            origin="run", interval_start=at(day * 1000 - 1000), interval_end=at(day * 1000), until_interval_end=True
        )
        made += dag_run(bank.loop, replace(wanted, max_records=1)).checkpoints
    assert len(made) == 8
    one = backfill(bank, made[1], max_records=3)
    fork = repeat(bank, one)
    assert [c.plan.replays for c in fork] == [(3, 4, 5), (6, 7, 8)]
    assert [c.covered_until_ms for c in fork] == [2000, 4000]
    assert [c.interval.start_ms for c in fork if c.interval] == [1000, 2000]


def test_a_step_reads_no_manifest_that_is_older_than_its_beginning() -> None:
    asked: list[str] = []

    class Told(MemoryStore):
        """Remembers what it was asked for."""

        def get(self, key: str) -> bytes | None:
            asked.append(key)
            return super().get(key)

    bank = BankPipeline()
    made = five(bank)
    one = backfill(bank, made[3])
    one = replace(one, coordinator=replace(bank.coordinator, store=Told(bank.store.objects)))
    one.begin()
    asked.clear()
    assert one.trigger() is not None
    old = [slot_key("t1", c.plan.slot.sequence) for c in made]
    assert [key for key in old if key in asked] == old[3:]
