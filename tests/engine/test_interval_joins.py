"""Interval joins on Spark: equal to the twin and to DuckDB's join of all that was not late, at every checkpoint."""

import os
import random
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.interval_join_cases import (
    Arrival,
    JoinModel,
    agree_on_pairs,
    joined_pipeline,
    random_arrivals,
    random_join_rules,
    waiting_in,
)
from tests.support.scale import cases
from tests.support.spark import SparkPipeline, TwinPipeline
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.retention.erasure import BlockedKey

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
CASES = cases(2)


def agree(line: SparkPipeline, other: Checkpoint, twin: TwinPipeline, one: Checkpoint) -> None:
    """Both engines have the same counts, states, letters and pairs."""
    for mine, its in zip(one.sealed.acks, other.sealed.acks, strict=True):
        counts = [(a.read, a.applied, a.filtered, a.dead_lettered, a.late, a.keys, a.emitted) for a in (mine, its)]
        assert counts[0] == counts[1], mine.uid
    for uid in ("shipped", "sizes", "ever"):
        assert line.state(uid, other) == twin.state(uid, one), uid
        assert line.letters(uid, other) == twin.letters(uid, one), uid
    assert line.emitted("shipped", other) == twin.emitted("shipped", one)


def test_spark_the_twin_and_duckdbs_join_agree(spark: SparkSession, tmp_path: Path) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    for case in range(CASES):
        rules = random_join_rules(chance)
        declared, model = joined_pipeline(rules), JoinModel(rules)
        twin = TwinPipeline(declared)
        line = SparkPipeline(declared, spark=spark, root=tmp_path / str(case))
        for batch in random_arrivals(chance, rules):
            records = [arrival.record for arrival in batch]
            model.checkpoint(batch)
            one, other = twin.checkpoint(records), line.checkpoint(records)
            assert one.sealed.facts == other.sealed.facts
            agree(line, other, twin, one)
            agree_on_pairs(model, line.emitted("shipped", other))
            assert waiting_in(line.state("shipped", other)) == model.waiting
            ack = other.ack("shipped")
            assert ack is not None
            assert (ack.late, ack.dead_lettered) == (model.late, model.late + model.unkeyed)
        for deepest in (False, True):
            assert line.compacted("shipped", other, deepest=deepest) == twin.compacted("shipped", one, deepest=deepest)


def test_records_of_an_erased_key_join_nothing_and_are_no_letters(spark: SparkSession, tmp_path: Path) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    rules = random_join_rules(chance)
    declared = joined_pipeline(rules)
    names = [key.name for key in declared.schemas()["shipped"].own_keys]
    erased, until = ("a", 1), ("b", 1)
    ends = {TopicPartition(topic, n): chance.randrange(6) for topic in ("orders", "shipments") for n in range(2)}
    blocked = (
        BlockedKey(uid="shipped", key=erased, ends=None),
        BlockedKey(uid="shipped", key=until, ends=ends),
    )
    twin = TwinPipeline(declared, blocked=lambda plan: blocked)
    line = SparkPipeline(declared, spark=spark, root=tmp_path, blocked=lambda plan: blocked)
    # In the end all partitions come to a time behind which two records are late, one of them of the erased key.
    later = [Arrival(side, n, 900, "b", 2, 10**9) for side in ("orders", "shipments") for n in range(2)]
    late = [Arrival("orders", 0, 901, *erased, 0), Arrival("orders", 0, 902, "a", 2, 0)]
    for batch in [*random_arrivals(chance, rules), later, late]:
        records = [arrival.record for arrival in batch]
        one, other = twin.checkpoint(records), line.checkpoint(records)
        agree(line, other, twin, one)
        assert erased not in [tuple(row[name] for name in names) for row in line.state("shipped", other)]
