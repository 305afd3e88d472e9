"""The queries of Nexmark on Spark: equal to DuckDB's answers at every checkpoint."""

import os
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.nexmark.oracle import answers
from benchmarks.nexmark.queries import QUERIES, SIDE
from tests.support.nexmark import STATE_ONLY, agrees, batches, records, rows
from tests.support.scale import SCALE
from tests.support.spark import SparkPipeline
from tidemark.testing import Record

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
WHOLE = SCALE > 1
CHOSEN = list(QUERIES) if WHOLE else random.Random(SEED).sample(list(QUERIES), 3)
"""The twin answers all of them in each run, Spark all of them in the nightly one."""


@pytest.mark.parametrize("name", CHOSEN)
def test_a_query_answers_as_duckdb_at_every_checkpoint(spark: SparkSession, tmp_path: Path, name: str) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED}")
    line, read, most = SparkPipeline(QUERIES[name], spark=spark, root=tmp_path), [], 0
    side = [Record(value=row) for row in SIDE] if QUERIES[name].broadcast else []
    for batch in batches(3000, SEED, 3):
        read += batch
        checkpoint = line.checkpoint([*side, *records(name, batch)])
        side = []
        found = line.state(name, checkpoint) if name in STATE_ONLY else line.emitted(name, checkpoint)
        agrees(name, rows(name, found), answers(read)[name])
        most = max(most, len(found))
    assert most, "there was something to compare"
