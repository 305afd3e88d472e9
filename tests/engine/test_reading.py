"""Reading a plan's ranges from real Kafka: exactly those records, or a typed error, never a silent gap."""

import json
import shutil
import subprocess
import time

import pytest
from pyspark.sql import SparkSession

from devstack import control
from tests.engine.kafka_spark_pipeline import KafkaSparkPipeline, OpenAttempt
from tests.support.kafka import Sent
from tests.support.prerequisites import missing
from tests.support.readings import plan_of
from tests.support.spark_warehouse import warehouse_of
from tidemark.engine.compute import SparkCompute
from tidemark.engine.read import source
from tidemark.engine.read.source import KafkaOptions
from tidemark.engine.session.session import SparkSettings, end_session, open_session
from tidemark.errors import BrokerError, DataLostError, EngineError
from tidemark.kafka.log import KafkaLog
from tidemark.model.core.offsets import TopicPartition
from tidemark.settings import Settings

CONSUMER = "org.apache.kafka.clients.consumer"
BODY = {"device": "d", "at": "2020-01-01T00:00:00Z", "count": 1}


def test_only_the_planned_range_is_read(line: KafkaSparkPipeline) -> None:
    line.send([{**BODY, "count": n} for n in range(20)])
    ranges = {TopicPartition(line.topic, 0): (2, 5), TopicPartition(line.topic, 1): (3, 3)}
    batch = line.compute().read(plan_of(line.pipeline, 1, ranges))
    assert batch.facts.records == 3
    assert batch.facts.watermark_ms == 1577836800000
    assert batch.counts["devices"].applied == 3
    batch.close()


def test_spark_soon_forgets_the_records_it_polled(line: KafkaSparkPipeline, spark_stack: Settings) -> None:
    if shutil.which("jcmd") is None:
        missing("no jcmd here: install a JDK 17, not only its runtime")
    records = 5_000
    line.send([{**BODY, "count": n} for n in range(records)])
    batch = line.compute().read(line.plan())
    assert batch.facts.records == records
    batch.close()
    server = next(service.pid for service in control.status(spark_stack) if service.name == "spark")
    until = time.monotonic() + 30
    while (left := _polled_records_in(server)) >= records and time.monotonic() < until:
        time.sleep(1)
    assert left < records, "Spark's default keeps them for five minutes, whatever the heap is"


