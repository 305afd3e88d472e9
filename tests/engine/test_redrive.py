"""Redriven letters on Spark and on the twin: the same states, letters and counts."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.redrive.asking import ask, rows_of
from tests.redrive.redrive_walk import Lenient, Strict, Sums
from tests.support.spark import SparkPipeline, TwinPipeline
from tidemark import Fold, KafkaSource, Pipeline, Process, Watermark, state
from tidemark.declare.pipeline import Broadcast
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.retention.erasure import BlockedKey

pytestmark = pytest.mark.usefixtures("batch_size")


class Listed(state.Keyed):
    """Fields that depend on arrival."""

    n: int = state.count()
    amounts: list[int] = state.list("amount")
    recent: int | None = state.latest("amount", ttl=timedelta(hours=1))


@dataclass(frozen=True)
class StrictShop:
    """A broadcast record."""

    account: str
    owner: str
    city: str


@dataclass(frozen=True)
class Shop:
    """The same of the corrected release."""

    account: str
    owner: str
    city: str | None


@dataclass(frozen=True)
class Echo:
    """What the process emits."""

    account: str
    amount: int


class Watched(state.Keyed):
    """A process's state."""

    total: int = state.value(0)


class Echoes(state.Keyed):
    """A fold of emitted records."""

    records: int = state.count()


def fails_above_five(key: str, records: Iterable[Lenient], kept: Watched) -> Iterator[Echo]:
    """The buggy release."""
    for record in records:
        if record.amount > 5:
            raise ValueError("too much")
        kept.total += record.amount
        yield Echo(key, record.amount)


def fails_at_nine(key: str, records: Iterable[Lenient], kept: Watched) -> Iterator[Echo]:
    """The corrected release, nearly."""
    for record in records:
        if record.amount == 9:
            raise ValueError("nine")
        kept.total += record.amount
        yield Echo(key, record.amount)


class Pair:
    """The same steps on both engines, compared after each checkpoint."""

    def __init__(self, spark: SparkSession, root: Path, pipeline: Pipeline) -> None:
        self.both: tuple[TwinPipeline, TwinPipeline] = (
            TwinPipeline(pipeline),
            SparkPipeline(pipeline, spark=spark, root=root),
        )
        self.twins: dict[int, Checkpoint] = {}

    def deploy(self, pipeline: Pipeline) -> None:
        """Another release."""
        for one in self.both:
            one.pipeline = pipeline

    def checkpoint(self, records: Sequence[Any]) -> Checkpoint:
        """A checkpoint of both; returns that of Spark."""
        twin, spark = (one.checkpoint(records) for one in self.both)
        self.twins[spark.id] = twin
        for uid in spark.plan.schemas:
            mine, other = twin.ack(uid), spark.ack(uid)
            assert mine is not None and other is not None
            counts = [(a.read, a.redriven, a.applied, a.dead_lettered, a.keys) for a in (mine, other)]
            assert counts[0] == counts[1], uid
            assert self.both[0].state(uid, twin) == self.both[1].state(uid, spark)
            assert self.both[0].letters(uid, twin) == self.both[1].letters(uid, spark)
        assert twin.sealed.facts == spark.sealed.facts
        assert set(spark.sealed.facts.clocks) == set(spark.plan.clocks)
        assert twin.sealed.rejected == spark.sealed.rejected
        assert twin.plan.redrives == spark.plan.redrives
        return spark

    def ask(self, uid: str, *made: Checkpoint) -> int:
        """Requests all letters of an operator that checkpoints wrote; returns their number."""
        wanted = {row for checkpoint in made for row in rows_of(self.twins[checkpoint.id], uid, self.both[0].tables)}
        for one in self.both:
            ask(one.coordinator, uid, wanted, one.ids)
        return len(wanted)


def _folds(record: type, **more: Any) -> Pipeline:
    return Pipeline(
        name="sums",
        source=KafkaSource("payments", record, watermark=Watermark(delay="1s")),
        operators=[
            Fold("sums", key_by="account", state=Sums),
            Fold("listed", key_by="account", state=Listed, deletes=True),
        ],
        max_dead_letters=1.0,
        **more,
    )


def _raw(account: str | None, amount: int, *, kind: bool = False) -> bytes:
    record = {"account": account, "amount": amount} | ({"kind": ""} if kind else {})
    return json.dumps({name: value for name, value in record.items() if value is not None}).encode()


