"""Which letters a plan freezes, case by case; the walks mix them at random."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.redrive.asking import ask, rows_of
from tests.redrive.fed_walk import Part, Payment, fed
from tests.redrive.redrive_walk import ASK, RELEASES, Lenient, RedriveWorld, Seen, Strict, Sums
from tests.redrive.sink_walk import telling
from tidemark import Fold, KafkaSource, Pipeline, Process, state
from tidemark.coordinator.checkpoints.loop import CheckpointLoop, list_undelivered, record_delivery
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.declare.pipeline import Broadcast
from tidemark.formats.json import Json
from tidemark.model.checkpoint.manifest import Ack, Checkpoint
from tidemark.model.checkpoint.redrive import LetterRow, LetterRows, expand_rows, group_rows
from tidemark.model.core.offsets import OffsetRange, TopicPartition
from tidemark.model.state.row_compaction import RowPolicy
from tidemark.ports import PlanRequest

P0 = TopicPartition("payments", 0)


def watch(key: str, records: Iterable[Payment], kept: Seen) -> None:
    """Counts payments."""
    for _ in records:
        kept.records += 1


@dataclass
class Till(RedriveWorld):
    """A pipeline whose release a test chooses."""

    pipeline: Pipeline = field(default_factory=lambda: RELEASES["strict"])

    def send(self, *amounts: int, kind: bool = False, **more: Any) -> None:
        """Sends payments of one account."""
        for amount in amounts:
            record = {"account": "a", "amount": amount} | ({"kind": "x"} if kind else {}) | more
            self.log.append(P0, json.dumps(record).encode())

    def checkpoint(self, request: PlanRequest = ASK) -> Checkpoint:
        """Completes a checkpoint."""
        loop = CheckpointLoop(
            coordinator=self.coordinator, pipeline=self.pipeline, execute=lambda a: self.executed(self.pipeline, a)
        )
        return loop.run_once(request).checkpoints[-1]

    def ask(self, uid: str, rows: Iterable[LetterRow], *, out_of_order: bool = True) -> int:
        """Asks for rows; returns the number of the request."""
        return ask(self.coordinator, uid, set(rows), self.ids, out_of_order=out_of_order).number

    def letters(self, made: Checkpoint, uid: str = "sums") -> set[LetterRow]:
        """The rows that a checkpoint wrote."""
        return rows_of(made, uid, self.tables)

    def total(self, made: Checkpoint, uid: str = "sums") -> int | None:
        """The account's total."""
        rows = self.compute_of(self.pipeline).resolve(made, uid)
        return rows["a",]["total"] if rows else None


def _ack(made: Checkpoint, uid: str = "sums") -> Ack:
    found = made.ack(uid)
    assert found is not None
    return found


def test_requests_that_overlap_are_one_redrive_and_later_ones_none() -> None:
    till = Till()
    till.send(1, 2, 4)
    letters = sorted(till.letters(till.checkpoint()))
    till.pipeline = RELEASES["lenient"]
    assert [till.ask("sums", letters[:2]), till.ask("sums", letters[1:])] == [1, 2]
    made = till.checkpoint()
    (redrive,) = made.plan.redrives
    assert (redrive.requests, redrive.count, made.plan.requests_seen) == ((1, 2), 3, 2)
    assert till.total(made) == 7
    till.ask("sums", letters)
    again = till.checkpoint()
    assert (again.plan.redrives, again.plan.requests_seen) == ((), 3)
    assert till.total(again) == 7


def test_a_redriven_letter_passes_the_condition_of_today_and_may_be_filtered() -> None:
    till = Till()
    till.send(1, 2, 4)
    letters = till.letters(till.checkpoint())
    lenient = RELEASES["lenient"]
    sums = lenient.operator("sums")
    assert isinstance(sums, Fold)
    operators = [replace(sums, where="amount > 1") if o is sums else o for o in lenient.operators]
    till.pipeline = replace(lenient, operators=operators)
    till.ask("sums", letters)
    till.send(8, 0, kind=True)
    made = till.checkpoint()
    ack = _ack(made)
    assert (ack.read, ack.redriven, ack.applied, ack.filtered, ack.dead_lettered) == (2, 3, 3, 2, 0)
    assert till.total(made) == 14
    till.ask("sums", letters)
    assert till.checkpoint().plan.redrives == (), "a filtered letter is no letter any more"


