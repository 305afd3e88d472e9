"""The commands and the Python API over a warehouse on disk, whose Kafka and Spark are twins."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext, commands_over
from tidemark.api.history import PipelineHistory
from tidemark.errors import NotFoundError, UsageError
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.state.row_compaction import RowPolicy
from tidemark.operations.dead_letters.redriving import LetterFilter, RedriveRequest

STRICT = """
from dataclasses import dataclass
from datetime import timedelta
from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Process, state


@dataclass(frozen=True)
class Payment:
    account: str | None
    amount: int
    $kind


class Sums(state.Keyed):
    records: int = state.count()
    total: int | None = state.sum("amount")


class Listed(state.Keyed):
    amounts: list[int] = state.list("amount")


class Seen(state.Keyed):
    n: int = state.value(0)


def watch(key, records, kept):
    kept.n += len(list(records))


@dataclass(frozen=True)
class Told:
    account: str


def tell(key, records, kept):
    for _ in records:
        yield Told(key)


sums = Pipeline(
    name="sums",
    source=KafkaSource("payments", Payment),
    operators=[
        Fold("sums", key_by="account", state=Sums),
        Fold("listed", key_by="account", state=Listed),
        Process("seen", key_by="account", state=Seen, function=watch),
        Process("told", key_by="account", state=Seen, function=tell, emits=Told, sink=DeltaSink("alerts")),
        Process("feeds", key_by="account", state=Seen, function=tell, emits=Told),
        Process(
            "echo", key_by="account", state=Seen, function=tell, emits=Told, input="feeds", sink=DeltaSink("echoes")
        ),
    ],
    max_dead_letters=1.0,
    $more
)
"""


def _payment(account: str | None, amount: int, *, kind: bool = False) -> bytes:
    found = {"account": account, "amount": amount} | ({"kind": "x"} if kind else {})
    return json.dumps({name: value for name, value in found.items() if value is not None}).encode()


class Shop:
    """The pipeline, its commands and its Python API."""

    def __init__(self, home: Path) -> None:
        self.command = Command(home, "127.0.0.1:1", "sc://127.0.0.1:1")
        self.deploy("kind: str")
        self.line = DiskPipeline(self.command.warehouse, self.command.context.pipeline("sums"), "payments")

    def deploy(self, kind: str, more: str = "") -> None:
        """Writes the pipeline's file, with more arguments of the pipeline."""
        self.command.declare(STRICT, file="sums.py", kind=kind, more=more)

    def send(self, *values: bytes) -> None:
        """Sends records to one partition."""
        self.line.send([(0, value, 1_000_000 + n) for n, value in enumerate(values)])

    def types(self, *words: str) -> Any:
        """Runs a command; returns its JSON."""
        return self.command("dead-letters", *words, "--json").ok().json

    @property
    def history(self) -> PipelineHistory:
        """The Python API."""
        return PipelineHistory(DiskContext(self.line, self.command.context.settings), "sums")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    with commands_over(made.line):
        yield made


def _requests(shop: Shop) -> list[tuple[int, int, str, str | None]]:
    found = shop.types("list", "sums")["requests"]
    return [(r["number"], r["letters"], r["state"], r["checkpoint"]) for r in found]


def _totals(shop: Shop, uid: str = "sums") -> dict[str, tuple[int, int]]:
    return {t["reason"]: (t["letters"], t["redriven"]) for t in shop.types("list", "sums", uid)["letters"]}


def _letters(shop: Shop) -> StateHandle:
    ack = next(shop.line.coordinator.checkpoints()).ack("sums")
    assert ack is not None
    return ack.dead_letters


def _run(shop: Shop) -> dict[str, int]:
    shop.command("run", "sums").ok()
    return _state(shop)


def _state(shop: Shop) -> dict[str, int]:
    return {row["account"]: row["total"] for row in shop.command("state", "show", "sums", "sums", "--json").ok().json}


