"""Spark, its memory twin and DuckDB agree on everything that a process operator leaves."""

import os
import random
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.spark import SparkPipeline, TwinPipeline
from tests.support.visits import PIPELINE, visits
from tidemark import KafkaSink, Process

CASES = 4


def test_spark_the_memory_twin_and_duckdb_agree(spark: SparkSession, tmp_path: Path) -> None:
    seed = int(os.environ.get("TIDEMARK_SEED", "0")) or random.randrange(2**32)
    print(f"TIDEMARK_SEED={seed}")
    chance = random.Random(seed)
    for case in range(CASES):
        world, twin = TwinPipeline(PIPELINE), SparkPipeline(PIPELINE, spark=spark, root=tmp_path / str(case))
        for _ in range(chance.randrange(1, 4)):
            records = visits(chance, chance.choice([0, 1, 40]))
            one, other = world.checkpoint(records), twin.checkpoint(records)
            for uid in ("people", "rooms", "by_room"):
                assert twin.state(uid, other) == world.state(uid, one)
                assert twin.letters(uid, other) == world.letters(uid, one)
            assert twin.emitted("people", other) == world.emitted("people", one)
            assert {a.uid: (a.read, a.applied, a.emitted, a.keys) for a in other.sealed.acks} == {
                a.uid: (a.read, a.applied, a.emitted, a.keys) for a in one.sealed.acks
            }
        for deepest in (False, True):
            assert twin.compacted("people", other, deepest=deepest) == world.compacted("people", one, deepest=deepest)


def test_attempts_send_the_same_bytes_in_the_same_order(spark: SparkSession, tmp_path: Path) -> None:
    seed = int(os.environ.get("TIDEMARK_SEED", "0")) or random.randrange(2**32)
    print(f"TIDEMARK_SEED={seed}")
    records = visits(random.Random(seed), 60)
    sink = KafkaSink("told", "told", key_by="at", guarantee="at_least_once")
    operators = [replace(o, sink=sink) if isinstance(o, Process) and o.emits else o for o in PIPELINE.operators]
    sending = replace(PIPELINE, operators=operators)
    world, twin = TwinPipeline(sending), SparkPipeline(sending, spark=spark, root=tmp_path)
    world.checkpoint(records)
    twin.checkpoint(records)
    assert twin.sender.arrived == world.sender.arrived
    assert len(twin.sender.arrived["told"]) > 1
    assert not list(tmp_path.rglob("outbox"))
