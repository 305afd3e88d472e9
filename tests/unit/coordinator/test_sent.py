"""Each emitted record is sent by exactly one line of checkpoints (ADR 0022), case by case."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.bank import ASK, P0, P1, BankPipeline, sourced
from tests.support.crashes import Killed
from tests.unit.coordinator.test_promotion import fork
from tests.unit.coordinator.test_recovery import dying, three
from tests.unit.coordinator.test_restoring import plan, restored, rows, sent, telling
from tidemark import DeltaSink, KafkaSink, Process
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.job import CheckpointJob
from tidemark.coordinator.checkpoints.loop import is_live, list_undelivered, record_delivery
from tidemark.coordinator.plans.sink_inputs import SentRecords
from tidemark.coordinator.recovery.backfill import Pair
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.retention.key_erasure import Eraser, ErasureRequest
from tidemark.coordinator.retention.root_set import collect_roots
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
from tidemark.operations.backfill import comparable_sinks
from tidemark.ports import PlanRequest
from tidemark.testing.twin.key_files import MemoryKeyFiles
from tidemark.testing.twin.memory import MemoryCompute, MemorySender
from tidemark.testing.twin.table_files import MemoryTableFiles

OUTBOX = KafkaSink("seen", topic="out")
AT_ONCE = KafkaSink("seen", topic="out", guarantee="at_least_once")
LOSSY = PlanRequest(origin="test", accept_loss=True)


def kafka() -> BankPipeline:
    """Three checkpoints of a pipeline with an outbox: offsets 0, 1 and 2."""
    bank = telling(OUTBOX)
    three(bank)
    return bank


def declare(bank: BankPipeline, sink: DeltaSink | KafkaSink | None) -> None:
    """The author changes the sink."""
    (teller,) = bank.pipeline.operators
    assert isinstance(teller, Process)
    changed: list[Operator] = [replace(teller, sink=sink)]
    bank.pipeline = replace(bank.pipeline, operators=changed)


def deliver(bank: BankPipeline, count: int | None = None) -> list[int]:
    """Sends what is due, or the first of it; returns the offsets."""
    found: list[int] = []
    for due in list_undelivered(bank.coordinator)[:count]:
        for segment in due.table.handle:
            own = (f for f in bank.tables.files_of(segment) if f.checkpoint == due.checkpoint.id)
            held = [row for f in own for row in bank.tables.files[f"{segment.path}/{f.path}"]]
            found += [int(str(row["_offset"])) for row in held if due.is_due(row)]
        record_delivery(bank.coordinator, due)
    return found


def recreate(bank: BankPipeline, count: int) -> None:
    """The topic is deleted and made again, with some records."""
    bank.log.create("payments", 2)
    bank.send(count)


def promote(bank: BankPipeline, name: str = "fix", **asked: bool) -> None:
    """A fork becomes live."""
    assert getattr(bank.promotion.promote(name, **asked), "won", False)


def sending(bank: BankPipeline) -> list[int]:
    """Attempts send from now on; the list is of the offsets that they have sent."""
    sender, offsets = MemorySender(), list[int]()

    def execute(attempt: OwnedAttempt) -> Sealed:
        before = len(sender.arrived.get("out", ()))
        job = CheckpointJob(
            compute=MemoryCompute(pipeline=bank.pipeline, log=bank.log, tables=bank.tables),
            tables=bank.tables,
            clock=bank.clock,
            write_ids=bank.ids,
            listener=lambda step, moment: None,
            max_dead_letters=1.0,
            sender=sender,
        )
        done = job.execute(attempt)
        offsets.extend(int(m.id.rsplit("-", 2)[1]) for m in sender.arrived.get("out", ())[before:])
        return done

    bank.execute = execute  # type: ignore[method-assign]
    return offsets


def sweep(bank: BankPipeline) -> None:
    """Lets go all but the newest checkpoint."""
    files = MemoryTableFiles(bank.tables)
    Sweeper(coordinator=bank.coordinator, files=files, rule=Retention.keep_last(1), grace_ms=0).sweep()


# A topic that was recreated


def test_a_sink_that_was_kept_gets_the_rows_of_a_recreated_topic() -> None:
    bank = telling(DeltaSink("seen"))
    three(bank)
    restored(bank, checkpoint=1)
    recreate(bank, 3)
    assert len(rows(bank, bank.complete(LOSSY))) == 6


def test_an_outbox_sends_the_rows_of_a_recreated_topic_after_a_promote() -> None:
    bank = kafka()
    deliver(bank)
    fork(bank, bank.coordinator.checkpoint(3)).run_once(ASK)
    promote(bank)
    recreate(bank, 2)
    bank.complete(LOSSY)
    assert deliver(bank) == [0, 1]


def test_an_erasure_blocks_nothing_of_a_recreated_topic() -> None:
    bank = BankPipeline()
    bank.send(6, account="ann")
    bank.complete()
    asked = ErasureRequest(uid="accounts", key=("ann",), owner="test")
    Eraser(
        coordinator=bank.coordinator,
        tables=bank.tables,
        files=MemoryKeyFiles(bank.tables),
        logs=MemoryTableFiles(bank.tables),
        request=asked,
        key=("ann",),
    ).erase()
    bank.log.create("payments", 2)
    bank.send(2, account="ann")
    bank.complete(LOSSY)
    assert bank.state("accounts") == {("ann",): (2, 2)}


def test_a_dry_run_counts_what_is_read_again_by_topic_id() -> None:
    bank = kafka()
    deliver(bank)
    recreate(bank, 2)
    bank.complete(LOSSY)
    deliver(bank)
    found = plan(bank, checkpoint=3, restore_sinks=True)
    assert {tp: (r.start, r.end) for tp, r in found.read_again.items()} == {P0: (0, 2)}
    assert found.sent_again == ("out",)
    restored(bank, checkpoint=3, restore_sinks=True)
    bank.complete(LOSSY)
    assert deliver(bank) == [0, 1]


def test_what_cannot_be_read_again_still_counts_as_sent_where_sinks_go_back() -> None:
    bank = kafka()
    made = [*bank.coordinator.checkpoints()][::-1]
    fork(bank, made[0]).run_once(ASK)
    assert deliver(bank) == [0, 1, 2]
    bank.log.create("payments", 2)
    assert plan(bank, checkpoint=1, restore_sinks=True).sent_again == ()
    restored(bank, checkpoint=1, restore_sinks=True)
    promote(bank, send=True)
    assert deliver(bank) == []


def test_a_dry_run_says_what_is_sent_again_of_partitions_that_are_parked_too() -> None:
    bank = telling(OUTBOX)
    whole = bank.pipeline
    bank.send(1)
    bank.complete()
    bank.send(2, P1)
    bank.complete()
    assert deliver(bank) == [0, 0, 1]
    bank.pipeline = replace(whole, source=sourced(topics=frozenset({P0})).source)
    assert plan(bank, checkpoint=1, restore_sinks=True).sent_again == ("out",)
    restored(bank, checkpoint=1, restore_sinks=True)
    bank.complete()
    bank.pipeline = whole
    bank.complete()
    assert deliver(bank) == [0, 1]


# Restores and promotes


def test_what_a_promote_was_asked_to_send_is_sent_by_the_timeline_that_is_restored_first() -> None:
    bank = telling(OUTBOX)
    bank.send(1)
    first = bank.complete()
    bank.send(2)
    ahead = fork(bank, first)
    bank.complete(replace(ASK, max_records=1))
    bank.send(5)
    ahead.run_once(ASK)
    bank.complete(replace(ASK, max_records=1))
    assert deliver(bank) == [0, 1, 2]
    promote(bank, send=True)
    assert "are not sent again" in plan(bank, checkpoint=1).sinks["seen"]
    restored(bank, checkpoint=1)
    bank.complete()
    assert deliver(bank) == [3, 4, 5, 6, 7]


def test_what_was_sent_is_not_sent_again_by_a_restore_of_a_restore() -> None:
    bank = kafka()
    assert deliver(bank) == [0, 1, 2]
    restored(bank, checkpoint=1)
    bank.send(1)
    bank.complete(replace(ASK, max_records=1))
    bank.complete()
    restored(bank, checkpoint=1)
    bank.complete()
    assert deliver(bank) == [3]


def test_a_restore_to_a_checkpoint_of_a_fork_sends_only_what_nobody_has_sent() -> None:
    bank = kafka()
    (of_fork,) = fork(bank, bank.coordinator.checkpoint(1)).run_once(ASK).checkpoints
    assert deliver(bank) == [0, 1, 2]
    assert plan(bank, checkpoint=of_fork.id).due == {}
    bank.send(1)
    (ahead,) = fork(bank, of_fork, "more").run_once(ASK).checkpoints
    found = plan(bank, checkpoint=ahead.id)
    assert found.due == {"seen": (ahead,)}
    assert f"rows of {ahead.plan.name} (timeline more) that no timeline has sent are sent" in found.sinks["seen"]
    restored(bank, checkpoint=ahead.id)
    assert deliver(bank) == [3]


def test_a_fork_that_is_promoted_behind_the_live_timeline_skips_what_that_had_sent() -> None:
    bank = kafka()
    fork(bank, bank.coordinator.checkpoint(1))
    assert deliver(bank) == [0, 1, 2]
    promote(bank, discard=True)
    bank.send(1)
    bank.complete()
    assert deliver(bank) == [3]


def test_a_promote_withholds_what_the_fork_had_emitted_that_its_fork_began_on() -> None:
    for asked, wanted in ((False, []), (True, [1, 2])):
        bank = kafka()
        assert deliver(bank, 1) == [0]
        (of_fork,) = fork(bank, bank.coordinator.checkpoint(1)).run_once(ASK).checkpoints
        fork(bank, of_fork, "of-fork")
        promote(bank, "of-fork", send=asked)
        assert sent(bank) == wanted
        bank.send(1)
        bank.complete()
        assert deliver(bank) == [*wanted, 3]


def test_a_promote_withholds_nothing_of_the_checkpoints_that_both_lines_have() -> None:
    bank = kafka()
    assert deliver(bank, 1) == [0]
    fork(bank, bank.coordinator.checkpoint(3))
    promote(bank)
    assert deliver(bank) == [1, 2]


def test_a_promote_withholds_what_the_fork_read_before_the_topic_was_recreated() -> None:
    bank = kafka()
    assert deliver(bank, 1) == [0]
    ahead = fork(bank, bank.coordinator.checkpoint(1))
    ahead.run_once(ASK)
    recreate(bank, 1)
    ahead.run_once(LOSSY)
    promote(bank, discard=True)
    assert deliver(bank) == []


def test_a_delivery_that_ended_while_a_restore_began_is_seen() -> None:
    bank = kafka()
    assert deliver(bank, 1) == [0]
    asked = RestoreRequest(checkpoint=1)
    with pytest.raises(Killed):
        dying(bank, "closing", "before").restore(asked.find_restore_point(bank.coordinator))
    assert deliver(bank) == [1, 2]
    restored(bank, checkpoint=1)
    bank.send(1)
    bank.complete()
    assert deliver(bank) == [3]


@pytest.mark.parametrize("as_restore", [True, False])
def test_a_delivery_that_ends_after_its_timeline_was_closed_is_seen(as_restore: bool) -> None:
    bank = kafka()
    assert deliver(bank, 1) == [0]
    under_way, *later = list_undelivered(bank.coordinator)
    if as_restore:
        restored(bank, checkpoint=1)
    else:
        fork(bank, bank.coordinator.checkpoint(1)).run_once(ASK)
        promote(bank, send=True)
    assert not any(is_live(bank.coordinator, due) for due in later)
    record_delivery(bank.coordinator, under_way)
    if as_restore:
        bank.complete()
    assert deliver(bank) == [2]


def test_what_a_sink_sent_that_nobody_declares_is_known_two_timelines_later() -> None:
    table = DeltaSink("table")
    bank = telling(table)
    bank.send(1)
    first = bank.complete()
    declare(bank, OUTBOX)
    bank.send(2)
    bank.complete()
    assert deliver(bank) == [1, 2]
    declare(bank, table)
    fork(bank, first, "without").run_once(ASK)
    promote(bank, "without")
    restored(bank, checkpoint=1)
    restored(bank, checkpoint=1, request="again")
    declare(bank, OUTBOX)
    bank.complete()
    assert deliver(bank) == []


# Sinks that change


def test_what_waits_is_sent_and_pinned_although_its_sink_was_taken_out() -> None:
    bank = kafka()
    assert deliver(bank, 1) == [0]
    declare(bank, None)
    bank.send(1)
    bank.complete()
    kept = collect_roots(bank.coordinator, Retention.keep_last(1)).reasons
    assert sorted(number for number, why in kept.items() if why) == [2, 3, 4]
    sweep(bank)
    assert deliver(bank) == [1, 2]
    declare(bank, OUTBOX)
    bank.send(1)
    bank.complete()
    assert deliver(bank) == [4], "what was read while it was out was never emitted"


def test_rows_of_a_sink_that_is_taken_out_twice_are_sent() -> None:
    bank = kafka()
    for sink in (None, OUTBOX, None):
        declare(bank, sink)
        bank.complete()
    assert deliver(bank) == [0, 1, 2]


def test_sinks_that_were_added_since_stay_and_are_told_of_where_they_go_back() -> None:
    bank = telling(DeltaSink("table"))
    bank.send(1)
    bank.complete()
    declare(bank, OUTBOX)
    bank.send(2)
    bank.complete()
    assert deliver(bank) == [1, 2]
    assert plan(bank, checkpoint=1).sinks["seen"] == "records sent to topic out stay, and are not sent again"
    back = plan(bank, checkpoint=1, restore_sinks=True)
    assert back.sinks["seen"].endswith("are sent again, under other ids")
    assert back.sent_again == ("out",)
    restored(bank, checkpoint=1)
    bank.complete()
    assert deliver(bank) == []
    restored(bank, checkpoint=1, restore_sinks=True)
    bank.complete()
    assert deliver(bank) == [1, 2]


def test_a_sink_that_sends_at_once_leaves_its_rows_on_a_fork_where_a_promote_finds_them() -> None:
    for asked, wanted in ((False, []), (True, [1, 2])):
        bank = telling(AT_ONCE)
        at_once = sending(bank)
        bank.send(1)
        first = bank.complete()
        bank.send(2)
        fork(bank, first).run_once(ASK)
        assert at_once == [0]
        promote(bank, send=asked)
        assert deliver(bank) == wanted
        bank.send(1)
        bank.complete()
        assert at_once == [0, 3]
        assert deliver(bank) == []


def test_a_plan_of_a_fork_is_made_again_once_the_fork_is_live() -> None:
    bank = telling(AT_ONCE)
    at_once = sending(bank)
    made = three(bank)
    fork(bank, made[2])
    bank.send(2)
    bank.coordinator.trigger(bank.pipeline, ASK, "fix")
    promote(bank)
    last = bank.complete()
    assert str(last.plan.slot) == "fix/2.2"
    abort = bank.coordinator.objects.abort(replace(last.plan.slot, k=1))
    assert abort is not None
    assert abort.failure.reason is FailureReason.PROMOTED
    assert at_once == [0, 1, 2, 3, 4]


def test_a_sealed_plan_of_a_fork_is_sent_from_the_outbox_that_it_wrote() -> None:
    bank = telling(AT_ONCE)
    at_once = sending(bank)
    made = three(bank)
    fork(bank, made[2])
    bank.send(2)
    found = bank.coordinator.trigger(bank.pipeline, ASK, "fix")
    owned = bank.coordinator.begin(found.plan)  # type: ignore[union-attr]
    assert isinstance(owned, OwnedAttempt)
    bank.execute(owned)
    promote(bank)
    bank.send(1)
    bank.complete()
    bank.complete()
    assert deliver(bank) == [3, 4]
    assert at_once == [0, 1, 2, 5]


def test_rows_that_wait_are_sent_although_the_sink_sends_at_once_by_now() -> None:
    bank = kafka()
    declare(bank, AT_ONCE)
    at_once = sending(bank)
    bank.send(1)
    bank.complete()
    assert at_once == [3]
    assert deliver(bank) == [0, 1, 2]
    restored(bank, checkpoint=1)
    declare(bank, OUTBOX)
    bank.complete()
    assert deliver(bank) == []


# Retention


def test_rows_that_were_let_go_are_told_of_and_hold_up_nothing() -> None:
    bank = kafka()
    made = [*bank.coordinator.checkpoints()][::-1]
    assert deliver(bank, 1) == [0]
    bank.savepoints.create(SavepointRequest(name="sp", owner="o", origin="test", checkpoint=3))
    restored(bank, checkpoint=1)
    bank.complete()
    sweep(bank)
    found = plan(bank, savepoint="sp")
    assert (found.due, found.gone) == ({"seen": (made[2],)}, {"seen": (made[1],)})
    assert "rows of chk-2 (timeline t1) were never sent, and retention has released them" in found.sinks["seen"]
    restored(bank, savepoint="sp")
    bank.send(1)
    bank.complete()
    assert deliver(bank) == [2, 3]


def test_what_a_fork_would_send_is_pinned_on_the_closed_timeline_that_it_began_on() -> None:
    bank = kafka()
    assert deliver(bank, 1) == [0]
    fork(bank, bank.coordinator.checkpoint(3))
    restored(bank, checkpoint=1)
    bank.complete(replace(ASK, max_records=1))
    sweep(bank)
    promote(bank, send=True)
    assert deliver(bank) == [1, 2]


# Objects of 0.1

LATER = {
    "manifest": ("covered", "outboxes"),
    "plan": ("covered", "outboxes"),
    "genesis": ("covered", "outboxes", "keeps_sinks", "sinks_of", "sent"),
    "closing": ("delivered", "withheld"),
    "delivery": ("sent",),
}
"""Fields that 0.1 did not write, by kind of object."""


def as_of_0_1(bank: BankPipeline, **written: object) -> None:
    """Takes the later fields out of all objects; `written` is what 0.1 wrote in their place, by kind."""
    for key, raw in bank.store.objects.items():
        found = json.loads(raw) if key.endswith(".json") else {"kind": "text"}
        if found["kind"] in LATER:
            body = _without(found["body"], LATER[found["kind"]])
            if found["kind"] == "genesis" and "emitted_until" in written:
                for table in body["sinks"].values():
                    table["emitted_until"] = written["emitted_until"]
            if found["kind"] == "closing" and "sent" in written:
                body["sent"] = written["sent"]
            bank.store.objects[key] = canonical.encode(found["kind"], body)


def _without(body: object, names: tuple[str, ...]) -> Any:
    if isinstance(body, dict):
        return {name: _without(value, names) for name, value in body.items() if name not in names}
    return [_without(value, names) for value in body] if isinstance(body, list) else body


def test_a_line_of_0_1_is_restored_without_sending_or_writing_anything_twice() -> None:
    for sink in (OUTBOX, DeltaSink("seen")):
        bank = telling(sink)
        three(bank)
        deliver(bank)
        as_of_0_1(bank)
        restored(bank, checkpoint=1)
        bank.send(1)
        last = bank.complete()
        if isinstance(sink, KafkaSink):
            assert deliver(bank) == [3]
        else:
            assert rows(bank, last) == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_a_delivery_of_0_1_says_that_everything_up_to_it_was_sent() -> None:
    bank = kafka()
    assert deliver(bank, 2) == [0, 1]
    as_of_0_1(bank)
    assert SentRecords(bank.coordinator.timelines).of("t1")["seen"].ends({"payments": "payments/1"}) == {P0: 2}
    assert deliver(bank) == [2]


@pytest.mark.parametrize("sink", [OUTBOX, DeltaSink("seen"), AT_ONCE])
def test_a_restore_of_0_1_skips_what_is_below_its_offsets(sink: DeltaSink | KafkaSink) -> None:
    bank = telling(sink)
    at_once = sending(bank)
    three(bank)
    deliver(bank)
    restored(bank, checkpoint=1)
    as_of_0_1(bank, emitted_until={"payments-0": 3})
    at_once.clear()
    bank.send(1)
    last = bank.complete()
    if sink is OUTBOX:
        assert deliver(bank) == [3]
    elif sink is AT_ONCE:
        assert at_once == [3]
    else:
        assert [offset for offset, _ in rows(bank, last)] == [0, 1, 2, 3]


@pytest.mark.parametrize(("bound", "wanted"), [(4, []), (2, [2, 3])])
def test_a_promote_of_0_1_sends_what_lies_beyond_its_offsets(bound: int, wanted: list[int]) -> None:
    bank = kafka()
    assert deliver(bank, 2) == [0, 1]
    bank.send(1)
    fork(bank, bank.coordinator.checkpoint(1)).run_once(ASK)
    promote(bank, send=bound == 2)
    as_of_0_1(bank, sent={"seen": {"payments-0": bound}})
    assert deliver(bank) == wanted
    bank.send(1)
    bank.complete()
    assert deliver(bank) == [4]


def test_a_sink_that_covers_nothing_is_none_of_0_1() -> None:
    table = SinkTable(name="seen", kind="kafka", path="x", columns=())
    for covered in (None, OffsetCoverage()):
        written = codec.to_json(replace(table, covered=covered))
        assert codec.from_json(SinkTable, written, "here").covered == covered


@pytest.mark.parametrize("sink", [OUTBOX, AT_ONCE], ids=lambda sink: sink.guarantee)
def test_a_backfill_compares_rows_that_both_timelines_keep(sink: KafkaSink) -> None:
    bank = telling(sink)
    sending(bank)
    first, *_, live = three(bank)
    (forked,) = fork(bank, first).run_once(ASK).checkpoints
    assert forked.sinks["teller"].handle.rows, "a fork sends nothing, so it keeps rows"
    pair = Pair(recorded=live, repeated=forked, ancestor=first.id)
    assert [*comparable_sinks(pair)] == (["teller"] if sink is OUTBOX else [])
