"""Spark, its memory twin, DuckDB and plain lists agree on folds behind one, two and three processes."""

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.chained_processes import DAY, ChainOracle, parcels, pipeline
from tests.support.spark import SparkPipeline, TwinPipeline
from tidemark.model.kinds.first import First
from tidemark.model.kinds.latest import Latest

CASES = 1


def test_spark_folds_a_chain_as_its_twin_and_as_plain_lists(spark: SparkSession, tmp_path: Path) -> None:
    seed = int(os.environ.get("TIDEMARK_SEED", "0")) or random.randrange(2**32)
    print(f"TIDEMARK_SEED={seed}")
    chance = random.Random(seed)
    for case in range(CASES):
        world, twin = TwinPipeline(pipeline()), SparkPipeline(pipeline(), spark=spark, root=tmp_path / str(case))
        oracle = ChainOracle(partitions=2)
        for width in (4, 6):
            records = parcels(chance, 3, width)
            oracle.checkpoint(records)
            one, other = world.checkpoint(records), twin.checkpoint(records)
        for n in (1, 2, 3):
            assert twin.emitted(f"split_{n}", other) == world.emitted(f"split_{n}", one)
            for key in ("who", "colour"):
                uid, wanted = f"by_{key}_{n}", oracle.rows(n, key)
                assert world.state(uid, one) == wanted
                assert twin.state(uid, other) == wanted
                for deepest in (False, True):
                    assert twin.compacted(uid, other, deepest=deepest) == world.compacted(uid, one, deepest=deepest)


NAN = float("nan")
TIES = [
    (pa.string(), ["b", None, "a", "ü", "z", ""]),
    (pa.float64(), [1.5, NAN, None, float("inf"), -1.0]),
    (pa.binary(), [b"\xff", b"", None, b"a"]),
    (pa.bool_(), [True, None, False]),
    (pa.list_(pa.int64()), [[2], [], None, [2, None], [1, 9]]),
    (pa.struct([("x", pa.int64()), ("y", pa.string())]), [{"x": 1, "y": None}, None, {"x": None, "y": "z"}]),
]


@pytest.mark.parametrize(("kind", "values"), TIES, ids=[str(kind) for kind, _ in TIES])
def test_of_two_values_at_one_place_the_twin_takes_the_one_that_spark_takes(
    spark: SparkSession, kind: pa.DataType, values: list[Any]
) -> None:
    place = [("at", pa.timestamp("us", tz="UTC")), ("topic", pa.string()), ("partition", pa.int64())]
    placed = pa.struct([*place, ("offset", pa.int64()), ("value", kind)])
    pairs = [(a, b) for a in values for b in values]
    held = [[{"at": DAY, "topic": "t", "partition": 0, "offset": 0, "value": v} for v in pair] for pair in pairs]
    columns = {"n": pa.array(range(len(pairs)), pa.int64()), "held": pa.array(held, pa.list_(placed))}
    each = spark.createDataFrame(pa.table(columns)).selectExpr("n", "explode(held) AS held")
    found = each.groupBy("n").agg(*map(F.expr, ("min(held) AS first", "max(held) AS latest"))).orderBy("n").toArrow()
    by_twin = [{"first": First().pick(pair), "latest": Latest().pick(pair)} for pair in held]
    assert repr(found.select(["first", "latest"]).to_pylist()) == repr(pa.Table.from_pylist(by_twin).to_pylist())