def test_a_plan_without_a_request_has_neither_field() -> None:
    till = Till()
    till.send(1)
    made = till.checkpoint()
    stored = json.loads(till.store.get("plans/t1/000000000001.0001.json") or b"")
    assert "redrives" not in json.dumps(stored) and "requests_seen" not in json.dumps(stored)
    manifest = json.dumps(json.loads(till.store.get("timelines/t1/000000000001.json") or b""))
    assert "redriven" not in manifest and "refused_again" not in manifest
    assert made.plan.requests_seen == 0


def test_an_operator_that_now_depends_on_arrival_keeps_its_letters() -> None:
    class Listed(state.Keyed):
        records: int = state.count()
        total: int | None = state.sum("amount")
        last: int | None = state.latest("amount")
        amounts: list[int] = state.list("amount")

    till = Till()
    till.send(1)
    letters = till.letters(till.checkpoint())
    till.ask("sums", letters, out_of_order=False)
    till.pipeline = replace(RELEASES["lenient"], operators=[Fold("sums", key_by="account", state=Listed)])
    everything = PlanRequest(origin="test", allow_non_restored_state=True)
    made = till.checkpoint(everything)
    assert (made.plan.redrives, made.plan.requests_seen) == ((), 1)
    till.ask("sums", letters, out_of_order=True)
    assert till.total(till.checkpoint(everything)) == 1


def test_letters_stay_redriven_when_the_operator_is_renamed() -> None:
    till = Till()
    till.send(1, 2)
    first = till.checkpoint()
    letters = sorted(till.letters(first))
    till.pipeline = RELEASES["lenient"]
    till.ask("sums", letters[:1])
    till.checkpoint()
    fold = Fold("totals", key_by="account", state=Sums, was="sums")
    till.pipeline = replace(RELEASES["lenient"], operators=[fold])
    till.ask("sums", letters)
    made = till.checkpoint(PlanRequest(origin="test", allow_non_restored_state=True))
    (redrive,) = made.plan.redrives
    assert (redrive.uid, redrive.count) == ("totals", 1), "the other one was redriven as a letter of sums"
    assert till.total(made, "totals") == 3


def test_letters_stay_redriven_when_their_rows_move_to_the_table_of_a_fork_or_of_another_name() -> None:
    till = Till()
    till.send(1, 2)
    letters = sorted(till.letters(till.checkpoint()))
    till.pipeline = RELEASES["lenient"]
    till.ask("sums", letters[:1])
    redriving = till.checkpoint()
    till.recovery.restore(RestoreRequest(checkpoint=redriving.id).find_restore_point(till.coordinator), request="r")
    till.checkpoint()
    till.compact_rows(RowPolicy.everything())  # rows of t1 are in a table of t2 now
    till.ask("sums", letters)
    made = till.checkpoint()
    assert (expand_rows(made.plan.redrives[0].rows), till.total(made)) == ({letters[1]}, 3)
    fold = Fold("totals", key_by="account", state=Sums, was="sums")
    till.pipeline = replace(RELEASES["lenient"], operators=[fold])
    everything = PlanRequest(origin="test", allow_non_restored_state=True)
    till.checkpoint(everything)
    till.compact_rows(RowPolicy.everything())
    till.ask("totals", letters)
    again = till.checkpoint(everything)
    assert (again.plan.redrives, till.total(again, "totals")) == ((), 3)


def test_letters_of_a_topic_that_was_recreated_are_other_records() -> None:
    till = Till()
    till.send(1)
    old = till.letters(till.checkpoint())
    till.log.create("payments", 2)
    till.send(2)
    second = till.checkpoint(PlanRequest(origin="test", accept_loss=True))
    new = till.letters(second)
    assert {(r.partition, r.offset) for r in old} == {(r.partition, r.offset) for r in new}
    till.pipeline = RELEASES["lenient"]
    till.ask("sums", new)
    assert till.total(till.checkpoint()) == 2
    till.ask("sums", old | new)
    assert till.total(till.checkpoint()) == 3


