"""Records per second by format: a part of `make bench`, written to docs/benchmarks/format-rate.json.

Each format has the same million updates in a topic of its own. The formats take turns, and the medians of the rounds
count. `decoded` reads and decodes; `tallied` also counts what a manifest says of a batch; `checkpoint` is all of a
checkpoint with one fold, whose state numpy checks. JSON is decoded by Spark's expressions too, which small batches use
and which all batches used before ADR 0051. A condition that drops nine of ten records is compared with decoding them
all and folding a tenth.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from pyspark.sql import DataFrame, SparkSession

from benchmarks import generator
from benchmarks.bench import create_topic
from benchmarks.facts import made_by
from benchmarks.report import FOLDER
from devstack import control
from tests.support.readings import plan_of
from tidemark import Fold, KafkaSource, Pipeline, formats, state
from tidemark.context import Context, open_context
from tidemark.engine.read.batch_stats import count_batch
from tidemark.engine.read.frames import decode, fold
from tidemark.engine.read.source import KafkaOptions, read_ranges
from tidemark.engine.session.session import SparkSettings, open_session
from tidemark.formats.record_format import RecordFormat
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.core.ttl import Now
from tidemark.operations import checkpoints, reads
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings

QUICK = os.environ.get("BENCH") == "quick"
RECORDS, KEYS, PARTITIONS, ROUNDS, SEED = 300_000 if QUICK else 1_000_000, 100_000, 4, 3, 20130101
KEPT = FOLDER / "format-rate.json"
NEVER = 10**12
"""More records than a batch has."""


@dataclass(frozen=True)
class Update:
    """A record."""

    key: str
    amount: int
    at: datetime


class Totals(state.Keyed):
    """The state of a key."""

    updates: int = state.count()
    amount: int = state.sum("amount")
    greatest: int = state.max("amount")


AVRO = json.dumps(
    {
        "type": "record",
        "name": "Update",
        "fields": [
            {"name": "key", "type": "string"},
            {"name": "amount", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        ],
    }
)


def message_class() -> Any:  # noqa: ANN401
    """The class that protoc would make of the message."""
    of = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="update.proto", package="bench", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    fields = file.message_type.add(name="Update").field
    fields.add(name="key", number=1, type=of.TYPE_STRING, label=of.LABEL_OPTIONAL)
    fields.add(name="amount", number=2, type=of.TYPE_INT64, label=of.LABEL_OPTIONAL)
    stamp = ".google.protobuf.Timestamp"
    fields.add(name="at", number=3, type=of.TYPE_MESSAGE, label=of.LABEL_OPTIONAL, type_name=stamp)
    pool = descriptor_pool.DescriptorPool()
    needed = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(needed)
    for each in (needed, file):
        pool.Add(each)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Update"))


class Expressions(formats.Json):
    """JSON that Spark's expressions decode, however many records there are."""

    workers_from = NEVER


FORMATS: dict[str, RecordFormat] = {
    "json": formats.Json(),
    "avro": formats.Avro(schema=AVRO),
    "protobuf": formats.Protobuf(message=message_class(), framing="none"),
}


def pipeline_of(topic: str, of: RecordFormat, name: str, where: str | None = None) -> Pipeline:
    """A pipeline with one fold over a topic."""
    operator = Fold("totals", key_by="key", state=Totals, where=where)
    return Pipeline(name=name, source=KafkaSource(topic, Update, format=of), operators=[operator])


