"""What differs from plan to plan is handed to generated code, so that the code of an earlier plan is found and warm."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.readings import LOGICAL_TIME_MS, Reading, plan_of
from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.engine.read.frames import decode, fold
from tidemark.engine.read.observed_batch_stats import ObservedBatchStats
from tidemark.engine.write.parquet_writer import Observed
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.core.ttl import Now


class Device(state.Keyed):
    """Two sums."""

    readings: int = state.count()
    total: int | None = state.sum("count")


MADE = Pipeline(
    name="readings",
    source=KafkaSource("t", Reading, event_time="at"),
    operators=[Fold("devices", key_by="device", state=Device)],
)


def plan(number: int, later_ms: int) -> CheckpointPlan:
    found = plan_of(MADE, number, {TopicPartition("t", 0): (0, number)})
    return replace(found, logical_time_ms=LOGICAL_TIME_MS + later_ms, watermark_ms=LOGICAL_TIME_MS + later_ms - 5)


def run(spark: SparkSession, made_for: CheckpointPlan) -> DataFrame:
    """The whole line of a fold; its source is no table of constants, which Spark would fold away."""
    value = """concat('{"device": "d', id, '", "at": "2020-01-01T00:00:00Z", "count": ', id, '}')"""
    columns = ("'t' AS topic", "0 AS `partition`", "id AS `offset`", "timestamp_millis(id) AS `timestamp`")
    raw = spark.range(3).selectExpr(*columns, "CAST(NULL AS BINARY) AS key", f"CAST({value} AS BINARY) AS value")
    records = ObservedBatchStats(MADE, made_for, "records").on(decode(raw, MADE, made_for, "records"), Observed())
    return fold(records, made_for.schemas["devices"], made_for, Now(event_time_ms=0, logical_time_ms=0))


def code(capsys: pytest.CaptureFixture[str], frame: DataFrame) -> list[str]:
    """The Java texts of its stages."""
    frame.explain("codegen")
    stages = re.split(r"^Generated code:$", capsys.readouterr().out, flags=re.MULTILINE)[1:]
    return [re.split(r"^== Subtree", stage, flags=re.MULTILINE)[0] for stage in stages]


GENERATES = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""As for users; the shared server may interpret expressions (`tests.support.java_options`)."""


@pytest.fixture
def generating(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, in which Spark generates code."""
    before = {name: str(spark.conf.get(name)) for name in GENERATES}
    for name, value in GENERATES.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


def test_two_plans_have_the_same_generated_code(generating: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (code(capsys, run(generating, plan(number, late))) for number, late in ((7, 0), (8, 86_400_000)))
    assert len(first) >= 2
    assert sum("GeneratedIteratorForCodegenStage" in text for text in first) == len(first)
    assert first == second


def test_what_is_handed_over_is_the_plans(spark: SparkSession) -> None:
    rows = run(spark, plan(7, 0)).selectExpr("device", "_changed", "_last_at").orderBy("device").collect()
    assert [tuple(row) for row in rows] == [(f"d{n}", 7, LOGICAL_TIME_MS - 5) for n in range(3)]