def test_a_person_lists_shows_and_redrives_letters(shop: Shop) -> None:
    assert shop.types("list", "sums") == {"letters": [], "requests": []}
    shop.send(_payment("a", 1, kind=True), _payment("a", 2), _payment("b", 3), b"{", _payment(None, 4, kind=True))
    assert _run(shop) == {"a": 1}
    assert _totals(shop) == {"missing_field: kind": (2, 0), "malformed_json": (1, 0), "null_key": (1, 0)}
    shop.deploy("kind: str | None = None")
    first, *_ = shop.types("show", "sums", "sums", "--reason", "missing_field")
    assert (first["offset"], first["checkpoint"], first["reason"], first["today"]) == (
        1,
        "chk-1",
        "missing_field: kind",
        None,
    )
    assert first["fields"] == {"account": "a", "amount": 2, "kind": None}
    assert first["value"]["text"] == '{"account": "a", "amount": 2}'
    found = {letter["offset"]: letter["today"] for letter in shop.types("show", "sums", "sums")}
    assert found == {1: None, 2: None, 3: "malformed_json", 4: "null_key"}
    assert len(shop.types("show", "sums", "sums", "--limit", "1")) == 1
    assert shop.types("show", "sums", "sums", "--checkpoint", "chk-9") == []
    assert shop.types("show", "sums", "sums", "--partition", "payments-1") == []

    dry = shop.types("redrive", "sums", "sums")
    assert (dry["letters"], dry["applied"], dry["request"]) == (4, 2, None)
    assert dry["refused"] == {"malformed_json": 1, "null_key": 1}
    assert _requests(shop) == [], "a dry run writes nothing"
    made = shop.types("redrive", "sums", "sums", "--reason", "missing_field", "--note", "case 12", "--execute")
    assert (made["letters"], made["request"], made["timeline"]) == (2, 1, "t1")
    assert _requests(shop) == [(1, 2, "waiting", None)]
    assert _run(shop) == {"a": 3, "b": 3}
    assert _requests(shop) == [(1, 2, "redriven", "chk-2")]
    assert _totals(shop) == {"malformed_json": (1, 0), "null_key": (1, 0), "missing_field: kind": (0, 2)}
    # The same again: there are no such letters any more.
    shop.command("dead-letters", "redrive", "sums", "sums", "--reason", "missing_field").failed(
        3, "no such dead letters"
    )
    assert _run(shop) == {"a": 3, "b": 3}


def test_letters_that_are_refused_again_are_letters_of_the_later_checkpoint(shop: Shop) -> None:
    shop.send(b"{", b"[")
    _run(shop)
    shop.types("redrive", "sums", "sums", "--limit", "1", "--execute")
    _run(shop)
    found = [(letter["offset"], letter["checkpoint"]) for letter in shop.types("show", "sums", "sums")]
    assert found == [(1, "chk-1"), (0, "chk-2")]
    details = shop.command("checkpoint", "show", "sums", "chk-2", "--json").ok().json
    (ack,) = [a for a in details["sealed"]["acks"] if a["uid"] == "sums"]
    assert (ack["read"], ack["redriven"], ack["applied"], ack["dead_lettered"]) == (0, 1, 0, 1)


def test_a_restore_makes_them_letters_again_and_voids_the_request(shop: Shop) -> None:
    shop.send(_payment("a", 1))
    _run(shop)
    shop.deploy("kind: str | None = None")
    shop.types("redrive", "sums", "sums", "--execute")
    assert _run(shop) == {"a": 1}
    shop.types("redrive", "sums", "listed", "--out-of-order", "--execute")
    shop.command("restore", "sums", "--checkpoint", "chk-1", "--execute").ok()
    assert _requests(shop) == [(2, 1, "void", None), (1, 1, "void", None)]
    assert _totals(shop) == {"missing_field: kind": (1, 0)}
    assert _run(shop) == {}, "nobody asked for it on this timeline"
    shop.types("redrive", "sums", "sums", "--execute")
    assert _run(shop) == {"a": 1}


