"""One Spark session for all tests of the engine, and what they need around it."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.engine.kafka_spark_pipeline import KafkaSparkPipeline
from tests.support.kafka import Topics
from tidemark.engine.read import batch_reader, observed_batch_stats
from tidemark.engine.read.batch_stats import count_batch
from tidemark.engine.session.session import SparkSettings, open_session
from tidemark.formats import Json

Raw = Callable[[Sequence[bytes | None]], DataFrame]


@pytest.fixture(scope="session")
def spark_settings(spark_server: str) -> SparkSettings:
    """The shared Connect server."""
    return SparkSettings(master=spark_server)


@pytest.fixture(scope="session")
def spark(spark_settings: SparkSettings) -> Iterator[SparkSession]:
    """A session as every attempt has one."""
    session = open_session(spark_settings, f"tests/{uuid.uuid4().hex}", 1)
    yield session
    session.stop()


@pytest.fixture
def raw(spark: SparkSession) -> Raw:
    """`raw(values)`: what a Kafka read would give, one record per value, offsets from 0."""

    def made(values: Sequence[bytes | None]) -> DataFrame:
        table = pa.table(
            {
                "offset": pa.array(range(len(values)), pa.int64()),
                "key": pa.array([None] * len(values), pa.binary()),
                "value": pa.array(values, pa.binary()),
            }
        )
        frame = spark.createDataFrame(table)
        return frame.selectExpr(
            "'t' AS topic", "0 AS partition", "offset", "TIMESTAMP '2020-01-01T00:00:00Z' AS timestamp", "key", "value"
        )

    return made


@pytest.fixture
def line(spark: SparkSession, broker: str, topics: Topics, tmp_path: Path) -> KafkaSparkPipeline:
    """A pipeline over a fresh topic, whose checkpoints are made by the real job with plans by hand."""
    return KafkaSparkPipeline(spark, broker, topics, tmp_path)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The inputs that were counted by a query of their own."""
    names: list[str] = []

    def noted(inputs: Mapping[str, DataFrame], *given: Any, **named: Any) -> Any:
        names.extend(inputs)
        return count_batch(inputs, *given, **named)

    monkeypatch.setattr(batch_reader, "count_batch", noted)
    return names


@pytest.fixture(params=["small", "large"])
def batch_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test as for small batches and as for large ones, which workers decode and report."""
    found: str = request.param
    if found == "large":
        monkeypatch.setattr(observed_batch_stats, "_PARTITIONS", 0)
        monkeypatch.setattr(Json, "workers_from", 0)
    return found