def _polled_records_in(java: int | None) -> int:
    """How many records of Kafka's consumer a Java process can still reach."""
    command = ["jcmd", str(java), "GC.class_histogram"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    return sum(int(line.split()[1]) for line in lines if line.split()[3:4] == [f"{CONSUMER}.ConsumerRecord"])


def test_an_empty_plan_asks_neither_spark_nor_kafka(line: KafkaSparkPipeline) -> None:
    compute = SparkCompute(
        pipeline=line.pipeline,
        warehouse=warehouse_of(None, line.root),  # type: ignore[arg-type]  # nobody may touch the session
        kafka=KafkaOptions(bootstrap="127.0.0.1:1"),
    )
    sealed_plan = plan_of(line.pipeline, 1, {TopicPartition(line.topic, 0): (7, 7)})
    batch = compute.read(sealed_plan)
    assert (batch.facts.records, batch.facts.watermark_ms) == (0, None)
    assert batch.counts["days"].dead_lettered == 0
    assert batch.judge({}).passed
    batch.close()


def test_aborted_records_are_not_read_and_a_range_of_them_is_empty(line: KafkaSparkPipeline) -> None:
    body = json.dumps(BODY).encode()
    line.topics.transaction(line.topic, [Sent(body)] * 3, end="abort")
    line.topics.transaction(line.topic, [Sent(body)] * 2, end="commit")
    aborted = plan_of(line.pipeline, 1, {TopicPartition(line.topic, 0): (0, 4)})
    both = plan_of(line.pipeline, 1, {TopicPartition(line.topic, 0): (0, 7)})
    for plan, records in ((aborted, 0), (both, 2)):
        batch = line.compute().read(plan)
        assert batch.facts.records == records
        batch.close()


def test_a_long_range_of_one_partition_is_read_by_several_tasks_and_nothing_twice(
    line: KafkaSparkPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "READ_TASK", 7)
    body = json.dumps(BODY).encode()
    line.topics.transaction(line.topic, [Sent(body)] * 10, end="abort")
    line.topics.transaction(line.topic, [Sent(body)] * 20, end="commit")
    plan = plan_of(line.pipeline, 1, {TopicPartition(line.topic, 0): (0, 32), TopicPartition(line.topic, 1): (0, 0)})
    (name,) = line.pipeline.inputs
    rows = source.read_ranges(line.spark, plan, name, KafkaOptions(bootstrap=line.kafka.bootstrap))
    found = rows.selectExpr("offset", "spark_partition_id() AS task").collect()
    assert sorted(row["offset"] for row in found) == [*range(11, 31)]
    assert len({row["task"] for row in found}) == 4, "the first of five tasks has aborted records only"
    batch = line.compute().read(plan)
    assert batch.facts.records == 20
    batch.close()
    line.topics.trim(line.topic, 15)
    with pytest.raises(DataLostError):
        line.compute().read(plan)


def test_trimmed_offsets_are_data_loss(line: KafkaSparkPipeline) -> None:
    line.send([BODY] * 10)
    plan = line.plan()
    line.topics.trim(line.topic, 3)
    with pytest.raises(DataLostError):
        line.compute().read(plan)


def test_a_range_beyond_the_log_is_data_loss(line: KafkaSparkPipeline) -> None:
    line.send([BODY] * 4)
    with pytest.raises(DataLostError):
        line.compute().read(plan_of(line.pipeline, 1, {TopicPartition(line.topic, 0): (0, 50)}))


def test_a_deleted_topic_is_data_loss(line: KafkaSparkPipeline) -> None:
    line.send([BODY] * 4)
    plan = line.plan()
    line.topics.delete(line.topic)
    with pytest.raises(DataLostError):
        line.compute().read(plan)


def test_a_recreated_topic_is_data_loss_although_spark_reads_it(line: KafkaSparkPipeline, broker: str) -> None:
    line.send([BODY] * 4)
    plan = line.plan()
    compute = SparkCompute(
        pipeline=line.pipeline,
        warehouse=warehouse_of(line.spark, line.root),
        kafka=line.kafka,
        log=KafkaLog(broker),
    )
    with pytest.raises(DataLostError, match="recreated"):
        compute.read(plan)


def test_a_broker_that_is_down_is_said_in_words(line: KafkaSparkPipeline) -> None:
    line.send([BODY] * 2)
    compute = SparkCompute(
        pipeline=line.pipeline,
        warehouse=warehouse_of(line.spark, line.root),
        kafka=KafkaOptions(
            bootstrap="127.0.0.1:1",
            poll_timeout_ms=2_000,
            client={"default.api.timeout.ms": "3000", "request.timeout.ms": "2000"},
        ),
    )
    with pytest.raises((BrokerError, DataLostError)) as caught:
        compute.read(line.plan())
    assert caught.type is BrokerError


def test_the_next_attempt_closes_the_session_of_the_one_before(spark_settings: SparkSettings) -> None:
    if not spark_settings.is_connect:
        missing("a Connect server: classic drivers have no sessions to close")
    zombie = open_session(spark_settings, "readings/chk-9", 1)
    assert zombie.range(3).count() == 3
    end_session(spark_settings, "readings/chk-9", 1)
    end_session(spark_settings, "readings/chk-9", 1)
    with pytest.raises(Exception, match="SESSION_(CLOSED|CHANGED)|INVALID_HANDLE"):
        zombie.range(3).count()
    with pytest.raises(EngineError):
        open_session(spark_settings, "readings/chk-9", 1)
    successor: SparkSession = open_session(spark_settings, "readings/chk-9", 2)
    assert successor.range(3).count() == 3
    successor.stop()


def test_a_failed_read_leaves_nothing_behind(line: KafkaSparkPipeline) -> None:
    line.send([BODY] * 4)
    plan = line.plan()
    line.topics.trim(line.topic, 2)
    with pytest.raises(DataLostError):
        line.execute(OpenAttempt(plan))
    assert not line.root.exists()