def test_a_request_can_be_withdrawn(shop: Shop) -> None:
    shop.send(_payment("a", 1))
    _run(shop)
    shop.deploy("kind: str | None = None")
    shop.types("redrive", "sums", "sums", "--execute")
    assert shop.types("withdraw", "sums", "1")["state"] == "waiting"
    assert shop.types("withdraw", "sums", "1", "--execute")["state"] == "withdrawn"
    assert _run(shop) == {}
    assert _requests(shop) == [(1, 1, "withdrawn", None)]
    shop.types("redrive", "sums", "sums", "--execute")
    assert _run(shop) == {"a": 1}
    assert shop.types("withdraw", "sums", "2", "--execute")["state"] == "redriven", "too late"
    shop.command("dead-letters", "withdraw", "sums", "3").failed(3, "no request 3")


def test_a_request_that_no_plan_can_execute_is_withdrawn_and_its_plan_aborted(shop: Shop) -> None:
    shop.send(_payment("a", 1), _payment("b", 2, kind=True))
    assert _run(shop) == {"b": 2}
    shop.deploy("kind: str | None = None")
    shop.types("redrive", "sums", "sums", "--execute")
    (file,) = (shop.command.warehouse / "sums/dead_letters/sums").rglob("*.parquet")
    file.rename(file.with_suffix(".gone"))
    for _ in range(2):
        assert shop.command("run", "sums").code != 0
    shop.types("withdraw", "sums", "1", "--execute")
    shop.command("checkpoint", "abort", "sums", "--execute").ok()
    assert _run(shop) == {"b": 2}
    file.with_suffix(".gone").rename(file)
    shop.types("redrive", "sums", "sums", "--execute")
    assert _run(shop) == {"a": 1, "b": 2}


def test_operators_that_depend_on_arrival_refuse(shop: Shop) -> None:
    shop.send(_payment("a", 1))
    _run(shop)
    shop.command("dead-letters", "redrive", "sums", "listed").failed(2, "amounts is a state.list", "--out-of-order")
    shop.command("dead-letters", "redrive", "sums", "seen").failed(2, "it is a Process")
    shop.command("dead-letters", "redrive", "sums", "echo", "--out-of-order").failed(3, "no such dead letters")
    shop.command("dead-letters", "redrive", "sums", "nobody").failed(3, "echo, feeds, listed, seen, sums, told")
    shop.deploy("kind: str | None = None")
    assert shop.types("redrive", "sums", "listed", "--out-of-order", "--execute")["arrival"] == [
        "amounts is a state.list"
    ]
    assert shop.types("redrive", "sums", "seen", "--out-of-order", "--execute")["arrival"] == ["it is a Process"]
    _run(shop)
    assert _totals(shop, "seen") == {"missing_field: kind": (0, 1)}
    (row,) = shop.command("state", "show", "sums", "seen", "--json").ok().json
    assert row["n"] == 1
    assert _totals(shop, "listed") == {"missing_field: kind": (0, 1)}


def test_sinks_get_rows_for_redriven_records(shop: Shop) -> None:
    shop.send(_payment("a", 1), _payment("b", 2, kind=True))
    _run(shop)
    shop.deploy("kind: str | None = None")
    for uid in ("told", "feeds"):
        assert shop.types("redrive", "sums", uid, "--out-of-order", "--execute")["applied"] == 1
    _run(shop)
    for sink in ("alerts", "echoes"):
        rows = shop.command("sink", "show", "sums", sink, "--json").ok().json
        assert sorted(row["account"] for row in rows) == ["a", "b"], sink
        source = ("sink", "source", "sums", sink, "--checkpoint", "chk-2")
        assert "redriven    payments-0 [0, 1)" in shop.command(*source).ok().out
        (record,) = shop.command(*source, "--records", "1", "--json").ok().json["records"]
        assert [r["offset"] for r in record["records"]] == [0], "its record is read from Kafka"


