"""Kafka's own fields on Spark: the same values and reasons as in Python, from a real topic, and after a redrive."""

import os
import random
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.engine.kafka_spark_pipeline import KafkaSparkPipeline
from tests.engine.test_redrive import Pair
from tests.support.envelopes import Everything, oracle, random_record
from tests.support.kafka import Sent
from tests.support.readings import plan_of
from tidemark import Fold, KafkaSource, Pipeline, formats, kafka, state
from tidemark.engine.read.frames import decode
from tidemark.model.core.log_records import LogRecord
from tidemark.model.core.offsets import TopicPartition
from tidemark.readers.dead_letter_reader import dead_letters
from tidemark.readers.state_reader import read_state
from tidemark.tables.row_files import read_letters

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
NORTH = [{"key": "tenant", "value": b"north"}]


class All(state.Keyed):
    """How many."""

    n: int = state.count()


@dataclass(frozen=True)
class Payment:
    """A payload, and what Kafka knows of it."""

    amount: int
    tenant: str = kafka.header("tenant")
    account: str | None = kafka.key()
    sent_at: datetime = kafka.timestamp()
    offset: int = kafka.offset()


@dataclass(frozen=True)
class Strict:
    """The buggy release, which reads no header and wants a field that records lack."""

    amount: int
    currency: str
    account: str | None = kafka.key()
    offset: int = kafka.offset()


@dataclass(frozen=True)
class StrictTenant:
    """The next one, which is still wrong, and reads a header."""

    amount: int
    currency: str
    tenant: str = kafka.header("tenant")
    account: str | None = kafka.key()
    offset: int = kafka.offset()


@dataclass(frozen=True)
class Row:
    """A row of CSV."""

    amount: int
    tenant: str = kafka.header("tenant")
    account: str | None = kafka.key()
    offset: int = kafka.offset()


@dataclass(frozen=True)
class Sample:
    """Nothing of the value."""

    amount: int = kafka.offset()
    account: str | None = kafka.key()
    tenant: str = kafka.header("tenant")
    offset: int = kafka.partition()


class Paid(state.Keyed):
    """What an account has paid."""

    total: int = state.sum("amount")
    last: int | None = state.max("offset")


class OfTenant(Paid):
    """What an account has paid, and to whom."""

    tenants: list[str] = state.distinct("tenant")


def test_spark_and_the_oracle_agree_on_every_field(spark: SparkSession) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    chance = random.Random(SEED)
    found = [random_record(chance) for _ in range(2000)]
    made = Pipeline(name="all", source=KafkaSource("t", Everything), operators=[Fold("all", key_by="topic", state=All)])
    frame = decode(_frame(spark, found), made, plan_of(made, 1, {TopicPartition("t", 0): (0, 1)}), "records")
    rows = frame.selectExpr("_reason", "record", "headers").toArrow().to_pylist()
    for (tp, sent), row in zip(found, rows, strict=True):
        answer = oracle(tp, sent)
        assert (row["_reason"] or row["record"]) == answer
        kept = [{"key": name, "value": value} for name, value in sent.headers] or None
        assert row["headers"] == (kept if isinstance(answer, str) else None)


def _frame(spark: SparkSession, found: list[tuple[TopicPartition, LogRecord]]) -> Any:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns = {
        "topic": pa.array([tp.topic for tp, _ in found]),
        "partition": pa.array([tp.partition for tp, _ in found], pa.int32()),
        "offset": pa.array([r.offset for _, r in found], pa.int64()),
        "timestamp": pa.array([r.timestamp_ms * 1000 for _, r in found], pa.timestamp("us", tz="UTC")),
        "key": pa.array([r.key for _, r in found], pa.binary()),
        "value": pa.array([r.value for _, r in found], pa.binary()),
        "headers": pa.array(
            [[{"key": k, "value": v} for k, v in r.headers] or None for _, r in found], pa.list_(header)
        ),
    }
    return spark.createDataFrame(pa.table(columns))


def _release(record: type, state_of: type, **more: Any) -> Pipeline:
    return Pipeline(
        name="payments",
        source=KafkaSource("payments", record, **more),
        operators=[Fold("accounts", key_by="account", state=state_of)],
        max_dead_letters=1.0,
    )