def main() -> int:
    """Measures, prints one JSON object, and writes it to docs/benchmarks unless the run is a quick one."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as home:
        declared = Path(home, "declared")
        declared.mkdir()
        names = [(name, f"rate-{name}-{n}") for n in range(ROUNDS + 1) for name in FORMATS]
        lines = [f"p{n} = pipeline_of('{name}', FORMATS['{name}'], '{full}')" for n, (name, full) in enumerate(names)]
        header = "from benchmarks.format_rate import FORMATS, pipeline_of"
        Path(declared, "rates.py").write_text("\n".join([header, *lines]) + "\n")
        settings = load_settings(home=home, pipelines=str(declared))
        control.up(settings, only=("kafka", "spark"))
        try:
            amounts = _produce(settings.kafka_address)
            context = open_context(settings)
            whole = _checkpoints(context, amounts)
            spark = open_session(SparkSettings(master=settings.spark_address), "0" * 32, 1)
            parts = _parts(spark, settings.kafka_address)
        finally:
            control.down(settings)
    facts = made_by("make bench", SEED) | {"records": RECORDS, "keys": KEYS, "rounds": ROUNDS}
    report = json.dumps(facts | _compared(parts, whole), indent=2) + "\n"
    sys.stdout.write(report)
    if not QUICK:
        KEPT.write_text(report)
    return 0


def _produce(bootstrap: str) -> tuple[np.ndarray, np.ndarray]:
    """Writes the same updates in each format; returns their keys and amounts."""
    chance = np.random.default_rng(SEED)
    keys, amounts = chance.integers(0, KEYS, RECORDS), chance.integers(0, 1000, RECORDS)
    for name, of in FORMATS.items():
        create_topic(bootstrap, name)
        generator.send(bootstrap, name, _records(of, keys, amounts))
    return keys, amounts


def _records(
    of: RecordFormat, keys: np.ndarray, amounts: np.ndarray
) -> Iterator[tuple[int, bytes | None, bytes | None, int]]:
    texts = [generator.key_text(n) for n in range(KEYS)]
    times = [datetime.fromtimestamp(generator.START_MS / 1000 + n, UTC) for n in range(1000)]
    for key, amount in zip(keys.tolist(), amounts.tolist(), strict=True):
        value = of.encode(Update(texts[key], amount, times[amount]))
        yield key % PARTITIONS, None, value, generator.START_MS


def _checkpoints(context: Context, sent: tuple[np.ndarray, np.ndarray]) -> dict[str, list[float]]:
    """Seconds of a checkpoint over all records, by format; the first round warms the server up."""
    found: dict[str, list[float]] = {name: [] for name in FORMATS}
    for n in range(ROUNDS + 1):
        for name in FORMATS:
            full = f"rate-{name}-{n}"
            started = time.perf_counter()
            made = checkpoints.run_once(context, full, PlanRequest(origin="bench")).checkpoint
            found[name].append(time.perf_counter() - started)
            assert made is not None and made.sealed.facts.records == RECORDS
            if n == 0:
                _check(reads.read_state(context, full, "totals"), *sent)
    return {name: seconds[1:] for name, seconds in found.items()}


def _check(rows: Any, keys: np.ndarray, amounts: np.ndarray) -> None:  # noqa: ANN401
    counts = np.bincount(keys, minlength=KEYS)
    sums = np.bincount(keys, weights=amounts, minlength=KEYS).astype(np.int64)
    expected = {generator.key_text(n): (int(counts[n]), int(sums[n])) for n in range(KEYS) if counts[n]}
    found = {row["key"]: (row["updates"], row["amount"]) for row in rows.to_pylist()}
    if found != expected:
        raise AssertionError("the state differs from numpy's")


def _parts(spark: SparkSession, bootstrap: str) -> dict[str, list[float]]:
    """Seconds of reading parts of a checkpoint, by name; the first round warms the server up."""
    steps = dict(_steps(spark, bootstrap))
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS + 1):
        for name, act in steps.items():
            started = time.perf_counter()
            act()
            found[name].append(time.perf_counter() - started)
    spark.stop()
    return {name: seconds[1:] for name, seconds in found.items()}


def _steps(spark: SparkSession, bootstrap: str) -> Iterator[tuple[str, Callable[[], object]]]:
    told: dict[str, tuple[str, RecordFormat]] = {name: (name, of) for name, of in FORMATS.items()}
    for name, (topic, of) in {**told, "json by expressions": ("json", Expressions())}.items():
        reading = Reading.of(spark, bootstrap, pipeline_of(topic, of, "rate"), topic)
        yield f"{name} decoded", reading.decode
        yield f"{name} tallied", reading.tally
    tenth = Reading.of(spark, bootstrap, pipeline_of("json", FORMATS["json"], "rate", "amount < 100"), "json")
    yield "json decoded, a tenth folded", tenth.fold
    few = tenth.records().where("record.amount < 100").persist()
    few.count()
    yield "a tenth folded", lambda: _discard(replace(tenth, held=few).folded())


@dataclass(frozen=True)
class Reading:
    """The read of a topic by a pipeline."""

    spark: SparkSession
    bootstrap: str
    pipeline: Pipeline
    plan: Any
    input: str
    held: DataFrame | None = None

    @classmethod
    def of(cls, spark: SparkSession, bootstrap: str, pipeline: Pipeline, topic: str) -> "Reading":
        """The read of all records of a topic."""
        from confluent_kafka import Consumer
        from confluent_kafka import TopicPartition as Place

        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "rate"})
        ends = {n: consumer.get_watermark_offsets(Place(topic, n))[1] for n in range(PARTITIONS)}
        consumer.close()
        plan = plan_of(pipeline, 1, {TopicPartition(topic, n): (0, end) for n, end in ends.items()})
        return cls(spark, bootstrap, pipeline, plan, next(iter(pipeline.inputs)))

    def records(self) -> DataFrame:
        """The decoded records."""
        if self.held is not None:
            return self.held
        raw = read_ranges(self.spark, self.plan, self.input, KafkaOptions(bootstrap=self.bootstrap))
        return decode(raw, self.pipeline, self.plan, self.input)

    def folded(self) -> DataFrame:
        """The rows of the fold."""
        now = Now(event_time_ms=None, logical_time_ms=self.plan.logical_time_ms)
        return fold(self.records(), self.plan.schemas["totals"], self.plan, now)

    def decode(self) -> None:
        """Reads and decodes."""
        _discard(self.records())

    def fold(self) -> None:
        """Reads, decodes and folds."""
        _discard(self.folded())

    def tally(self) -> None:
        """Reads, decodes and counts."""
        count_batch({self.input: self.records()}, self.pipeline, self.plan)


def _discard(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _compared(parts: dict[str, list[float]], whole: dict[str, list[float]]) -> dict[str, Any]:
    """The rates, and what the issue of this benchmark asks for: ratios of medians."""
    middle = {name: statistics.median(seconds) for name, seconds in parts.items()}
    rates = {name: round(RECORDS / statistics.median(seconds)) for name, seconds in whole.items()}
    apart = middle["json decoded"] + middle["a tenth folded"]
    return {
        "checkpoint_records_per_s": rates,
        "of_json": {name: round(rates[name] / rates["json"], 2) for name in rates},
        "part_seconds": {name: round(seconds, 2) for name, seconds in middle.items()},
        "json_decoded_faster": round(middle["json by expressions decoded"] / middle["json decoded"], 2),
        "json_tallied_faster": round(middle["json by expressions tallied"] / middle["json tallied"], 2),
        "where_of_decoding_and_folding_the_rest": round(middle["json decoded, a tenth folded"] / apart, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