def test_a_time_that_was_in_the_future_has_come() -> None:
    @dataclass(frozen=True)
    class Dated:
        account: str
        amount: int
        at: datetime

    till = Till()
    source = KafkaSource("payments", Dated, event_time="at")
    till.pipeline = replace(
        RELEASES["strict"],
        source=source,
        sources={},
        operators=[Fold("sums", key_by="account", state=Sums)],
        max_future=timedelta(minutes=1),
    )
    ahead = datetime.fromtimestamp(till.clock.now_ms() / 1000, tz=UTC) + timedelta(hours=1)
    till.send(1, at=ahead.isoformat())
    first = till.checkpoint()
    assert _ack(first).dead_lettered == 1
    till.ask("sums", till.letters(first))
    second = till.checkpoint()
    assert (_ack(second).redriven, _ack(second).dead_lettered) == (1, 1), "it is still ahead"
    till.clock.advance(2 * 3_600_000)
    till.ask("sums", till.letters(second))
    third = till.checkpoint()
    assert (_ack(third).redriven, _ack(third).applied) == (1, 1)
    assert third.sealed.facts.watermarks == {}, "a redriven record moves no watermark"


def test_a_letter_of_a_broadcast_state() -> None:
    @dataclass(frozen=True)
    class Shop:
        account: str
        owner: str
        city: str | None

    till = Till()
    till.log.create("shops", 1)
    shops = Broadcast("shops", KafkaSource("shops", Shop), key_by="account")
    operators = [Fold("owners", key_by="shops.owner", state=Sums, join={"shops": "account"})]
    till.pipeline = replace(RELEASES["lenient"], operators=operators, broadcast=[shops], max_dead_letters=1.0)
    till.log.append(TopicPartition("shops", 0), b'{"account":"a","owner":7,"city":null}')
    first = till.checkpoint()
    assert _ack(first, "shops").dead_lettered == 1
    till.ask("shops", till.letters(first, "shops"))
    second = till.checkpoint()
    assert (_ack(second, "shops").redriven, _ack(second, "shops").dead_lettered) == (1, 1)


def _sent(till: Till) -> list[int]:
    """Delivers what is due; returns the offsets."""
    offsets = []
    for due in list_undelivered(till.coordinator):
        placed = till.tables.placed_rows(due.table.handle)
        offsets += [row["_offset"] for at, row in placed if at == due.checkpoint.id and due.is_due(row)]
        record_delivery(till.coordinator, due)
    return sorted(int(str(offset)) for offset in offsets)


@pytest.mark.parametrize("back", [False, True])
def test_a_sink_gets_redriven_rows_again_only_if_a_restore_took_it_back(back: bool) -> None:
    till = Till(pipeline=telling(Strict))
    till.send(1, 2)
    till.send(4, kind=True)
    first = till.checkpoint()
    letters = till.letters(first, "seen")
    assert _sent(till) == [2]
    till.pipeline = telling(Lenient)
    for expected in ([0, 1], [0, 1] if back else []):
        till.ask("seen", letters)
        made = till.checkpoint()
        assert _ack(made, "seen").redriven == _ack(made, "echo").applied == 2
        assert len(till.tables.rows(made.sinks["seen"].handle)) == 3, "the table has a row per record"
        assert _sent(till) == expected
        point = RestoreRequest(checkpoint=1, restore_sinks=back).find_restore_point(till.coordinator)
        till.recovery.restore(point, request=f"{made.id}")


def test_a_sink_gets_rows_of_records_that_were_refused_again_before() -> None:
    till = Till(pipeline=telling(Strict))
    till.send(1)
    letters = till.letters(till.checkpoint(), "seen")
    till.ask("seen", letters)
    refused = till.checkpoint()
    assert (_ack(refused, "seen").dead_lettered, _sent(till)) == (1, [])
    assert _ack(refused, "seen").refused_again == refused.plan.redrives[0].coverage
    till.recovery.restore(RestoreRequest(checkpoint=1).find_restore_point(till.coordinator), request="back")
    till.pipeline = telling(Lenient)
    till.ask("seen", letters)
    made = till.checkpoint()
    assert (len(till.tables.rows(made.sinks["seen"].handle)), _sent(till)) == (1, [0])


def test_letters_of_a_recreated_topic_are_passed_over_if_a_sink_is_behind() -> None:
    till = Till(pipeline=telling(Strict))
    till.send(1)
    old = till.letters(till.checkpoint(), "seen")
    till.log.create("payments", 2)
    till.send(2)
    new = till.letters(till.checkpoint(PlanRequest(origin="test", accept_loss=True)), "seen")
    till.pipeline = telling(Lenient)
    till.ask("seen", old | new)
    made = till.checkpoint()
    assert expand_rows(made.plan.redrives[0].rows) == new
    assert len(till.tables.rows(made.sinks["seen"].handle)) == 1


