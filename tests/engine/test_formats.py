"""Every format of the registry in Spark: the same reasons and values as in Python, for the same bytes."""

import os
import random

import pytest
from pyspark.sql import SparkSession

from tests.engine.conftest import Raw
from tests.support.format_cases import NAMES, case_of, damaged

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))


@pytest.mark.parametrize("name", NAMES)
def test_spark_and_python_decode_alike(name: str, raw: Raw, spark: SparkSession) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    case, chance = case_of(name), random.Random(SEED)
    values = [None, b"", *case.bytes, *(damaged(chance, chance.choice(case.bytes)) for _ in range(3000))]
    values += [chance.randbytes(chance.randrange(1, 6)) for _ in range(1000)]
    frame = case.format.decode(raw(values), case.format.bind(case.record)).orderBy("offset")
    rows = (
        frame.selectExpr("offset", "_fault", "CASE WHEN _fault IS NULL THEN _good END AS _good").toArrow().to_pylist()
    )
    assert [row["offset"] for row in rows] == list(range(len(values)))
    for value, row in zip(values, rows, strict=True):
        assert (row["_fault"] or row["_good"]) == case.answer(value), f"{value!r}; seed {SEED}"
