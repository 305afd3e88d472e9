"""Reads exactly the offset ranges of a plan from Kafka: `assign` with concrete offsets."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from tidemark.engine.session.parallelism import READ_TASK
from tidemark.errors import DataLostError
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.offsets import OffsetRange, OffsetRanges


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """How Spark reaches Kafka.

    Attributes:
        bootstrap: bootstrap servers, as the executors see them.
        poll_timeout_ms: a read fails after this long without an answer (Spark's default is 120 s).
        client: further consumer options without the prefix `kafka.`, such as `security.protocol`.
    """

    bootstrap: str
    poll_timeout_ms: int = 30_000
    client: Mapping[str, str] = field(default_factory=dict, repr=False)


_CLIENT: Mapping[str, str] = {
    "fetch.max.wait.ms": "1",
    "max.poll.records": "50000",
    "max.partition.fetch.bytes": str(8 * 2**20),
}
"""Differences from Kafka's defaults. After each poll Spark asks for the first and last offset of the partition, and the
broker answers only when it has answered the consumer's next fetch: after `fetch.max.wait.ms`, if no records are left.
So polls are few and large, and a bounded read does not wait for records beyond its end (`benchmarks/read_wait.py`
measures it)."""


def read_ranges(
    spark: SparkSession, plan: CheckpointPlan, name: str, options: KafkaOptions, *, headers: bool = False
) -> DataFrame:
    """Returns the records in the ranges of one input, not all empty; nothing is read before an action.

    `failOnDataLoss` stays at its default, true: with false, Spark silently skips trimmed offsets.
    """
    ranges = plan.ranges_of(name)
    reader = (
        spark.read.format("kafka")
        .option("assign", json.dumps(_per_topic(ranges, None)))
        .option("startingOffsets", json.dumps(_per_topic(ranges, lambda r: r.start)))
        .option("endingOffsets", json.dumps(_per_topic(ranges, lambda r: r.end)))
        .option("kafka.isolation.level", plan.isolation)
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("maxRecordsPerPartition", str(READ_TASK))
        .option("kafkaConsumer.pollTimeoutMs", str(options.poll_timeout_ms))
        .option("groupIdPrefix", f"tidemark-{plan.pipeline}")
        .option("includeHeaders", str(headers).lower())
    )
    for name, value in {**_CLIENT, **options.client}.items():
        reader = reader.option(f"kafka.{name}", value)
    return reader.load()


def _per_topic(ranges: OffsetRanges, bound: Callable[[OffsetRange], int] | None) -> dict[str, object]:
    if bound is None:
        partitions: dict[str, list[int]] = defaultdict(list)
        for tp in ranges:
            partitions[tp.topic].append(tp.partition)
        return dict(partitions)
    offsets: dict[str, dict[str, int]] = defaultdict(dict)
    for tp, found in ranges.items():
        offsets[tp.topic][str(tp.partition)] = bound(found)
    return dict(offsets)


def refuse_recreated(planned: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Spark ignores topic ids: it reads the old range from a new topic of the same name without an error.

    Args:
        planned: the plan's ids of the topics that were read.
        now: the current ids; a topic that no longer exists is left out.

    Raises:
        DataLostError: a topic has a different id than in the plan.
    """
    for topic, then in planned.items():
        if now.get(topic) != then:
            raise DataLostError(
                f"data lost: topic {topic} was deleted or recreated while it was read: its id was {then}"
                f" and is now {now.get(topic, 'none')}",
                safe="every completed checkpoint is intact; nothing was published.",
                next="run the pipeline again: its planner names the exact gap, and --accept-loss records it.",
            )
