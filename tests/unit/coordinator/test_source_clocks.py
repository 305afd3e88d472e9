"""Watermarks of sources: what a plan freezes, what a manifest says, and what restores, forks and renames keep."""

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.bank import ASK, P0, P1, Account, BankPipeline, at
from tests.support.memory import START_MS
from tests.unit.coordinator.test_backfill import backfill, repeat
from tests.unit.coordinator.test_restoring import restored
from tidemark import Broadcast, Fold, KafkaSource, Pipeline, Watermark
from tidemark.answers.checkpoint_facts import SourceWatermark, checkpoint_facts, iso
from tidemark.coordinator.plans.replay_ranges import steps
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.errors import DeclarationError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.metrics import METRICS, CheckpointCounts, DeadlineStatus, Standing
from tidemark.model.checkpoint.store_objects import Genesis
from tidemark.model.core.clocks import EventTimeClock, WatermarkRule
from tidemark.model.core.offsets import TopicPartition
from tidemark.readers.checkpoint_tables import watermarks_table

SECOND = 1_000


@dataclass(frozen=True)
class Visit:
    """One record."""

    account: str
    amount: int
    at: datetime


@dataclass(frozen=True)
class Rule:
    """A row that is broadcast."""

    account: str
    most: int


TWO_SECONDS = Watermark(delay="2s", idle_after="60s")


def pipeline(watermark: Watermark | None = TWO_SECONDS, **more: Any) -> Pipeline:
    source = KafkaSource("payments", Visit, event_time="at", watermark=watermark)
    operators = [Fold("accounts", key_by="account", state=Account)]
    return Pipeline(name="bank", source=source, operators=operators, max_dead_letters=1.0, **more)


def visit(bank: BankPipeline, second: int, tp: TopicPartition = P0) -> None:
    """A record so many seconds before (or after) the clock's start."""
    when = at(START_MS + second * SECOND)
    bank.log.append(tp, json.dumps({"account": "a", "amount": 1, "at": when.isoformat()}).encode())


def clock(found: Checkpoint, name: str = "records") -> EventTimeClock:
    return found.sealed.facts.clocks[name]


def watermark(found: Checkpoint, name: str = "records") -> int | None:
    """In seconds after the clock's start."""
    ms = clock(found, name).watermark_ms
    return None if ms is None else (ms - START_MS) // SECOND


def lived(bank: BankPipeline | None = None) -> tuple[BankPipeline, Checkpoint]:
    """Two partitions, ten seconds apart."""
    made = bank or BankPipeline(pipeline())
    visit(made, -20)
    visit(made, -10, P1)
    return made, made.complete()


def test_the_slowest_partition_counts_minus_the_delay() -> None:
    bank, first = lived()
    assert watermark(first) == -22
    assert first.plan.clocks["records"].rule == WatermarkRule(delay_ms=2000, idle_after_ms=60_000, combine="min")
    visit(bank, -5, P1)
    assert watermark(bank.complete()) == -22
    visit(bank, -1)
    assert watermark(bank.complete()) == -7
    stored = bank.coordinator.checkpoint(3)
    assert stored.sealed.facts.clocks == next(bank.coordinator.checkpoints()).sealed.facts.clocks
    assert stored.plan.clocks["records"].before == bank.coordinator.checkpoint(2).sealed.facts.clocks["records"]


def test_answers_tables_and_the_gauge_have_the_watermarks() -> None:
    bank, first = lived()
    bank.clock.advance(61 * SECOND)
    second = bank.complete()
    told = [checkpoint_facts(c).source_watermarks["records"] for c in (first, second)]
    iso_mark = iso(START_MS - 22 * SECOND)
    assert told[0] == SourceWatermark(watermark=iso_mark, idle=False, delay=2000)
    assert told[1] == SourceWatermark(watermark=iso_mark, idle=True, delay=2000)
    rows = watermarks_table([first, second]).to_pylist()
    assert [(r["checkpoint"], r["source"], r["watermark"], r["idle"], r["delay_ms"]) for r in rows] == [
        (1, "records", at(START_MS - 22 * SECOND), False, 2000),
        (2, "records", at(START_MS - 22 * SECOND), True, 2000),
    ]
    gauge = METRICS["currentInputWatermark"]
    assert [gauge.of(standing(c)) for c in (first, second)] == [START_MS - 22 * SECOND, -1]