def test_letters_of_a_topic_that_was_recreated_do_not_reach_a_sink(shop: Shop) -> None:
    shop.send(_payment("a", 1))
    _run(shop)
    shop.line.log.create("payments", 2)
    shop.send(_payment("b", 2, kind=True))
    shop.command("run", "sums", "--accept-loss").ok()
    redrive = ("dead-letters", "redrive", "sums", "told", "--out-of-order")
    shop.command(*redrive).failed(2, "the topic was recreated since", "told emits to a sink")
    shop.send(_payment("c", 3))
    _run(shop)
    shop.deploy("kind: str | None = None")
    assert shop.types(*redrive[1:], "--limit", "1", "--execute")["applied"] == 1, "the older letter takes no place"
    _run(shop)
    rows = shop.command("sink", "show", "sums", "alerts", "--json").ok().json
    assert sorted(row["account"] for row in rows) == ["b", "c"]


def test_the_same_in_python(shop: Shop) -> None:
    shop.send(_payment("a", 1), b"{")
    _run(shop)
    shop.deploy("kind: str | None = None")
    letters = shop.history.dead_letters
    assert [t["letters"] for t in letters.list()["letters"] if t["uid"] == "sums"] == [1, 1]
    assert [letter["today"] for letter in letters.show("sums")] == [None, "malformed_json"]
    with pytest.raises(UsageError):
        letters.redrive("listed")
    with pytest.raises(NotFoundError):
        letters.redrive(RedriveRequest(uid="sums", letters=LetterFilter(reason="null_key")))
    dry = letters.redrive(RedriveRequest(uid="sums", letters=LetterFilter(reason="missing_field")))
    assert (dry.plan["letters"], dry.plan["request"]) == (1, None)
    assert dry.commit()["request"] == 1
    assert letters.withdraw(1).plan["state"] == "waiting"
    assert _run(shop) == {"a": 1}


@pytest.mark.parametrize("begins", ["chk-1", "chk-2"])
def test_a_backfill_applies_each_letter_once(shop: Shop, begins: str) -> None:
    shop.send(_payment("a", 1, kind=True))
    _run(shop)
    shop.send(_payment("a", 2), _payment("b", 3), b"{")
    _run(shop)
    shop.deploy("kind: str | None = None")
    shop.types("redrive", "sums", "sums", "--execute")
    assert _run(shop) == {"a": 3, "b": 3}
    shop.send(_payment("b", 4))
    assert _run(shop) == {"a": 3, "b": 7}
    shop.command("backfill", "sums", "--from-checkpoint", begins, "--mode", "promote", "--execute").ok()
    assert _run(shop) == {"a": 3, "b": 7}
    repeated = {c.plan.replays: c.ack("sums") for c in shop.line.coordinator.checkpoints() if c.plan.replays}
    again = repeated[(3,)]
    # From chk-1 on, the current code applied the two in their place; the third one is a letter of the fork's own line.
    assert again is not None and again.redriven == (1 if begins == "chk-1" else 3)
    assert _totals(shop)["malformed_json"] == (1, 1)
    shop.command("dead-letters", "redrive", "sums", "sums", "--reason", "missing_field").failed(
        3, "no such dead letters"
    )


@pytest.mark.parametrize("asked", ["before", "after"])
def test_an_erasure_takes_letters_also_from_a_request_that_waits(shop: Shop, asked: str) -> None:
    shop.send(_payment("a", 1, kind=True), _payment("a", 2), _payment("b", 3))
    _run(shop)
    if asked == "before":
        assert shop.types("redrive", "sums", "sums", "--execute")["letters"] == 2
    shop.command("erase", "sums", "sums", "--key", "a", "--now", "--execute").ok()
    shop.deploy("kind: str | None = None")
    if asked == "after":
        assert shop.types("redrive", "sums", "sums", "--execute")["letters"] == 1
    assert _run(shop) == {"b": 3}
    ack = next(shop.line.coordinator.checkpoints()).ack("sums")
    assert ack is not None
    assert (ack.redriven, ack.applied, ack.dead_lettered) == (1, 1, 0)
    assert _totals(shop) == {"missing_field: kind": (0, 1)}


