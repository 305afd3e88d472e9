"""Records of erased keys through the real job: Kafka, Spark, Delta; files of Spark written again without a key."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pyarrow.parquet as pq
import pytest

from tests.engine.kafka_spark_pipeline import PARTITIONS, KafkaSparkPipeline
from tests.support.kafka import Sent
from tidemark import Fold, KafkaSource, Pipeline, Sliding, Tumbling, state
from tidemark.engine.write.parquet_writer import written_run
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.retention.erasure import BlockedKey, ErasedKey
from tidemark.tables.key_rewriter import ParquetKeyFiles


@dataclass(frozen=True)
class Price:
    """One record."""

    sku: str
    shop: int
    at: datetime
    cents: int | None = None


class Known(state.Keyed):
    """What is remembered."""

    n: int = state.count()
    seen: list[int] = state.list("cents")
    last: datetime = state.max("at")


AT = datetime(2024, 5, 1, 12, 30, 0, 123456, UTC)


def test_blocked_records_are_neither_applied_nor_dead_letters(
    line: KafkaSparkPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.pipeline = Pipeline(
        name="prices",
        source=KafkaSource(line.topic, Price),
        operators=[
            Fold("skus", key_by="sku", state=Known, deletes=True),
            Fold("places", key_by=("shop", "sku"), state=Known),
            Fold("times", key_by="at", state=Known),
        ],
        max_dead_letters=1.0,
        max_future=timedelta(days=40_000),
    )
    sent = []
    for n, sku in enumerate("aabbaa'c"):
        at = AT + timedelta(seconds=n % 2)
        body = f'{{"sku":"{sku}","shop":{n % 2},"at":"{at.isoformat()}","cents":{n}}}'
        sent.append(Sent(body.encode(), key=b"x", partition=n % PARTITIONS))
        line.ends[n % PARTITIONS] += 1
    sent.append(Sent(None, key=b"a", partition=0))
    line.ends[0] += 1
    line.topics.produce(line.topic, sent)
    # Offsets of a: 0 and 2 of both partitions; its delete is at 4 of the first one.
    ends = {TopicPartition(line.topic, 0): 2, TopicPartition(line.topic, 1): 1}
    blocked = (
        BlockedKey(uid="skus", key=("a",), ends=None),
        BlockedKey(uid="skus", key=("'",), ends={}),
        BlockedKey(uid="places", key=(0, "a"), ends=ends),
        BlockedKey(uid="times", key=(AT,), ends=None),
    )
    made = line.compute()
    monkeypatch.setattr(line, "compute", lambda: replace(made, blocked=lambda plan: blocked))
    skus, places, times = line.checkpoint().acks
    assert (skus.read, skus.applied, skus.dead_lettered) == (4, 4, 0)
    assert {r["sku"]: r["n"] for r in line.state("skus")} == {"b": 2, "'": 1, "c": 1}
    assert (places.read, places.applied, places.dead_lettered) == (8, 7, 1)
    assert {(r["shop"], r["sku"]): r["seen"] for r in line.state("places")} == {
        (0, "a"): [4], (1, "a"): [1, 5], (0, "b"): [2], (1, "b"): [3], (0, "'"): [6], (1, "c"): [7],
    }  # fmt: skip
    assert (times.read, times.applied, times.dead_lettered) == (5, 4, 1)
    assert [r["at"] for r in line.state("times")] == [AT + timedelta(seconds=1)]
    _written_again(line, "places", (0, "b"))
    _written_again(line, "times", (AT + timedelta(seconds=1),))


def _written_again(line: KafkaSparkPipeline, uid: str, values: tuple[object, ...]) -> None:
    """Every other row of a run is bit for bit what it was, in columns of the same types."""
    (segment,) = line.handles[uid]
    key = ErasedKey.of(line.pipeline.schemas()[uid], values)
    files = ParquetKeyFiles(warehouse=str(line.root), footers=written_run)
    held = line.tables.files_of(segment)
    assert sum(files.rows_of(segment.path, f, key) for f in held) == 1
    made = files.without(segment.path, held, key, f"{segment.path}/erasure.1.w")
    for f in held:
        before = pq.read_table(line.root / segment.path / f.path, partitioning=None)
        again = made[f.path]
        left = [r for r in before.to_pylist() if tuple(r[name] for name in key.columns) != values]
        if again is None:
            assert left == []
            continue
        after = pq.read_table(line.root / segment.path / again.path, partitioning=None)
        assert after.schema.equals(before.schema, check_metadata=False)
        assert (after.to_pylist(), again.rows) == (left, len(left))


def test_the_records_of_a_key_are_blocked_in_all_its_windows(
    line: KafkaSparkPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.pipeline = Pipeline(
        name="prices",
        source=KafkaSource(line.topic, Price, event_time="at"),
        operators=[
            Fold("hours", key_by="sku", state=Known, window=Tumbling("1h"), lateness="1d"),
            Fold("sliding", key_by="sku", state=Known, window=Sliding("1h", every="30m"), lateness="1d"),
        ],
        max_future=timedelta(days=40_000),
    )
    sent = []
    for n, sku in enumerate("aabbaa"):
        at = AT + timedelta(hours=n % 3)
        sent.append(Sent(f'{{"sku":"{sku}","shop":1,"at":"{at.isoformat()}"}}'.encode(), partition=0))
        line.ends[0] += 1
    line.topics.produce(line.topic, sent)
    blocked = (
        BlockedKey(uid="hours", key=("a",), ends={TopicPartition(line.topic, 0): 2}),
        BlockedKey(uid="sliding", key=("a",), ends=None),
    )
    made = line.compute()
    monkeypatch.setattr(line, "compute", lambda: replace(made, blocked=lambda plan: blocked))
    hours, sliding = line.checkpoint().acks
    assert (hours.applied, sliding.applied) == (4, 2)
    assert sorted((r["sku"], r["n"]) for r in line.state("hours")) == [("a", 1), ("a", 1), ("b", 1), ("b", 1)]
    assert {r["sku"] for r in line.state("sliding")} == {"b"}