def standing(newest: Checkpoint) -> Standing:
    return Standing(
        pipeline="bank",
        tally=CheckpointCounts(completed=1, failed=0, in_progress=0, restarts=0),
        newest=newest,
        sealed_ms=None,
        restored_ms=None,
        failures_in_row=0,
        layers=(0, 0),
        deadline=DeadlineStatus(now_ms=0, since_ms=None, deadline_ms=None, stopped=False),
    )


def test_without_a_declaration_plans_and_manifests_say_nothing_of_clocks() -> None:
    bank, found = lived(BankPipeline(pipeline(None)))
    assert not found.sealed.facts.clocks and not found.plan.clocks
    assert not any(b'"clocks"' in body for body in bank.store.objects.values())


def test_an_idle_partition_holds_nothing_back_until_it_brings_a_record() -> None:
    bank, _ = lived()
    bank.clock.advance(59 * SECOND)
    visit(bank, 50, P1)
    assert watermark(bank.complete()) == -22
    bank.clock.advance(1 * SECOND)
    found = bank.complete()
    assert (watermark(found), clock(found).is_idle) == (48, False)
    bank.clock.advance(60 * SECOND)
    found = bank.complete()
    assert (watermark(found), clock(found).is_idle) == (48, True)
    visit(bank, 0)
    found = bank.complete()
    assert (watermark(found), clock(found).is_idle) == (48, False), "it never falls"


def test_a_partition_that_a_bound_cut_is_not_idle() -> None:
    bank, _ = lived(BankPipeline(pipeline()))
    bank.clock.advance(61 * SECOND)
    for n in range(4):
        bank.log.append(P0, json.dumps({"account": "a", "amount": 1, "at": at(START_MS + n).isoformat()}).encode())
        visit(bank, 60, P1)
    found = bank.complete(replace(ASK, max_records=2))
    assert set(found.plan.clocks["records"].cut) == {P0, P1}
    held = replace(ASK, run="")
    assert bank.complete(held).plan.clocks["records"].cut == ()


def test_a_partition_with_an_open_transaction_is_not_idle() -> None:
    bank, _ = lived()
    visit(bank, -8)
    bank.log.hold_stable_end(P0, 1)
    bank.clock.advance(61 * SECOND)
    visit(bank, 60, P1)
    found = bank.complete()
    assert (found.plan.clocks["records"].cut, found.plan.pending, watermark(found)) == ((P0,), {}, -22)
    bank.log.hold_stable_end(P0, None)
    assert watermark(bank.complete()) == -10


def test_times_ahead_of_logical_time_count_as_that() -> None:
    bank = BankPipeline(pipeline())
    visit(bank, 3_600)
    visit(bank, 7_200, P1)
    found = bank.complete()
    assert watermark(found) == -2
    assert found.sealed.facts.watermark_ms == START_MS


def test_records_that_cannot_be_decoded_and_those_of_broadcasts_move_nothing() -> None:
    rules = KafkaSource("rules", Rule)
    bank = BankPipeline(pipeline(broadcast=[Broadcast("rules", rules, key_by="account")]))
    bank.log.create("rules")
    bank.log.append(TopicPartition("rules", 0), b'{"account":"a","most":1}', timestamp_ms=START_MS)
    bank.log.append(P0, b"{")
    found = bank.complete()
    assert clock(found) == EventTimeClock()
    with pytest.raises(DeclarationError, match="rules: a broadcast state has no watermark"):
        Broadcast("rules", replace(rules, watermark=Watermark()), key_by="account")
    with pytest.raises(DeclarationError, match="watermark='5m' is not a watermark"):
        KafkaSource("rules", Rule, watermark="5m")  # type: ignore[arg-type]


def test_a_restore_goes_back_to_the_clocks_of_its_checkpoint() -> None:
    bank, first = lived()
    visit(bank, 0)
    visit(bank, 0, P1)
    assert watermark(bank.complete()) == -2
    restored(bank, checkpoint=first.id)
    bank.log.append(P0, b"{")
    found = bank.complete()
    assert found.plan.clocks["records"].before == first.sealed.facts.clocks["records"]
    assert watermark(found) == -2, "the same records are read again"


