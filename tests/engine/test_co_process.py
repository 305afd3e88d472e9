"""Co-processes on Spark: equal to the twin and to a brute force, at every checkpoint."""

import os
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.co_process_cases import (
    CoModel,
    CoRules,
    agree_on_steps,
    closed_in,
    co_pipeline,
    random_co_rules,
    random_gots,
)
from tests.support.scale import cases
from tests.support.spark import SparkPipeline, TwinPipeline

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
CASES = cases(1)


@pytest.mark.parametrize("has_timers", [True, False])
def test_spark_the_twin_and_a_brute_force_agree(spark: SparkSession, tmp_path: Path, has_timers: bool) -> None:  # noqa: FBT001
    print(f"TIDEMARK_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    for case in range(CASES):
        rules = random_co_rules(chance) if has_timers else CoRules(has_timers=False)
        declared, model = co_pipeline(rules), CoModel(rules)
        twin = TwinPipeline(declared)
        line = SparkPipeline(declared, spark=spark, root=tmp_path / str(case))
        for batch in random_gots(chance):
            records = [got.record for got in batch]
            model.checkpoint(batch)
            one, other = twin.checkpoint(records), line.checkpoint(records)
            assert one.sealed.facts == other.sealed.facts
            for mine, its in zip(one.sealed.acks, other.sealed.acks, strict=True):
                counts = [
                    (a.read, a.applied, a.filtered, a.dead_lettered, a.late, a.keys, a.emitted_to_all, a.fired)
                    for a in (mine, its)
                ]
                assert counts[0] == counts[1], mine.uid
            for uid in ("steps", "counts"):
                assert line.state(uid, other) == twin.state(uid, one), uid
                assert line.letters(uid, other) == twin.letters(uid, one), uid
                assert line.emitted(uid, other) == twin.emitted(uid, one), uid
            agree_on_steps(model, line.state("steps", other), line.emitted("steps", other))
            assert closed_in(line.emitted("counts", other)) == model.closed
            ack = other.ack("steps")
            assert ack is not None and ack.dead_lettered == model.refused
        for deepest in (False, True):
            assert line.compacted("steps", other, deepest=deepest) == twin.compacted("steps", one, deepest=deepest)
