"""Timelines on Spark and Delta: the random walk of `tests/timelines`, in short."""

from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.spark import SparkPipeline
from tests.support.timeline_walk import PIPELINE, TimelineWalk

SEED = 397
"""A walk that soon restores, promotes, dies, and reads again what a sink has."""


def test_a_short_walk_over_timelines_is_what_plain_dicts_say(spark: SparkSession, tmp_path: Path) -> None:
    walk = TimelineWalk(SparkPipeline(PIPELINE, spark=spark, root=tmp_path), seed=SEED, compares_at_once=False)
    print(f"seed {SEED}")
    walk.steps(24)
    walk.compare_all()
    assert {c.why for c in walk.world.coordinator.timelines.closings()} == {"promote", "restore"}
    assert sum("died" in line for line in walk.trace) > 5