def _put(pair: Pair, value: bytes, key: bytes, *headers: tuple[str, bytes]) -> None:
    for one in pair.both:
        one.log.append(TopicPartition("payments", 0), value, key=key, timestamp_ms=1_000, headers=headers)


def test_dead_letters_keep_their_headers_and_come_back_with_them(spark: SparkSession, tmp_path: Path) -> None:
    pair = Pair(spark, tmp_path, _release(Strict, Paid))
    _put(pair, b'{"amount": 1}', b"a", ("tenant", b"north"))
    first = pair.checkpoint([])
    pair.deploy(_release(StrictTenant, OfTenant))
    _put(pair, b'{"amount": 3}', b"a", ("tenant", b"north"))
    _put(pair, b'{"amount": 4}', b"a", ("tenant", b"north"))
    _put(pair, b'{"amount": 5}', b"b")
    second = pair.checkpoint([])
    held = pair.both[1].letters("accounts", second)
    assert [row["headers"] for row in held] == [None, NORTH, NORTH, None], "headers are kept where one is declared"
    pair.deploy(_release(Payment, OfTenant))
    assert pair.ask("accounts", first, second) == 4
    third = pair.checkpoint([])
    assert [(a.redriven, a.applied, a.dead_lettered) for a in third.sealed.acks] == [(4, 2, 2)]
    (row,) = pair.both[1].state("accounts", third)
    assert (row["account"], row["total"], row["tenants"]) == ("a", 7, ["north"])
    ack = third.ack("accounts")
    assert ack is not None
    found = dead_letters(str(tmp_path), ack.dead_letters, third.id, 10)["rows"]
    assert [letter["reason"] for letter in found] == ["missing_field: tenant"] * 2
    whole = [part for _, part in read_letters(str(tmp_path), ack.dead_letters, ["headers"])]
    assert sum(map(len, whole)) == 6 and sum(part["headers"].null_count for part in whole) == 4


def test_a_real_topic_gives_key_headers_and_timestamp(line: KafkaSparkPipeline) -> None:
    made = _release(Payment, OfTenant)
    line.pipeline = replace(made, source=KafkaSource(line.topic, Payment, event_time="sent_at"))
    values = [
        Sent(b'{"amount": 1}', key=b"a", timestamp_ms=1_000, headers=[("tenant", b"x"), ("tenant", b"north")]),
        Sent(b'{"amount": 2}', key=b"a", timestamp_ms=500, headers=[("other", None), ("tenant", b"south")]),
        Sent(b'{"amount": 4}', key=b"a", timestamp_ms=2_000),
        Sent(b'{"amount": 8}', timestamp_ms=3_000, headers=[("tenant", b"north")]),
    ]
    line.topics.produce(line.topic, values)
    line.ends[0] += len(values)
    sealed = line.checkpoint()
    (ack,) = sealed.acks
    rows = read_state(str(line.root), line.pipeline.schemas()["accounts"], ack.handle, line.now).to_pylist()
    assert [(r["account"], r["total"], r["tenants"], r["last"]) for r in rows] == [("a", 3, ["north", "south"], 1)]
    found = dead_letters(str(line.root), ack.dead_letters, 1, 10)["rows"]
    assert [(r["offset"], r["reason"]) for r in found] == [(2, "missing_field: tenant"), (3, "null_key")]
    assert sealed.facts.watermark_ms == 3_000
    kept = [row for _, part in read_letters(str(line.root), ack.dead_letters, ["headers"]) for row in part.to_pylist()]
    assert kept == [{"headers": None}, {"headers": NORTH}]


def test_a_format_in_python_workers_has_the_envelope_too(spark: SparkSession, tmp_path: Path) -> None:
    for record, folder in ((Row, "csv"), (Sample, "none")):
        pair = Pair(spark, tmp_path / folder, _release(record, OfTenant, format=formats.Csv("amount")))
        _put(pair, b"3", b"a", ("tenant", b"north"))
        _put(pair, b"4", b"a")
        done = pair.checkpoint([None])
        (ack,) = done.sealed.acks
        assert (ack.applied, ack.dead_lettered) == (1, 2)
        (row,) = pair.both[1].state("accounts", done)
        assert row["total"] == (3 if record is Row else 0), "the offset of the first record is 0"
