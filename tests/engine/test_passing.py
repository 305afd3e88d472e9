"""A batch is folded, tallied and written by the query that reads it; the long way is the oracle."""

import os
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.engine.kafka_spark_pipeline import KafkaSparkPipeline, OpenAttempt, folders, letters
from tests.engine.test_folding import bodies
from tests.support.kafka import Sent
from tests.support.readings import ByDay, Device, Reading, plan_of
from tidemark import Fold, KafkaSource, Pipeline
from tidemark.engine import compute
from tidemark.engine.read import source
from tidemark.engine.write.parquet_writer import Observed
from tidemark.errors import DataLostError, DeadLettersExceededError, EngineError, StateOverflowError
from tidemark.kafka.log import KafkaLog
from tidemark.model.core.offsets import TopicPartition

pytestmark = pytest.mark.usefixtures("batch_size")
SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
GOOD = {"device": "d", "at": "2020-01-01T00:00:00Z", "count": 1, "group": 1, "ok": True}


def passing(line: KafkaSparkPipeline, *more: str, **options: Any) -> KafkaSparkPipeline:
    """The line with a fold without limits as its first operator."""
    folds = [Fold("days", key_by=("group", "ok"), state=ByDay, **options)]
    folds += [Fold(uid, key_by="device", state=Device) for uid in more]
    line.pipeline = Pipeline(
        name="readings", source=KafkaSource(line.topic, Reading, event_time="at"), operators=folds, max_dead_letters=1.0
    )
    return line


@pytest.mark.parametrize("more", [(), ("devices",)], ids=["alone", "with another"])
def test_the_short_way_finds_what_the_long_one_finds(
    line: KafkaSparkPipeline, more: tuple[str, ...], counted: list[str]
) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    chance = random.Random(SEED)
    sent: list[Any] = [*bodies(chance, 150), b"{", None, b"[1]", {**GOOD, "at": "2999-01-01T00:00:00Z"}]
    chance.shuffle(sent)
    passing(line, *more, deletes=chance.random() < 0.5, where=chance.choice([None, "ok", "count > 1 OR group IS NULL"]))
    line.send(sent)
    plan = line.plan()
    short, long = line.compute().read(plan, folders(plan)), line.compute().read(replace(plan, id=2))
    assert counted == ["records"], "only the long way counts"
    assert (short.facts, short.counts) == (long.facts, long.counts)
    assert short.count_rejected() == long.count_rejected() >= 3
    found = [batch.write_run("days", at) for batch, at in ((short, folders(plan)["days"]), (long, "long/2.1"))]
    rows = [
        pq.read_table(line.root / at / file.path, partitioning=None).drop_columns("_changed").to_pylist()
        for at, run in zip((f"{plan.tables['days']}/runs", "long"), found, strict=True)
        for file in run.files
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == found[0].rows > 1
    for batch in (short, long):
        batch.close()


def test_checkpoints_and_dead_letters_are_those_of_the_records(line: KafkaSparkPipeline) -> None:
    passing(line)
    line.send([GOOD, {**GOOD, "group": None}, b"{", GOOD])
    (ack,) = line.checkpoint().acks
    assert (ack.read, ack.applied, ack.dead_lettered, ack.keys) == (4, 2, 2, 1)
    line.send([GOOD, {**GOOD, "count": 5}])
    line.checkpoint()
    assert [(row["group"], row["readings"], row["total"]) for row in line.state("days")] == [(1, 4, 8)]
    assert [row["reason"] for row in letters(line, "days").to_pylist()] == ["malformed_json", "null_key"]


def test_a_batch_without_a_good_record_leaves_no_run(line: KafkaSparkPipeline) -> None:
    passing(line)
    line.send([b"{", b"{"])
    (ack,) = line.checkpoint().acks
    assert (ack.applied, ack.dead_lettered, ack.keys, len(ack.handle.segments)) == (0, 2, 0, 0)


def test_too_many_dead_letters_are_refused_before_a_commit(line: KafkaSparkPipeline) -> None:
    passing(line)
    line.send([GOOD, b"{"])

    with pytest.raises(DeadLettersExceededError):
        line.execute(OpenAttempt(line.plan()), share=0.1)
    assert not list(line.root.rglob("_delta_log"))


def test_an_overflow_names_the_key(line: KafkaSparkPipeline) -> None:
    passing(line)
    line.send([{**GOOD, "count": 2**62}] * 3)
    with pytest.raises(StateOverflowError, match=r"days: total of key \(1, True\) does not fit"):
        line.checkpoint()


def test_gaps_of_transactions_have_no_records(line: KafkaSparkPipeline, counted: list[str]) -> None:
    passing(line)
    for end in ("abort", "commit"):
        line.topics.transaction(
            line.topic, [Sent(b'{"device":"d","at":"2020-01-01T00:00:00Z","count":1}')] * 3, end=end
        )
    plan = plan_of(line.pipeline, 1, {TopicPartition(line.topic, 0): (0, 8), TopicPartition(line.topic, 1): (0, 0)})
    batch = line.compute().read(plan, folders(plan))
    assert (batch.facts.records, counted) == (3, [])
    batch.close()


@pytest.mark.parametrize("told", ["nothing", "too few", "no record at all"])
def test_what_is_not_told_is_counted(
    line: KafkaSparkPipeline, told: str, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Observed.of

    def of(observed: Observed, name: str) -> Mapping[str, Any]:
        found = real(observed, name)
        if name != "tally" or told == "nothing":
            return found if name != "tally" else {}
        if told == "too few":
            return {**found, "records": found["records"] - 1}
        return {alias: None if "event_time" in alias else 0 for alias in found}

    monkeypatch.setattr(Observed, "of", of)
    passing(line)
    line.send([GOOD] * 6)
    assert line.checkpoint().facts.records == 6
    assert counted == ["records"]


@pytest.mark.parametrize("wrong", ["twice", "elsewhere"])
def test_a_read_that_is_not_exact_is_refused(
    line: KafkaSparkPipeline, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = source.read_ranges

    def read(*of: Any, **options: Any) -> DataFrame:
        raw = real(*of, **options)
        more = raw.where("offset = 1 AND partition = 0")
        return raw.unionAll(more) if wrong == "twice" else raw.withColumn("offset", F.expr("offset + 100"))

    monkeypatch.setattr(compute, "read_ranges", read)
    passing(line)
    line.send([GOOD] * 6)
    with pytest.raises(EngineError, match="inexact read"):
        line.checkpoint()


def test_a_topic_that_is_recreated_before_its_dead_letters_are_read_is_data_loss(
    line: KafkaSparkPipeline, broker: str
) -> None:
    passing(line)
    line.send([GOOD, b"{"] * 3)
    log = KafkaLog(broker)
    plan = replace(line.plan(), topic_ids=log.topic_ids([line.topic]))
    batch = replace(line.compute(), log=log).read(plan, folders(plan))
    line.topics.recreate(line.topic, partitions=2)
    line.topics.produce(line.topic, [Sent(b"{", partition=n % 2) for n in range(6)])
    with pytest.raises(DataLostError, match="recreated"):
        batch.write_dead_letters("days", "letters/1.1")
    batch.close()
