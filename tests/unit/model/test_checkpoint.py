"""From pending to completed: a snapshot is global, or it is none (E5); plans name everything."""

from dataclasses import replace

import pytest

from tests.support.bank import BankPipeline
from tidemark.errors import UsageError
from tidemark.model.checkpoint.codec import from_json, to_json
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import (
    Ack,
    Acknowledgement,
    BatchFacts,
    Checkpoint,
    PendingCheckpoint,
    UidCounts,
    Verdict,
)
from tidemark.model.checkpoint.plan import CheckpointPlan, Interval, Slot
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.offsets import OffsetRange, OffsetRanges, TopicPartition

FACTS = BatchFacts(records=0, watermark_ms=None, bytes=0)


def ack(uid: str, *, read: int = 0, applied: int = 0, dead_lettered: int = 0, filtered: int = 0) -> Ack:
    return Ack(
        uid=uid,
        handle=StateHandle(),
        dead_letters=StateHandle(),
        commits=(),
        keys=0,
        run_bytes=0,
        timings_ms={},
        read=read,
        applied=applied,
        dead_lettered=dead_lettered,
        filtered=filtered,
    )


def plan_of(*uids: str) -> CheckpointPlan:
    plan = BankPipeline().plan()
    schema = plan.schemas["accounts"]
    return replace(
        plan,
        handles=dict.fromkeys(uids, StateHandle()),
        dead_letters=dict.fromkeys(uids, StateHandle()),
        tables={uid: uid for uid in uids},
        schemas={uid: replace(schema, uid=uid) for uid in uids},
    )


def test_a_checkpoint_waits_for_every_operator() -> None:
    pending = PendingCheckpoint(plan_of("b", "a"))
    assert pending.acknowledge(ack("b")) is Acknowledgement.SUCCESS
    assert pending.missing == ["a"]
    with pytest.raises(UsageError, match="no ack of a"):
        pending.seal(attempt=1, facts=FACTS, verdict=Verdict(), timings_ms={})
    assert pending.acknowledge(ack("a")) is Acknowledgement.SUCCESS
    sealed = pending.seal(attempt=1, facts=FACTS, verdict=Verdict(), timings_ms={})
    assert [a.uid for a in sealed.acks] == ["b", "a"]


def test_a_second_ack_and_a_stranger_change_nothing() -> None:
    pending = PendingCheckpoint(plan_of("a"))
    pending.acknowledge(ack("a", read=1, applied=1))
    assert pending.acknowledge(ack("a")) is Acknowledgement.DUPLICATE
    assert pending.acknowledge(ack("z")) is Acknowledgement.UNKNOWN
    sealed = pending.seal(attempt=1, facts=FACTS, verdict=Verdict(), timings_ms={})
    assert [a.applied for a in sealed.acks] == [1]


def test_an_ack_adds_up() -> None:
    assert ack("a", read=3, applied=2, dead_lettered=1).read == 3
    assert ack("a", read=6, applied=2, dead_lettered=1, filtered=3).filtered == 3
    with pytest.raises(UsageError, match=r"read 3 \+ redriven 0 != applied 2 \+ filtered 0"):
        ack("a", read=3, applied=2)
    with pytest.raises(UsageError, match=r"applied 2 \+ filtered 2 \+ dead-lettered 0"):
        ack("a", read=3, applied=2, filtered=2)


def test_the_counts_of_a_batch_add_up_with_filtered_and_redriven_records() -> None:
    counts = UidCounts(applied=4, filtered=3, dead_lettered=1)
    assert counts.read == 8
    again = counts.with_redriven(applied=2, filtered=1, refused=1)
    assert (again.read, again.redriven, again.applied, again.filtered, again.dead_lettered) == (8, 4, 6, 4, 2)


def test_a_manifest_without_filtered_records_is_as_it_was() -> None:
    assert "filtered" not in to_json(ack("a", read=1, applied=1))
    some = ack("a", read=2, applied=1, filtered=1)
    assert to_json(some)["filtered"] == 1
    assert from_json(Ack, to_json(some), "ack") == some


def test_a_manifest_names_every_operator_in_any_order() -> None:
    pending = PendingCheckpoint(plan_of("b", "a"))
    for uid in ("a", "b"):
        pending.acknowledge(ack(uid))
    sealed = pending.seal(attempt=1, facts=FACTS, verdict=Verdict(), timings_ms={})
    made = Checkpoint(plan=plan_of("a", "b"), sealed=sealed, covered_until_ms=None)
    assert set(made.handles) == {"a", "b"}
    for acks in (sealed.acks[:1], (sealed.acks[0], sealed.acks[0]), (*sealed.acks, ack("z"))):
        with pytest.raises(UsageError, match="a manifest names every operator"):
            Checkpoint(plan=plan_of("a", "b"), sealed=replace(sealed, acks=acks), covered_until_ms=None)


def test_a_plan_names_every_operator_and_every_topic() -> None:
    plan = plan_of("a", "b")
    with pytest.raises(UsageError, match="a plan names every operator"):
        replace(plan, tables={"a": "a"})
    ranges = OffsetRanges({TopicPartition("other", 0): OffsetRange(0, 1)})
    with pytest.raises(UsageError, match="no topic id for .'other'"):
        replace(plan, ranges=ranges)


def test_names_for_people() -> None:
    assert plan_of("a").name == "chk-1"
    assert str(Slot(timeline="t1", sequence=4, k=2)) == "t1/4.2"
    with pytest.raises(UsageError, match="interval runs backwards"):
        Interval(start_ms=2, end_ms=1)


def test_which_reasons_count_and_which_abort() -> None:
    uncounted = {r.name for r in FailureReason if not r.counts}
    assert uncounted == {"MIN_PAUSE", "STOPPED", "DECLINED", "SUBSUMED", "CODE_CHANGED", "STATE_ERASED", "PROMOTED"}
    retried = {r.name for r in FailureReason if not r.aborts}
    assert retried == {
        *("BROKER_ERROR", "REGISTRY_UNAVAILABLE", "STORE_ERROR", "ENGINE_ERROR", "MIN_PAUSE"),
        *("STOPPED", "PUBLISH_FAILED", "RECORD_REFUSED", "SUBSUMED", "TASK_FAILURE"),
    }
    assert {r.name for r in FailureReason if r.waits} == {"RECORD_REFUSED"}
