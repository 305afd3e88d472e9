"""Limits over several batches on real Spark, Kafka and Delta: those checkpoints fail that a brute-force model says."""

import json
import os
import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import count, islice

import pytest

from tests.engine.kafka_spark_pipeline import KafkaSparkPipeline, OpenAttempt
from tests.support.kafka import Sent
from tests.support.limit_cases import UID, limit_case, outgrown
from tests.support.scale import cases
from tests.support.ttl_cases import Batch, Event, Reading, TtlCase, expected
from tidemark.declare.pipeline import KafkaSource
from tidemark.errors import StateOverflowError

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
CASES = cases(5)


def _send(line: KafkaSparkPipeline, events: Iterable[Event]) -> None:
    for e in events:
        body = None
        if e.values is not None:
            price = e.values["price"]
            fields = {"key": e.key, "at": e.values["at"].isoformat(), "n": e.values["n"], "price": price and str(price)}
            body = json.dumps(fields).encode()
        sent = Sent(body, key=e.key.encode(), partition=e.partition, timestamp_ms=e.event_ms)
        line.topics.produce(line.topic, [sent])
        line.ends[e.partition] += 1


def _judge(line: KafkaSparkPipeline, made: TtlCase, seed: int) -> int:
    """Checkpoint after checkpoint; what fails is left out. Answers how many did."""
    line.pipeline = replace(made.pipeline, source=KafkaSource(line.topic, Reading, event_time="at"))
    done: list[Batch] = []
    failed = 0
    for frozen, batch in made.plans():
        if not batch.events:
            continue
        _send(line, batch.events)
        plan = replace(
            line.plan(),
            id=batch.number,
            parent=None,
            watermark_ms=frozen.watermark_ms,
            logical_time_ms=frozen.logical_time_ms,
        )
        too_large, why = outgrown(made, done, batch), f"case {seed}, checkpoint {batch.number}, {made.schema.fields}"
        try:
            sealed = line.execute(OpenAttempt(plan))
        except StateOverflowError as error:
            assert any(f"{UID}: {field} of key ({key}) " in error.what for field, key in too_large), (why, error)
            failed, line.starts = failed + 1, dict(line.ends)
        else:
            assert not too_large, why
            line.complete(plan, sealed)
            done.append(batch)
        if done:
            found = {(r["key"],): {f.name: r[f.name] for f in made.schema.fields} for r in line.state(UID)}
            assert found == expected(replace(made, batches=tuple(done)), len(done)), why
    return failed


def _outgrowing(made: TtlCase) -> int:
    """How many checkpoints of a case the model says to fail."""
    done, failed = list[Batch](), 0
    for _, batch in made.plans():
        if batch.events and outgrown(made, done, batch):
            failed += 1
        elif batch.events:
            done.append(batch)
    return failed


def _cases() -> list[tuple[int, TtlCase]]:
    """From SEED on; the last of them is one with a checkpoint that fails."""
    seeds = count(SEED)
    made = [(seed, limit_case(seed, batches=6)) for seed in islice(seeds, CASES - 1)]
    return [*made, next((seed, case) for seed in seeds if _outgrowing(case := limit_case(seed, batches=6)))]


def test_the_checkpoint_that_makes_a_key_too_large_fails_and_the_state_before_stays(line: KafkaSparkPipeline) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    for seed, made in _cases():
        fresh = KafkaSparkPipeline(line.spark, line.kafka.bootstrap, line.topics, line.root.parent / str(seed))
        failed = _judge(fresh, made, seed)
        assert failed == _outgrowing(made), f"case {seed}"
    assert failed, "the last case has a checkpoint that is too large"


def test_a_compacted_state_counts_against_the_limit(line: KafkaSparkPipeline) -> None:
    schema = line.pipeline.schemas()["devices"]
    (counts,) = (f for f in schema.fields if f.name == "counts")
    first, more = range(counts.limit // 2), range(counts.limit // 2, counts.limit)
    for batch in (first, more):
        line.send([{"device": "busy", "at": "2020-01-01T00:00:00Z", "count": n} for n in batch])
        line.checkpoint()
    record = line.compact("devices", runs=2)
    assert record is not None
    line.adopt(record)
    line.send([{"device": "busy", "at": "2020-01-01T00:00:00Z", "count": n} for n in (0, 999)])
    line.checkpoint()
    before = line.state("devices")
    line.send([{"device": "busy", "at": "2020-01-01T00:00:00Z", "count": 1000}])
    with pytest.raises(StateOverflowError, match=r"^state overflow: devices: counts of key \(busy\) does not fit"):
        line.checkpoint()
    assert line.state("devices") == before