def test_redriven_letters_are_folded_as_the_twin_folds_them(spark: SparkSession, tmp_path: Path) -> None:
    pair = Pair(spark, tmp_path, _folds(Strict))
    first = pair.checkpoint([_raw("a", 1, kind=True), _raw("a", 2), _raw("b", 3), b"{", _raw(None, 4, kind=True)])
    second = pair.checkpoint([_raw("a", 5), _raw("c", 6), _raw("a", 7, kind=True)])
    pair.deploy(_folds(Lenient))
    assert pair.ask("sums", first, second) == 6
    third = pair.checkpoint([_raw("a", 8), b"["])
    ack = third.ack("sums")
    assert ack is not None
    assert (ack.read, ack.redriven, ack.applied, ack.dead_lettered) == (2, 6, 5, 3)
    assert third.ack("listed") is not None and third.ack("listed").redriven == 0  # type: ignore[union-attr]
    found = {row["account"]: (row["records"], row["total"]) for row in pair.both[1].state("sums", third)}
    assert found == {"a": (5, 23), "b": (1, 3), "c": (1, 6)}
    # Nothing but letters: those that depend on arrival, and those that were refused again.
    pair.ask("listed", first, second)
    assert pair.ask("sums", third) == 3, "two that were refused again, and a new one"
    fourth = pair.checkpoint([])
    assert [(a.read, a.redriven) for a in fourth.sealed.acks] == [(0, 3), (0, 6)]
    assert fourth.sealed.facts.records == 0


def test_letters_of_a_second_operator_come_with_new_records(spark: SparkSession, tmp_path: Path) -> None:
    pair = Pair(spark, tmp_path, _folds(Strict))
    first = pair.checkpoint([_raw("a", 1, kind=True), _raw("a", 2), _raw("b", 3)])
    pair.deploy(_folds(Lenient))
    assert pair.ask("listed", first) == 2
    second = pair.checkpoint([_raw("a", 4), _raw("c", 5)])
    ack = second.ack("listed")
    assert ack is not None
    assert (ack.read, ack.redriven, ack.applied, ack.dead_lettered) == (2, 2, 4, 0)


def test_a_process_gets_its_failures_again(spark: SparkSession, tmp_path: Path) -> None:
    def release(function: Any) -> Pipeline:
        watch = Process("watch", key_by="account", state=Watched, function=function, emits=Echo, on_error="dead_letter")
        return replace(
            _folds(Lenient), operators=[watch, Fold("echoes", key_by="account", state=Echoes, input="watch")]
        )

    pair = Pair(spark, tmp_path, release(fails_above_five))
    amounts = [(account, amount) for amount in (2, 6, 7, 9) for account in "ab"]
    first = pair.checkpoint([Lenient(account, amount, None) for account, amount in amounts])
    second = pair.checkpoint([Lenient("a", 8, None)])
    pair.deploy(release(fails_at_nine))
    assert pair.ask("watch", first, second) == 7
    third = pair.checkpoint([Lenient("b", 9, None), Lenient("b", 1, None)])
    ack, echoes = third.ack("watch"), third.ack("echoes")
    assert ack is not None and echoes is not None
    assert (ack.read, ack.redriven, ack.applied, ack.dead_lettered) == (2, 7, 6, 3)
    assert (echoes.read, echoes.redriven, echoes.applied) == (6, 0, 6)
    found = [(row["account"], row["records"]) for row in pair.both[1].state("echoes", third)]
    assert found == [("a", 4), ("b", 4)]


def test_failures_that_fail_again_do_not_stop_a_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    def release(most: float) -> Pipeline:
        watch = Process(
            "watch", key_by="account", state=Watched, function=fails_above_five, emits=Echo, on_error="dead_letter"
        )
        return replace(_folds(Lenient), operators=[watch], max_dead_letters=most)

    pair = Pair(spark, tmp_path, release(1.0))
    first = pair.checkpoint([Lenient("a", 9, None)])
    pair.deploy(release(0.0))
    pair.ask("watch", first)
    second = pair.checkpoint([Lenient("a", 1, None)])
    assert [(a.read, a.redriven, a.dead_lettered) for a in second.sealed.acks] == [(1, 1, 1)]


def test_letters_of_erased_keys_stay_out(spark: SparkSession, tmp_path: Path) -> None:
    pair = Pair(spark, tmp_path, _folds(Strict))
    first = pair.checkpoint([_raw("a", 1), _raw("b", 2), _raw("a", 3, kind=True)])
    pair.deploy(_folds(Lenient))
    for one in pair.both:
        one.blocked = lambda plan: (BlockedKey(uid="sums", key=("a",), ends=None),)
    pair.ask("sums", first)
    second = pair.checkpoint([_raw("b", 4)])
    ack = second.ack("sums")
    assert ack is not None
    assert (ack.read, ack.redriven, ack.applied, ack.dead_lettered) == (1, 1, 2, 0)
    assert second.plan.redrives[0].count == 2, "both are redriven, and one of them counts"