def test_letters_are_redriven_from_compacted_files_and_once(shop: Shop) -> None:
    for amount in range(1, 10):
        shop.send(_payment("a", amount), _payment("b", amount, kind=True))
        _run(shop)
    assert shop.line.compact_rows()
    shop.send(_payment("b", 10, kind=True))
    _run(shop)
    handle = _letters(shop)
    assert any(segment.path.endswith("~base") for segment in handle), "a plan has adopted the compaction"
    shop.deploy("kind: str | None = None")
    assert len(shop.types("show", "sums", "sums", "--limit", "50")) == 9
    shop.types("redrive", "sums", "sums", "--limit", "4", "--execute")
    assert _totals(shop) == {"missing_field: kind": (9, 0)}
    assert _run(shop)["b"] == sum(range(1, 11))
    assert _totals(shop) == {"missing_field: kind": (5, 4)}
    shop.types("redrive", "sums", "sums", "--execute")
    shop.line.compact_rows(RowPolicy(runs=1))
    assert _run(shop) == {"a": sum(range(1, 10)), "b": sum(range(1, 11))}
    assert _totals(shop) == {"missing_field: kind": (0, 9)}


def test_a_compaction_makes_no_redriven_letter_open_again_and_loses_no_request(shop: Shop) -> None:
    for amount in range(1, 10):
        shop.send(_payment("a", amount))
        _run(shop)
    shop.deploy("kind: str | None = None")
    shop.types("redrive", "sums", "sums", "--limit", "4", "--execute")
    assert _run(shop) == {"a": 1 + 2 + 3 + 4}
    shop.types("redrive", "sums", "sums", "--limit", "2", "--execute")
    assert shop.line.compact_rows()
    assert _run(shop) == {"a": sum(range(1, 7))}, "one plan adopts the files and takes up the request from before"
    assert any(segment.path.endswith("~base") for segment in _letters(shop))
    assert _totals(shop) == {"missing_field: kind": (3, 6)}
    assert shop.types("redrive", "sums", "sums", "--execute")["letters"] == 3
    assert _run(shop) == {"a": sum(range(1, 10))}


def test_letters_that_wait_for_a_plan_do_not_expire_before_it(shop: Shop) -> None:
    kept = "keep_dead_letters_for=timedelta(hours=1)"

    def checkpoint(*sent: bytes) -> None:
        shop.send(*sent)
        shop.line.pipeline = shop.command.context.pipeline("sums")
        shop.line.checkpoint()
        shop.line.clock.ms += 1_800_000

    shop.deploy("kind: str", more=kept)
    checkpoint(_payment("a", 1))
    checkpoint(_payment("b", 1))
    shop.deploy("kind: str | None = None", more=kept)
    assert shop.types("redrive", "sums", "sums", "--execute")["letters"] == 2
    shop.line.clock.ms += 7_200_000
    checkpoint()
    assert (_letters(shop).expired, _state(shop)) == (0, {"a": 1, "b": 1})
    checkpoint(_payment("c", 1))
    assert (_letters(shop).expired, _state(shop)) == (2, {"a": 1, "b": 1, "c": 1})
    assert _totals(shop) == {}, "the plan after it hides them"


def test_letters_of_released_checkpoints_stay_until_they_are_redriven(shop: Shop) -> None:
    for amount in range(1, 5):
        shop.send(_payment("a", amount), _payment("b", amount, kind=True))
        assert _run(shop) == {"b": sum(range(1, amount + 1))}
    shop.types("redrive", "sums", "sums", "--limit", "1", "--execute")
    for _ in range(3):
        words = ("retention", "apply", "sums", "--keep", "keep_last(1)", "--grace", "0", "--execute")
        shop.command(*words).ok()
    assert len(list(shop.line.coordinator.checkpoints())) == 4, "manifests of released checkpoints stay"
    assert _totals(shop) == {"missing_field: kind": (4, 0)}
    shop.deploy("kind: str | None = None")
    shop.types("redrive", "sums", "sums", "--execute")
    assert _run(shop) == {"a": 10, "b": 10}
    assert _requests(shop) == [(2, 4, "redriven", "chk-5"), (1, 1, "redriven", "chk-5")]
    assert _totals(shop) == {"missing_field: kind": (0, 4)}
