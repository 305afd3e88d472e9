"""Each emitted record is sent by exactly one line of checkpoints (ADR 0022), case by case."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.coordinator.house import ASK, P0, P1, House, sourced
from tests.unit.coordinator.test_promotion import fork
from tests.unit.coordinator.test_recovery import Died, dying, three
from tests.unit.coordinator.test_restoring import plan, restored, rows, sent, telling
from tidemark import DeltaSink, KafkaSink, Process
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.job import CheckpointJob
from tidemark.coordinator.checkpoints.loop import delivered, is_live, undelivered
from tidemark.coordinator.plans.sink_inputs import SentRecords
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.retention.collect_roots import look
from tidemark.coordinator.retention.key_erasure import Eraser, ErasureRequest
from tidemark.coordinator.retention.sweep import Sweeper
from tidemark.declare.operators import Operator
from tidemark.declare.retention import Retention
from tidemark.model.checkpoint import codec
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Sealed
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.model.core import canonical
from tidemark.model.core.offsets import OffsetCoverage
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.ports import PlanRequest
from tidemark.testing.twin.key_files import MemoryKeyFiles
from tidemark.testing.twin.memory import MemoryCompute, MemorySender
from tidemark.testing.twin.table_files import MemoryTableFiles

OUTBOX = KafkaSink("seen", topic="out")
AT_ONCE = KafkaSink("seen", topic="out", guarantee="at_least_once")
LOSSY = PlanRequest(origin="test", accept_loss=True)


def kafka() -> House:
    """Three checkpoints of a pipeline with an outbox: offsets 0, 1 and 2."""
    house = telling(OUTBOX)
    three(house)
    return house


def declare(house: House, sink: DeltaSink | KafkaSink | None) -> None:
    """The author changes the sink."""
    (teller,) = house.pipeline.operators
    assert isinstance(teller, Process)
    changed: list[Operator] = [replace(teller, sink=sink)]
    house.pipeline = replace(house.pipeline, operators=changed)


def deliver(house: House, count: int | None = None) -> list[int]:
    """Sends what is due, or the first of it; returns the offsets."""
    found: list[int] = []
    for due in undelivered(house.coordinator)[:count]:
        for segment in due.table.handle:
            own = (f for f in house.tables.files_of(segment) if f.checkpoint == due.checkpoint.id)
            held = [row for f in own for row in house.tables.files[f"{segment.path}/{f.path}"]]
            found += [int(str(row["_offset"])) for row in held if due.is_due(row)]
        delivered(house.coordinator, due)
    return found


def recreate(house: House, count: int) -> None:
    """The topic is deleted and made again, with some records."""
    house.log.create("payments", 2)
    house.send(count)


def promote(house: House, name: str = "fix", **asked: bool) -> None:
    """A fork becomes live."""
    assert getattr(house.promotion.promote(name, **asked), "won", False)


def sending(house: House) -> list[int]:
    """Attempts send from now on; the list is of the offsets that they have sent."""
    sender, offsets = MemorySender(), list[int]()

    def execute(attempt: OwnedAttempt) -> Sealed:
        before = len(sender.arrived.get("out", ()))
        job = CheckpointJob(
            compute=MemoryCompute(pipeline=house.pipeline, log=house.log, tables=house.tables),
            tables=house.tables,
            clock=house.clock,
            write_ids=house.ids,
            listener=lambda step, moment: None,
            max_dead_letters=1.0,
            sender=sender,
        )
        done = job.execute(attempt)
        offsets.extend(int(m.id.rsplit("-", 2)[1]) for m in sender.arrived.get("out", ())[before:])
        return done

    house.execute = execute  # type: ignore[method-assign]
    return offsets


def sweep(house: House) -> None:
    """Lets go all but the newest checkpoint."""
    files = MemoryTableFiles(house.tables)
    Sweeper(coordinator=house.coordinator, files=files, rule=Retention.keep_last(1), grace_ms=0).sweep()


# A topic that was recreated


def test_a_sink_that_was_kept_gets_the_rows_of_a_recreated_topic() -> None:
    house = telling(DeltaSink("seen"))
    three(house)
    restored(house, checkpoint=1)
    recreate(house, 3)
    assert len(rows(house, house.complete(LOSSY))) == 6


def test_an_outbox_sends_the_rows_of_a_recreated_topic_after_a_promote() -> None:
    house = kafka()
    deliver(house)
    fork(house, house.coordinator.checkpoint(3)).run_once(ASK)
    promote(house)
    recreate(house, 2)
    house.complete(LOSSY)
    assert deliver(house) == [0, 1]


def test_an_erasure_blocks_nothing_of_a_recreated_topic() -> None:
    house = House()
    house.send(6, account="ann")
    house.complete()
    asked = ErasureRequest(uid="accounts", key=("ann",), owner="test")
    Eraser(
        coordinator=house.coordinator,
        tables=house.tables,
        files=MemoryKeyFiles(house.tables),
        logs=MemoryTableFiles(house.tables),
        request=asked,
        key=("ann",),
    ).erase()
    house.log.create("payments", 2)
    house.send(2, account="ann")
    house.complete(LOSSY)
    assert house.state("accounts") == {("ann",): (2, 2)}


def test_a_dry_run_counts_what_is_read_again_by_topic_id() -> None:
    house = kafka()
    deliver(house)
    recreate(house, 2)
    house.complete(LOSSY)
    deliver(house)
    found = plan(house, checkpoint=3, restore_sinks=True)
    assert {tp: (r.start, r.end) for tp, r in found.read_again.items()} == {P0: (0, 2)}
    assert found.sent_again == ("out",)
    restored(house, checkpoint=3, restore_sinks=True)
    house.complete(LOSSY)
    assert deliver(house) == [0, 1]


def test_what_cannot_be_read_again_still_counts_as_sent_where_sinks_go_back() -> None:
    house = kafka()
    made = [*house.coordinator.checkpoints()][::-1]
    fork(house, made[0]).run_once(ASK)
    assert deliver(house) == [0, 1, 2]
    house.log.create("payments", 2)
    assert plan(house, checkpoint=1, restore_sinks=True).sent_again == ()
    restored(house, checkpoint=1, restore_sinks=True)
    promote(house, send=True)
    assert deliver(house) == []


def test_a_dry_run_says_what_is_sent_again_of_partitions_that_are_parked_too() -> None:
    house = telling(OUTBOX)
    whole = house.pipeline
    house.send(1)
    house.complete()
    house.send(2, P1)
    house.complete()
    assert deliver(house) == [0, 0, 1]
    house.pipeline = replace(whole, source=sourced(topics=frozenset({P0})).source)
    assert plan(house, checkpoint=1, restore_sinks=True).sent_again == ("out",)
    restored(house, checkpoint=1, restore_sinks=True)
    house.complete()
    house.pipeline = whole
    house.complete()
    assert deliver(house) == [0, 1]


# Restores and promotes


def test_what_a_promote_was_asked_to_send_is_sent_by_the_timeline_that_is_restored_first() -> None:
    house = telling(OUTBOX)
    house.send(1)
    first = house.complete()
    house.send(2)
    ahead = fork(house, first)
    house.complete(replace(ASK, max_records=1))
    house.send(5)
    ahead.run_once(ASK)
    house.complete(replace(ASK, max_records=1))
    assert deliver(house) == [0, 1, 2]
    promote(house, send=True)
    assert "are not sent again" in plan(house, checkpoint=1).sinks["seen"]
    restored(house, checkpoint=1)
    house.complete()
    assert deliver(house) == [3, 4, 5, 6, 7]


def test_what_was_sent_is_not_sent_again_by_a_restore_of_a_restore() -> None:
    house = kafka()
    assert deliver(house) == [0, 1, 2]
    restored(house, checkpoint=1)
    house.send(1)
    house.complete(replace(ASK, max_records=1))
    house.complete()
    restored(house, checkpoint=1)
    house.complete()
    assert deliver(house) == [3]


def test_a_restore_to_a_checkpoint_of_a_fork_sends_only_what_nobody_has_sent() -> None:
    house = kafka()
    (of_fork,) = fork(house, house.coordinator.checkpoint(1)).run_once(ASK).checkpoints
    assert deliver(house) == [0, 1, 2]
    assert plan(house, checkpoint=of_fork.id).due == {}
    house.send(1)
    (ahead,) = fork(house, of_fork, "more").run_once(ASK).checkpoints
    found = plan(house, checkpoint=ahead.id)
    assert found.due == {"seen": (ahead,)}
    assert f"rows of {ahead.plan.name} (timeline more) that no timeline has sent are sent" in found.sinks["seen"]
    restored(house, checkpoint=ahead.id)
    assert deliver(house) == [3]


def test_a_fork_that_is_promoted_behind_the_live_timeline_skips_what_that_had_sent() -> None:
    house = kafka()
    fork(house, house.coordinator.checkpoint(1))
    assert deliver(house) == [0, 1, 2]
    promote(house, discard=True)
    house.send(1)
    house.complete()
    assert deliver(house) == [3]


def test_a_promote_withholds_what_the_fork_had_emitted_that_its_fork_began_on() -> None:
    for asked, wanted in ((False, []), (True, [1, 2])):
        house = kafka()
        assert deliver(house, 1) == [0]
        (of_fork,) = fork(house, house.coordinator.checkpoint(1)).run_once(ASK).checkpoints
        fork(house, of_fork, "of-fork")
        promote(house, "of-fork", send=asked)
        assert sent(house) == wanted
        house.send(1)
        house.complete()
        assert deliver(house) == [*wanted, 3]


def test_a_promote_withholds_nothing_of_the_checkpoints_that_both_lines_have() -> None:
    house = kafka()
    assert deliver(house, 1) == [0]
    fork(house, house.coordinator.checkpoint(3))
    promote(house)
    assert deliver(house) == [1, 2]


def test_a_promote_withholds_what_the_fork_read_before_the_topic_was_recreated() -> None:
    house = kafka()
    assert deliver(house, 1) == [0]
    ahead = fork(house, house.coordinator.checkpoint(1))
    ahead.run_once(ASK)
    recreate(house, 1)
    ahead.run_once(LOSSY)
    promote(house, discard=True)
    assert deliver(house) == []


def test_a_delivery_that_ended_while_a_restore_began_is_seen() -> None:
    house = kafka()
    assert deliver(house, 1) == [0]
    asked = RestoreRequest(checkpoint=1)
    with pytest.raises(Died):
        dying(house, "closing", "before").restore(asked.beginning(house.coordinator))
    assert deliver(house) == [1, 2]
    restored(house, checkpoint=1)
    house.send(1)
    house.complete()
    assert deliver(house) == [3]


@pytest.mark.parametrize("as_restore", [True, False])
def test_a_delivery_that_ends_after_its_timeline_was_closed_is_seen(as_restore: bool) -> None:
    house = kafka()
    assert deliver(house, 1) == [0]
    under_way, *later = undelivered(house.coordinator)
    if as_restore:
        restored(house, checkpoint=1)
    else:
        fork(house, house.coordinator.checkpoint(1)).run_once(ASK)
        promote(house, send=True)
    assert not any(is_live(house.coordinator, due) for due in later)
    delivered(house.coordinator, under_way)
    if as_restore:
        house.complete()
    assert deliver(house) == [2]


def test_what_a_sink_sent_that_nobody_declares_is_known_two_timelines_later() -> None:
    table = DeltaSink("table")
    house = telling(table)
    house.send(1)
    first = house.complete()
    declare(house, OUTBOX)
    house.send(2)
    house.complete()
    assert deliver(house) == [1, 2]
    declare(house, table)
    fork(house, first, "without").run_once(ASK)
    promote(house, "without")
    restored(house, checkpoint=1)
    restored(house, checkpoint=1, request="again")
    declare(house, OUTBOX)
    house.complete()
    assert deliver(house) == []


# Sinks that change


def test_what_waits_is_sent_and_pinned_although_its_sink_was_taken_out() -> None:
    house = kafka()
    assert deliver(house, 1) == [0]
    declare(house, None)
    house.send(1)
    house.complete()
    kept = look(house.coordinator, Retention.keep_last(1)).reasons
    assert sorted(number for number, why in kept.items() if why) == [2, 3, 4]
    sweep(house)
    assert deliver(house) == [1, 2]
    declare(house, OUTBOX)
    house.send(1)
    house.complete()
    assert deliver(house) == [4], "what was read while it was out was never emitted"


def test_rows_of_a_sink_that_is_taken_out_twice_are_sent() -> None:
    house = kafka()
    for sink in (None, OUTBOX, None):
        declare(house, sink)
        house.complete()
    assert deliver(house) == [0, 1, 2]


def test_sinks_that_were_added_since_stay_and_are_told_of_where_they_go_back() -> None:
    house = telling(DeltaSink("table"))
    house.send(1)
    house.complete()
    declare(house, OUTBOX)
    house.send(2)
    house.complete()
    assert deliver(house) == [1, 2]
    assert plan(house, checkpoint=1).sinks["seen"] == "records sent to topic out stay, and are not sent again"
    back = plan(house, checkpoint=1, restore_sinks=True)
    assert back.sinks["seen"].endswith("are sent again, under other ids")
    assert back.sent_again == ("out",)
    restored(house, checkpoint=1)
    house.complete()
    assert deliver(house) == []
    restored(house, checkpoint=1, restore_sinks=True)
    house.complete()
    assert deliver(house) == [1, 2]


def test_a_sink_that_sends_at_once_leaves_its_rows_on_a_fork_where_a_promote_finds_them() -> None:
    for asked, wanted in ((False, []), (True, [1, 2])):
        house = telling(AT_ONCE)
        at_once = sending(house)
        house.send(1)
        first = house.complete()
        house.send(2)
        fork(house, first).run_once(ASK)
        assert at_once == [0]
        promote(house, send=asked)
        assert deliver(house) == wanted
        house.send(1)
        house.complete()
        assert at_once == [0, 3]
        assert deliver(house) == []


def test_a_plan_of_a_fork_is_made_again_once_the_fork_is_live() -> None:
    house = telling(AT_ONCE)
    at_once = sending(house)
    made = three(house)
    fork(house, made[2])
    house.send(2)
    house.coordinator.trigger(house.pipeline, ASK, "fix")
    promote(house)
    last = house.complete()
    assert str(last.plan.slot) == "fix/2.2"
    abort = house.coordinator.objects.abort(replace(last.plan.slot, k=1))
    assert abort is not None
    assert abort.failure.reason is FailureReason.PROMOTED
    assert at_once == [0, 1, 2, 3, 4]


def test_a_sealed_plan_of_a_fork_is_sent_from_the_outbox_that_it_wrote() -> None:
    house = telling(AT_ONCE)
    at_once = sending(house)
    made = three(house)
    fork(house, made[2])
    house.send(2)
    found = house.coordinator.trigger(house.pipeline, ASK, "fix")
    owned = house.coordinator.begin(found.plan)  # type: ignore[union-attr]
    assert isinstance(owned, OwnedAttempt)
    house.execute(owned)
    promote(house)
    house.send(1)
    house.complete()
    house.complete()
    assert deliver(house) == [3, 4]
    assert at_once == [0, 1, 2, 5]


def test_rows_that_wait_are_sent_although_the_sink_sends_at_once_by_now() -> None:
    house = kafka()
    declare(house, AT_ONCE)
    at_once = sending(house)
    house.send(1)
    house.complete()
    assert at_once == [3]
    assert deliver(house) == [0, 1, 2]
    restored(house, checkpoint=1)
    declare(house, OUTBOX)
    house.complete()
    assert deliver(house) == []


# Retention


def test_rows_that_were_let_go_are_told_of_and_hold_up_nothing() -> None:
    house = kafka()
    made = [*house.coordinator.checkpoints()][::-1]
    assert deliver(house, 1) == [0]
    house.savepoints.create(SavepointRequest(name="sp", owner="o", origin="test", checkpoint=3))
    restored(house, checkpoint=1)
    house.complete()
    sweep(house)
    found = plan(house, savepoint="sp")
    assert (found.due, found.gone) == ({"seen": (made[2],)}, {"seen": (made[1],)})
    assert "rows of chk-2 (timeline t1) were never sent, and retention has released them" in found.sinks["seen"]
    restored(house, savepoint="sp")
    house.send(1)
    house.complete()
    assert deliver(house) == [2, 3]


def test_what_a_fork_would_send_is_pinned_on_the_closed_timeline_that_it_began_on() -> None:
    house = kafka()
    assert deliver(house, 1) == [0]
    fork(house, house.coordinator.checkpoint(3))
    restored(house, checkpoint=1)
    house.complete(replace(ASK, max_records=1))
    sweep(house)
    promote(house, send=True)
    assert deliver(house) == [1, 2]


# Objects of 0.1

LATER = {
    "manifest": ("covered", "outboxes"),
    "plan": ("covered", "outboxes"),
    "genesis": ("covered", "outboxes", "keeps_sinks", "sinks_of", "sent"),
    "closing": ("delivered", "withheld"),
    "delivery": ("sent",),
}
"""Fields that 0.1 did not write, by kind of object."""


def as_of_0_1(house: House, **written: object) -> None:
    """Takes the later fields out of all objects; `written` is what 0.1 wrote in their place, by kind."""
    for key, raw in house.store.objects.items():
        found = json.loads(raw) if key.endswith(".json") else {"kind": "text"}
        if found["kind"] in LATER:
            body = _without(found["body"], LATER[found["kind"]])
            if found["kind"] == "genesis" and "emitted_until" in written:
                for table in body["sinks"].values():
                    table["emitted_until"] = written["emitted_until"]
            if found["kind"] == "closing" and "sent" in written:
                body["sent"] = written["sent"]
            house.store.objects[key] = canonical.encode(found["kind"], body)


def _without(body: object, names: tuple[str, ...]) -> Any:
    if isinstance(body, dict):
        return {name: _without(value, names) for name, value in body.items() if name not in names}
    return [_without(value, names) for value in body] if isinstance(body, list) else body


def test_a_line_of_0_1_is_restored_without_sending_or_writing_anything_twice() -> None:
    for sink in (OUTBOX, DeltaSink("seen")):
        house = telling(sink)
        three(house)
        deliver(house)
        as_of_0_1(house)
        restored(house, checkpoint=1)
        house.send(1)
        last = house.complete()
        if isinstance(sink, KafkaSink):
            assert deliver(house) == [3]
        else:
            assert rows(house, last) == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_a_delivery_of_0_1_says_that_everything_up_to_it_was_sent() -> None:
    house = kafka()
    assert deliver(house, 2) == [0, 1]
    as_of_0_1(house)
    assert SentRecords(house.coordinator.timelines).of("t1")["seen"].ends({"payments": "payments#1"}) == {P0: 2}
    assert deliver(house) == [2]


@pytest.mark.parametrize("sink", [OUTBOX, DeltaSink("seen"), AT_ONCE])
def test_a_restore_of_0_1_skips_what_is_below_its_offsets(sink: DeltaSink | KafkaSink) -> None:
    house = telling(sink)
    at_once = sending(house)
    three(house)
    deliver(house)
    restored(house, checkpoint=1)
    as_of_0_1(house, emitted_until={"payments-0": 3})
    at_once.clear()
    house.send(1)
    last = house.complete()
    if sink is OUTBOX:
        assert deliver(house) == [3]
    elif sink is AT_ONCE:
        assert at_once == [3]
    else:
        assert [offset for offset, _ in rows(house, last)] == [0, 1, 2, 3]


@pytest.mark.parametrize(("bound", "wanted"), [(4, []), (2, [2, 3])])
def test_a_promote_of_0_1_sends_what_lies_beyond_its_offsets(bound: int, wanted: list[int]) -> None:
    house = kafka()
    assert deliver(house, 2) == [0, 1]
    house.send(1)
    fork(house, house.coordinator.checkpoint(1)).run_once(ASK)
    promote(house, send=bound == 2)
    as_of_0_1(house, sent={"seen": {"payments-0": bound}})
    assert deliver(house) == wanted
    house.send(1)
    house.complete()
    assert deliver(house) == [4]


def test_a_sink_that_covers_nothing_is_none_of_0_1() -> None:
    table = SinkTable(name="seen", kind="kafka", path="x", columns=())
    for covered in (None, OffsetCoverage()):
        written = codec.to_json(replace(table, covered=covered))
        assert codec.from_json(SinkTable, written, "here").covered == covered