def test_a_letter_that_a_join_refused_finds_its_row_later(spark: SparkSession, tmp_path: Path) -> None:
    def release(shop: type) -> Pipeline:
        return replace(
            _folds(Lenient),
            operators=[Fold("owners", key_by="shops.owner", state=Sums, join={"shops": "account"})],
            broadcast=[Broadcast("shops", KafkaSource("shops", shop), key_by="account")],
        )

    pair = Pair(spark, tmp_path, release(StrictShop))
    bad = ("shops", b'{"account":"a","owner":"x"}')
    first = pair.checkpoint([Lenient("a", 1, None), Lenient("b", 2, None), StrictShop("b", "x", "y"), bad])
    assert [(a.read, a.dead_lettered) for a in first.sealed.acks] == [(2, 1), (2, 1)]
    pair.deploy(release(Shop))
    # The letter of the broadcast state becomes the row that the letter of the fold was lacking.
    pair.ask("shops", first)
    pair.ask("owners", first)
    second = pair.checkpoint([])
    assert [(a.redriven, a.applied) for a in second.sealed.acks] == [(1, 1), (1, 1)]
    found = [(row["records"], row["total"]) for row in pair.both[1].state("owners", second)]
    assert found == [(2, 3)]


@dataclass(frozen=True)
class Detail:
    """A struct in an emitted record."""

    note: str | None
    at: datetime


@dataclass(frozen=True)
class Rich:
    """An emitted record with a value of every kind that JSON has no number or text for."""

    account: str | None
    amount: int
    price: Decimal
    raw: bytes
    day: date
    details: list[Detail]
    share: float


class Parts(state.Keyed):
    """A fold of emitted records, in their order."""

    n: int = state.count()
    last: int | None = state.latest("amount")


def enrich(key: str, records: Iterable[Lenient], kept: Watched) -> Iterator[Rich]:
    """Emits two records for each: one for its account, and one for nobody or for the next letter."""
    for record in records:
        at = datetime(2026, 5, 1, 3, 4, 5, 678901, tzinfo=UTC)
        rest = (Decimal("-0.000000000000000001"), b"\x00\xff", date(1999, 12, 31), [Detail(None, at)], 0.1)
        yield Rich(key, record.amount, *rest)
        yield Rich(None if record.kind is None else key, 2 * record.amount, *rest)


def watch_rich(key: str, records: Iterable[Rich], kept: Watched) -> None:
    """The buggy release."""
    for record in records:
        if record.amount > 5:
            raise ValueError("too much")
        kept.total += record.amount


def watch_all(key: str, records: Iterable[Rich], kept: Watched) -> None:
    """The corrected release."""
    for record in records:
        assert record.details[0].at.microsecond == 678901 and record.price < 0
        kept.total += record.amount


def test_emitted_records_are_redriven_alike(spark: SparkSession, tmp_path: Path) -> None:
    def release(key: str, function: Any) -> Pipeline:
        return Pipeline(
            name="rich",
            source=KafkaSource("payments", Lenient),
            operators=[
                Process("enrich", key_by="account", state=Watched, function=enrich, emits=Rich),
                Fold("parts", input="enrich", key_by=key, state=Parts),
                Process(
                    "watched", input="enrich", key_by=key, state=Watched, function=function, on_error="dead_letter"
                ),
            ],
            max_dead_letters=1.0,
        )

    pair = Pair(spark, tmp_path, release("account", watch_rich))
    first = pair.checkpoint([Lenient("a", 3, None), Lenient("b", 4, "x"), Lenient("a", 7, None)])
    counts = {ack.uid: (ack.applied, ack.dead_lettered) for ack in first.sealed.acks}
    assert counts["parts"] == (4, 2) and counts["watched"] == (2, 4)
    pair.deploy(release("account", watch_all))
    assert (pair.ask("parts", first), pair.ask("watched", first)) == (2, 4)
    made = pair.checkpoint([Lenient("c", 1, "x")])
    found = {ack.uid: (ack.read, ack.redriven, ack.applied, ack.dead_lettered) for ack in made.sealed.acks}
    assert found["parts"] == (2, 2, 2, 2) and found["watched"] == (2, 4, 4, 2)
    again = pair.checkpoint([])
    assert not again.plan.redrives
