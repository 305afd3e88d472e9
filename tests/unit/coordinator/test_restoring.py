"""Dry runs of restores, claims, and what becomes of sinks: no row is doubled, none is lost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

import pytest
from rich.console import Console

from tests.support.bank import ASK, P0, PIPELINE, BankPipeline, at
from tests.support.crashes import Killed
from tests.support.memory import Payment
from tests.unit.coordinator.test_promotion import fork
from tests.unit.coordinator.test_recovery import dying, three
from tidemark import DeltaSink, KafkaSink, Process, state
from tidemark.cli.timeline import draw_tree, plain_tree
from tidemark.coordinator.checkpoints.loop import list_undelivered, record_delivery
from tidemark.coordinator.records.states import Promoted, Restored
from tidemark.coordinator.records.timeline_tree import branches
from tidemark.coordinator.recovery.restore import Recovery
from tidemark.coordinator.recovery.restore_preview import RestorePlan, plan_restore
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.errors import ConflictError, DataLostError, NotFoundError, UsageError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.core.offsets import OffsetRange
from tidemark.model.retention.savepoint import SavepointRequest


@dataclass(frozen=True)
class Seen:
    """What is emitted: how many payments of the account there were so far."""

    account: str
    so_far: int


class Count(state.Keyed):
    """Of one account."""

    payments: int = state.value(0)


def tell(key: str, payments: Iterator[Payment], count: Count) -> Iterator[Seen]:
    """Emits one record per payment."""
    for _ in payments:
        count.payments += 1
        yield Seen(key, count.payments)


def telling(sink: DeltaSink | KafkaSink) -> BankPipeline:
    """A pipeline that emits to a sink."""
    teller = Process("teller", key_by="account", state=Count, function=tell, emits=Seen, sink=sink)
    bank = BankPipeline(pipeline=replace(PIPELINE, operators=[teller]))
    bank.log.create("out", 1)
    return bank


class Asked(TypedDict, total=False):
    """Fields of a restore request that these tests set."""

    checkpoint: int
    savepoint: str
    as_of_ms: int
    force: bool
    claim: bool
    restore_sinks: bool
    renamed: Mapping[str, str]
    request: str


def plan(bank: BankPipeline, **asked: Unpack[Asked]) -> RestorePlan:
    """The dry run of a restore."""
    recovery = Recovery(coordinator=bank.coordinator, pipeline=bank.pipeline)
    return plan_restore(recovery, RestoreRequest(**asked).find_restore_point(bank.coordinator), bank.pipeline)


def restored(bank: BankPipeline, **asked: Unpack[Asked]) -> Restored:
    """A restore."""
    request = RestoreRequest(**asked)
    recovery = Recovery(coordinator=bank.coordinator, pipeline=bank.pipeline)
    done = recovery.restore(request.find_restore_point(bank.coordinator), request.request)
    assert isinstance(done, Restored)
    return done


def number(value: object) -> int:
    """A whole number of a row."""
    assert isinstance(value, int), value
    return value


def rows(bank: BankPipeline, checkpoint: Checkpoint) -> list[tuple[int, int]]:
    """Offset and count of every row of the sink as of a checkpoint."""
    table = checkpoint.sinks["teller"]
    return sorted((number(r["_offset"]), number(r["so_far"])) for r in bank.tables.rows(table.handle))


def sent(bank: BankPipeline) -> list[int]:
    """Offsets of the records that the next delivery answers."""
    found = []
    for due in list_undelivered(bank.coordinator):
        held = [r for r in bank.tables.rows(due.table.handle) if due.is_due(r)]
        offsets = [number(r["_offset"]) for r in held]
        found += [offset for offset in offsets if due.checkpoint.plan.ranges[P0].start <= offset]
    return sorted(set(found))


def test_a_dry_run_says_what_is_left_and_read_again_and_writes_nothing() -> None:
    bank = BankPipeline()
    made = three(bank)
    before = dict(bank.store.objects)
    found = plan(bank, checkpoint=1)
    assert (found.checkpoint, found.left, found.gaps) == (made[0], (made[2], made[1]), ())
    assert found.read_again == {P0: OffsetRange(1, 3)}
    assert found.genesis.closes == "t1"
    assert bank.store.objects == before
    assert plan(bank, checkpoint=3).read_again == {}


def test_what_kafka_has_lost_is_told_with_the_exact_gap() -> None:
    bank = BankPipeline()
    three(bank)
    bank.log.trim(P0, 2)
    found = plan(bank, checkpoint=1)
    assert [(g.partition, g.lost) for g in found.gaps] == [(P0, OffsetRange(1, 2))]
    with pytest.raises(DataLostError, match=r"topic payments, partition 0, offsets \[1, 2\) were deleted"):
        found.refuse_gaps()
    plan(bank, checkpoint=2).refuse_gaps()


def test_a_time_means_the_newest_checkpoint_of_the_live_timeline_that_is_not_after_it() -> None:
    bank = BankPipeline()
    for end in (2_000_000, 3_000_000):
        bank.complete(replace(ASK, interval_end=at(end)))
    assert [plan(bank, as_of_ms=ms).checkpoint.id for ms in (2_000_000, 2_999_999, 3_000_000)] == [1, 1, 2]
    with pytest.raises(NotFoundError, match="no checkpoint is that old"):
        plan(bank, as_of_ms=1)
    with pytest.raises(UsageError, match="name one restore point"):
        RestoreRequest(checkpoint=1, as_of_ms=1)


def test_a_sink_keeps_its_rows_and_what_is_emitted_again_is_skipped() -> None:
    bank = telling(DeltaSink("seen"))
    made = three(bank)
    assert plan(bank, checkpoint=1).sinks == {
        "seen": "keeps its rows; rows that are emitted again for the same records are skipped"
    }
    restored(bank, checkpoint=1)
    half = bank.complete(replace(ASK, max_records=1))
    assert rows(bank, half) == rows(bank, made[2]), "it is ahead of the state, as it was"
    ack = half.ack("teller")
    assert ack is not None
    assert ack.commits[-1].path.startswith("bank/state"), "nothing is committed to the sink"
    bank.send(1)
    assert rows(bank, bank.complete()) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    bank.send(1)
    last = bank.complete()
    assert rows(bank, last)[-1] == (4, 5)
    assert last.plan.sinks["teller"].emitted_until == {}, "the bound goes once it is passed"
    assert rows(bank, made[2]) == [(0, 1), (1, 2), (2, 3)]


def test_a_restore_of_a_restore_before_it_has_caught_up_doubles_no_row_either() -> None:
    bank = telling(DeltaSink("seen"))
    three(bank)
    restored(bank, checkpoint=1)
    bank.complete(replace(ASK, max_records=1))
    restored(bank, checkpoint=1)
    bank.send(1)
    assert rows(bank, bank.complete()) == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_a_sink_goes_back_with_the_state_on_request() -> None:
    bank = telling(DeltaSink("seen"))
    made = three(bank)
    assert plan(bank, checkpoint=1, restore_sinks=True).sinks == {
        "seen": "goes back to its rows as of the checkpoint; records that are read again emit again"
    }
    restored(bank, checkpoint=1, restore_sinks=True)
    half = bank.complete(replace(ASK, max_records=1))
    assert rows(bank, half) == [(0, 1), (1, 2)]
    assert rows(bank, bank.complete()) == rows(bank, made[2]) == [(0, 1), (1, 2), (2, 3)]


def test_a_sink_goes_back_where_the_live_timeline_lacks_rows_of_the_checkpoint() -> None:
    bank = telling(DeltaSink("seen"))
    made = three(bank)
    restored(bank, checkpoint=1, restore_sinks=True)
    restored(bank, checkpoint=3)
    bank.send(1)
    assert rows(bank, bank.complete()) == [*rows(bank, made[2]), (3, 4)]


def test_what_happens_to_topics_is_told_plainly() -> None:
    bank = telling(KafkaSink("seen", topic="out"))
    three(bank)
    for due in list_undelivered(bank.coordinator)[:2]:
        record_delivery(bank.coordinator, due)
    again = "records sent to topic out stay; records that are read again are sent again, under other ids"
    assert plan(bank, checkpoint=1, restore_sinks=True).sinks == {"seen": again}
    assert plan(bank, checkpoint=1).sinks == {"seen": "records sent to topic out stay, and are not sent again"}
    assert plan(bank, checkpoint=1, restore_sinks=True).sent_again == ("out",)
    assert plan(bank, checkpoint=1).sent_again == ()
    assert plan(bank, checkpoint=2, restore_sinks=True).sent_again == (), "chk-3 was not sent yet"
    restored(bank, checkpoint=1)
    bank.send(1)
    bank.complete()
    assert sent(bank) == [2, 3], "chk-3 was not sent yet, so its record is sent by its successor"


def test_a_promote_sends_what_was_not_sent_and_only_when_it_is_asked() -> None:
    for asked, wanted in ((False, [4]), (True, [2, 3, 4])):
        bank = telling(KafkaSink("seen", topic="out"))
        made = three(bank)
        fork(bank, made[0]).run_once(ASK)
        bank.send(1)
        fork(bank, made[0]).run_once(ASK)
        for due in list_undelivered(bank.coordinator)[:2]:
            record_delivery(bank.coordinator, due)
        assert isinstance(bank.promotion.promote("fix", send=asked), Promoted)
        bank.send(1)
        bank.complete()
        assert sent(bank) == wanted
        for due in list_undelivered(bank.coordinator):
            record_delivery(bank.coordinator, due)
        assert list_undelivered(bank.coordinator) == []


def test_a_claim_ends_the_savepoint_and_there_is_no_second_one() -> None:
    bank = BankPipeline()
    three(bank)
    bank.savepoints.create(SavepointRequest(name="sp", owner="o", origin="test", checkpoint=2))
    done = restored(bank, savepoint="sp", claim=True)
    assert (done.genesis.parent, done.genesis.savepoint, done.genesis.claim) == (2, "sp", True)
    claimed = bank.savepoints.find("sp")
    assert claimed is not None and claimed.claimed_by == "t2"
    with pytest.raises(ConflictError, match="savepoint sp was claimed by timeline t2: it cannot be claimed again"):
        RestoreRequest(savepoint="sp", claim=True).find_restore_point(bank.coordinator)
    with pytest.raises(NotFoundError, match="claimed by timeline t2"):
        RestoreRequest(savepoint="sp").find_restore_point(bank.coordinator)
    with pytest.raises(UsageError, match="claim without a savepoint"):
        RestoreRequest(checkpoint=1, claim=True).find_restore_point(bank.coordinator)


def test_a_claim_that_died_before_the_closing_is_finished_by_the_same_request() -> None:
    bank = BankPipeline()
    three(bank)
    bank.savepoints.create(SavepointRequest(name="sp", owner="o", origin="test", checkpoint=2))
    asked = RestoreRequest(savepoint="sp", claim=True)
    with pytest.raises(Killed):
        dying(bank, "closing", "before").restore(asked.find_restore_point(bank.coordinator))
    claimed = bank.savepoints.find("sp")
    assert claimed is not None and claimed.claimed_by == "t2"
    done = restored(bank, savepoint="sp", claim=True)
    assert (done.won, done.genesis.timeline) == (True, "t2")


def test_a_savepoint_without_a_claim_stays() -> None:
    bank = BankPipeline()
    three(bank)
    bank.savepoints.create(SavepointRequest(name="sp", owner="o", origin="test", checkpoint=2))
    for n in (2, 3):
        assert restored(bank, savepoint="sp").genesis.timeline == f"t{n}"
    assert not bank.savepoints.get("sp").disposed
    bank.savepoints.create(SavepointRequest(name="end", owner="o", origin="test", checkpoint=3, drained=True))
    with pytest.raises(ConflictError, match="savepoint end is drained"):
        plan(bank, savepoint="end")
    assert plan(bank, savepoint="end", force=True).checkpoint.id == 3


def test_what_is_about_to_be_deleted_is_not_begun_with() -> None:
    bank = BankPipeline()
    three(bank)
    bank.savepoints.create(SavepointRequest(name="sp", owner="o", origin="test", checkpoint=2))
    asked = RestoreRequest(savepoint="sp").find_restore_point(bank.coordinator)
    bank.savepoints.dispose("sp")
    with pytest.raises(ConflictError, match="savepoint sp is about to be deleted"):
        bank.recovery.restore(asked)
    assert bank.coordinator.timelines.live() == "t1"


def test_the_tree_of_timelines_is_read_from_their_ends() -> None:
    bank = BankPipeline()
    made = three(bank)
    bank.recovery.fork(RestoreRequest(checkpoint=1).find_restore_point(bank.coordinator), "fix")
    restored(bank, checkpoint=2)
    again = bank.complete()
    found = {b.timeline: b for b in branches(bank.coordinator.timelines)}
    assert {n: (b.parent, b.fate, b.checkpoints, b.newest) for n, b in found.items()} == {
        "t1": (None, "closed for t2", 3, made[2]),
        "fix": ("t1", "fork", 0, None),
        "t2": ("t1", "live", 1, again),
    }
    drawing = Console(width=100, color_system=None)
    with drawing.capture() as told:
        drawing.print(draw_tree(list(found.values())))
    lines = [text.strip("│├└─ ") for text in told.get().splitlines()]
    assert sorted(lines) == sorted(text.strip() for text in plain_tree(list(found.values())))
