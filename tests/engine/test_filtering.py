"""Spark and the twin agree on conditions and key expressions, in folds, joins, processes, deletes and erasures."""

import os
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.sales_to_filter import PIPELINE, random_sales
from tests.support.spark import SparkPipeline, TwinPipeline
from tidemark.model.checkpoint.manifest import Ack, Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.retention.erasure import BlockedKey


def _erased(plan: CheckpointPlan) -> list[BlockedKey]:
    """A key is computed from records, so the block compares the computed values."""
    return [BlockedKey(uid="kept", key=("a",), ends=None), BlockedKey(uid="watch", key=("B", 7), ends=None)]


def _counts(checkpoint: Checkpoint) -> list[tuple[object, ...]]:
    def of(a: Ack) -> tuple[object, ...]:
        return (a.uid, a.read, a.applied, a.filtered, a.dead_lettered, a.keys, a.emitted)

    return [of(a) for a in checkpoint.sealed.acks]


@pytest.mark.parametrize("is_erased", [False, True], ids=["all keys", "erased keys"])
def test_spark_and_the_twin_agree(is_erased: bool, spark: SparkSession, tmp_path: Path) -> None:
    seed = int(os.environ.get("TIDEMARK_SEED", "0")) or random.randrange(2**32)
    print(f"TIDEMARK_SEED={seed}")
    chance = random.Random(seed)
    twin, engine = TwinPipeline(PIPELINE), SparkPipeline(PIPELINE, spark=spark, root=tmp_path)
    if is_erased:
        twin.blocked = engine.blocked = _erased
    for count in (30, 60, 5):
        records = random_sales(chance, count)
        one, other = twin.checkpoint(records), engine.checkpoint(records)
        assert _counts(other) == _counts(one)
        assert other.sealed.rejected == one.sealed.rejected
    assert all(ack.filtered for ack in one.sealed.acks if ack.uid != "shops" and ack.read > 10)
    for uid in ("hours", "kept", "cities", "watch", "late", "shops_of_pairs", "totals"):
        assert engine.state(uid, other) == twin.state(uid, one), uid
        assert engine.letters(uid, other) == twin.letters(uid, one), uid
    filtered = {a.uid: a.filtered for a in one.sealed.acks}
    assert filtered["shops"] == 0
