"""Spark folds, merges and finishes every kind of state of a fold as the twin and as brute force do."""

import os
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.kind_bench import KEYS, RECORD, KindCase, expected, known, random_records, same
from tests.unit.model.kinds.test_registry import FOLDS, cases_of
from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.sql import partials
from tidemark.model.kinds.base.sql import spark as in_backticks
from tidemark.model.portable_sql.dialects import SPARK
from tidemark.model.schema.operator_schema import run_columns
from tidemark.sql.resolve import resolving_sql
from tidemark.tables.delta_tables import arrow_schema
from tidemark.testing.twin.fold import Decoded

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
FRAME = (
    ("batch", "BIGINT"),
    ("topic", "STRING"),
    ("partition", "INT"),
    ("offset", "BIGINT"),
    ("_path", "ARRAY<BIGINT>"),
    ("event_time", "TIMESTAMP"),
    ("_at", "BIGINT"),
    ("record", RECORD.sql),
)


@pytest.mark.parametrize("emitted", [False, True])
def test_spark_is_right_about_every_kind(spark: SparkSession, emitted: bool) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    chance = random.Random(SEED)
    records = random_records(chance, 60)
    batches = [records[:20], records[20:21], records[21:]]
    frame = spark.createDataFrame(_table(batches))
    cases = [case for name in FOLDS for case in cases_of(name)]
    found = [pair for n, case in enumerate(cases) for pair in _named(case, n, emitted=emitted)]
    columns = [F.expr(in_backticks(sql)).alias(name) for name, sql in found]
    runs = frame.groupBy("batch", "record.key").agg(*columns).toArrow().to_pylist()
    for n, case in enumerate(cases):
        wanted = expected(case, records)
        got = _resolved(spark, case, [_stored(case, n, row) for row in runs])
        assert same(got, wanted, is_close=case.is_close), (case.declared, got, wanted)
    assert sorted(wanted) == sorted(key for key in KEYS if known(records, "key").count(key))


def _table(batches: Sequence[Sequence[Decoded]]) -> pa.Table:
    rows = [
        {
            "batch": number,
            "topic": r.topic,
            "partition": r.partition,
            "offset": r.offset,
            "_path": [0],
            "event_time": r.event_time,
            "_at": 0,
            "record": r.fields,
        }
        for number, batch in enumerate(batches, 1)
        for r in batch
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(FRAME))


def _named(case: KindCase, number: int, *, emitted: bool) -> list[tuple[str, str]]:
    return [(f"{name}_{number}", sql) for name, sql in partials(case.stored, emitted=emitted)]


def _stored(case: KindCase, number: int, row: Mapping[str, Any]) -> dict[str, Any]:
    held = {name: row[f"{name}_{number}"] for name, _ in case.stored.accumulators}
    own = {"_first_at": None, "_last_at": 0, "_kind": "operand", "_changed": row["batch"], "_key_group": 0}
    return {"key": row["key"]} | held | own


def _resolved(spark: SparkSession, case: KindCase, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    table = pa.Table.from_pylist([dict(row) for row in rows], schema=arrow_schema(run_columns(case.schema)))
    spark.createDataFrame(table).createOrReplaceTempView("rows_of_a_kind")
    text = resolving_sql(case.schema, "rows_of_a_kind", Now(), dialect=SPARK)
    return {row["key"]: row["f"] for row in spark.sql(text).toArrow().to_pylist()}
