"""The exact sum of 64-bit integers in Spark, against Python's integers: at the edges, whatever the partial sums are."""

import os
import random
from collections import defaultdict

from pyspark.sql import Column, SparkSession

from tidemark.model.portable_sql.dialects import SPARK

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
EDGES = [0, 1, -1, 2**32, -(2**32), 2**32 - 1, 2**62, -(2**62), 2**63 - 1, -(2**63)]


def test_a_sum_is_exact_or_known_not_to_fit(spark: SparkSession) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    chance = random.Random(SEED)
    rows: list[tuple[int, int | None]] = []
    for key in range(300):
        for _ in range(chance.randrange(1, 6)):
            value = chance.choice([*EDGES, None, chance.randrange(-(2**63), 2**63), chance.randrange(-(2**40), 2**40)])
            rows.append((key, value))
    total, fits = SPARK.exact_sum("v")
    frame = spark.createDataFrame(rows, "k int, v bigint").repartition(3)
    found = frame.groupBy("k").agg(*_columns(total, fits)).collect()
    wanted: dict[int, list[int]] = defaultdict(list)
    for key, value in rows:
        wanted[key] += [] if value is None else [value]
    for row in found:
        whole = sum(wanted[row["k"]])
        if not wanted[row["k"]]:
            assert (row["fits"], row["total"]) == (None, None), f"seed {SEED}"
        elif -(2**63) <= whole < 2**63:
            assert (row["fits"], row["total"]) == (True, whole), f"seed {SEED}"
        else:
            assert row["fits"] is False, f"seed {SEED}"


def _columns(total: str, fits: str) -> list[Column]:
    from pyspark.sql import functions as F  # noqa: N812

    return [F.expr(fits).alias("fits"), F.expr(total).alias("total")]