def test_rows_are_stored_as_ranges() -> None:
    rows = [LetterRow(at, "x", "id", 0, offset) for at, offset in ((1, 3), (1, 4), (1, 9), (2, 4))]
    stored = group_rows(reversed(rows))
    assert expand_rows(stored) == set(rows)
    assert stored[0] == LetterRows(
        checkpoint=1,
        topic_id="id",
        partition=TopicPartition("x", 0),
        offsets=(OffsetRange(3, 5), OffsetRange(9, 10)),
    )
    assert group_rows([]) == ()


def test_a_request_for_a_timeline_that_ended_is_void() -> None:
    till = Till()
    till.send(1)
    first = till.checkpoint()
    letters = till.letters(first)
    till.pipeline = RELEASES["lenient"]
    till.ask("sums", letters)
    point = RestoreRequest(checkpoint=first.id).find_restore_point(till.coordinator)
    till.recovery.restore(point, request="back")
    made = till.checkpoint()
    assert (made.plan.slot.timeline, made.plan.redrives, made.plan.requests_seen) == ("t2", (), 1)
    assert till.total(made) is None


def _pay(till: Till, *parts: Part) -> None:
    till.log.append(P0, Json().encode(Payment("p", list(parts))))


def _told(till: Till, made: Checkpoint) -> list[tuple[int, list[int]]]:
    rows = till.tables.rows(made.sinks["seen"].handle)
    return sorted((row["amount"], row["_path"]) for row in rows)  # type: ignore[misc]


def test_a_letter_of_an_operator_that_another_one_feeds_is_the_emitted_record() -> None:
    till = Till(pipeline=fed("strict"))
    _pay(till, Part("a", 1, None), Part("b", 2, "x"), Part("a", 4, None), Part(None, 8, "x"))
    first = till.checkpoint()
    letters = sorted(till.letters(first, "seen"))
    assert [row.path for row in letters] == [(0,), (2,), (3,)]
    rows: list[Any] = [row for _, row in till.tables.placed_rows(_ack(first, "seen").dead_letters)]
    assert [json.loads(row["value"]) for row in rows if row["path"] == [2]] == [
        {"account": "a", "amount": 4, "kind": None}
    ]
    till.pipeline = fed("lenient")
    till.ask("seen", letters)
    made = till.checkpoint()
    ack = _ack(made, "seen")
    assert (ack.read, ack.redriven, ack.applied, ack.dead_lettered, ack.emitted) == (0, 3, 2, 1, 2)
    assert _told(till, made) == [(1, [0, 0]), (2, [1, 0]), (4, [2, 0])]
    assert [(row.path, row.checkpoint) for row in till.letters(made, "seen")] == [((3,), 2)]


def test_a_kept_sink_has_the_row_of_one_emitted_record_and_lacks_that_of_its_neighbour() -> None:
    till = Till(pipeline=fed("strict"))
    _pay(till, Part("a", 1, None), Part("a", 4, None))
    first = till.checkpoint()
    one, two = sorted(till.letters(first, "seen"))
    till.pipeline = fed("lenient")
    till.ask("seen", [one])
    assert _told(till, till.checkpoint()) == [(1, [0, 0])]
    till.recovery.restore(RestoreRequest(checkpoint=first.id).find_restore_point(till.coordinator), request="r")
    till.ask("seen", [one, two])
    again = till.checkpoint()
    assert _ack(again, "seen").redriven == 2
    assert _told(till, again) == [(1, [0, 0]), (4, [1, 0])], "the sink had the first row and lacked the second"


def test_an_operator_whose_input_has_changed_keeps_its_letters() -> None:
    till = Till(pipeline=fed("strict"))
    _pay(till, Part("a", 1, None))
    letters = till.letters(till.checkpoint(), "seen")
    seen = Process("seen", key_by="payer", state=Seen, function=watch)
    till.pipeline = replace(till.pipeline, operators=[*till.pipeline.operators[:2], seen])
    till.ask("seen", letters)
    made = till.checkpoint(PlanRequest(origin="test", allow_non_restored_state=True))
    assert (made.plan.redrives, made.plan.requests_seen) == ((), 1)