def test_a_repetition_takes_the_recorded_cuts_and_the_forks_own_clocks() -> None:
    bank, first = lived()
    for n in range(3):
        visit(bank, n)
        visit(bank, n + 30, P1)
    cut = bank.complete(replace(ASK, max_records=2))
    bank.clock.advance(100 * SECOND)
    rest = bank.complete()
    assert cut.plan.clocks["records"].cut and not rest.plan.clocks["records"].cut
    slower = replace(bank.pipeline, source=replace(bank.pipeline.sources["records"], watermark=Watermark(delay="9s")))
    found = repeat(bank, backfill(bank, first, replace(slower, sources={})))
    assert [c.plan.clocks["records"].cut for c in found] == [cut.plan.clocks["records"].cut, ()]
    assert found[0].plan.clocks["records"].before == first.sealed.facts.clocks["records"]
    assert [watermark(c) for c in found] == [w if w is None else w for w in (_less(cut, 7), _less(rest, 7))]


def _less(found: Checkpoint, seconds: int) -> int | None:
    """The watermark with so much more delay, but never below that of the first checkpoint."""
    held = watermark(found)
    return None if held is None else max(held - seconds, -22)


def test_a_repetition_of_a_pipeline_with_clocks_joins_nothing() -> None:
    bank, first = lived()
    for n in range(3):
        visit(bank, n)
        bank.complete()
    plans = [c.plan for c in list(bank.coordinator.checkpoints())[::-1][1:]]
    assert [len(s.plans) for s in steps(bank.pipeline, plans, 100)] == [1, 1, 1]
    assert [len(s.plans) for s in steps(pipeline(None), plans, 100)] == [3]


def test_a_fork_begins_with_the_clocks_of_its_checkpoint() -> None:
    bank, first = lived()
    bank.recovery.fork(RestorePoint(checkpoint=first), "mine")
    genesis = bank.coordinator.timelines.entry("mine", 1)
    assert isinstance(genesis, Genesis) and genesis.clocks == first.sealed.facts.clocks


def test_a_watermark_that_is_declared_later_begins_with_what_was_read() -> None:
    bank, _ = lived(BankPipeline(pipeline(None)))
    bank.pipeline = pipeline()
    visit(bank, -1, P1)
    found = bank.complete()
    assert watermark(found) == -22, "P0 is known, and not idle"
    assert clock(found).moved == {P0: START_MS, P1: START_MS}
    bank.pipeline = pipeline(None)
    assert not bank.complete().sealed.facts.clocks


def test_a_recreated_topic_has_no_part_in_what_the_old_one_had_seen() -> None:
    bank, _ = lived()
    bank.log.create("payments", 2)
    visit(bank, -15)
    found = bank.complete(replace(ASK, accept_loss=True))
    assert (clock(found).seen, watermark(found)) == ({P0: START_MS - 15 * SECOND}, -17)
    bank.log.create("payments", 2)
    found = bank.complete(replace(ASK, accept_loss=True))
    assert (clock(found).seen, watermark(found)) == ({}, -17)


def test_a_renamed_source_keeps_its_clock() -> None:
    bank, first = lived()
    source = bank.pipeline.sources["records"]
    operators = [Fold("accounts", key_by="account", state=Account, input="visits")]
    bank.pipeline = Pipeline(name="bank", sources={"visits": source}, operators=operators, max_dead_letters=1.0)
    visit(bank, -30)
    found = bank.complete()
    assert clock(found, "visits").seen == clock(first).seen
    assert watermark(found, "visits") == -22


def test_a_topic_that_another_source_takes_over_brings_what_was_seen_but_not_the_watermark() -> None:
    bank, _ = lived()
    bank.log.create("others")
    old = bank.pipeline.sources["records"]
    kept = replace(old, topics=frozenset({P1}))
    operators = [Fold("accounts", key_by="account", state=Account, input="records")]
    bank.pipeline = Pipeline(
        name="bank",
        sources={"records": kept, "others": replace(old, topics="others")},
        operators=operators,
        max_dead_letters=1.0,
    )
    found = bank.complete()
    assert (watermark(found), clock(found).seen) == (-12, {P1: START_MS - 10 * SECOND})
    assert clock(found, "others") == EventTimeClock()


def test_a_rule_may_change_at_any_time() -> None:
    bank, _ = lived()
    bank.pipeline = pipeline(Watermark(delay=timedelta(seconds=5)))
    assert bank.pipeline.fingerprint == pipeline().fingerprint
    assert watermark(bank.complete()) == -22, "it never falls"
    bank.pipeline = pipeline(Watermark(combine="max"))
    assert watermark(bank.complete()) == -10
