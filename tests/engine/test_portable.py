"""Random texts of the portable subset over random rows: Spark and DuckDB give equal bits, or both refuse to add up."""

import os
import random

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.portable_texts import ARROW_SCHEMA, TYPES, Writer, by_duckdb, by_spark, random_rows, same_value
from tests.support.scale import cases
from tidemark.model.kinds.base.sql import quote
from tidemark.model.portable_sql.custom_aggregate import partial_sql
from tidemark.model.portable_sql.expressions import type_expression
from tidemark.model.portable_sql.syntax import NotPortable, parse

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
TEXTS = cases(150)


def _texts(chance: random.Random, table: pa.Table) -> list[str]:
    writer, found = Writer(chance), list[str]()
    while len(found) < TEXTS:
        text = writer.text(chance.choice(["int", "float", "str", "bool", "date", "timestamp", "decimal"]))
        try:
            by_duckdb([type_expression(parse(text), TYPES, quote).sql], table)
        except (NotPortable, duckdb.OutOfRangeException):
            continue
        found.append(text)
    return found


def test_spark_and_duckdb_agree_on_every_text(spark: SparkSession) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    chance = random.Random(SEED)
    table = random_rows(chance, 60)
    texts = _texts(chance, table)
    for start in range(0, TEXTS, 50):
        part = texts[start : start + 50]
        made = [type_expression(parse(text), TYPES, quote).sql for text in part]
        for text, ours, theirs in zip(part, by_spark(spark, made, table), by_duckdb(made, table), strict=True):
            wrong = [n for n, (a, b) in enumerate(zip(ours, theirs, strict=True)) if not same_value(a, b)]
            assert not wrong, f"{text}: Spark {ours[wrong[0]]!r}, DuckDB {theirs[wrong[0]]!r}, seed {SEED}"


def test_spark_and_duckdb_agree_on_aggregates(spark: SparkSession) -> None:
    texts = ["count(*)", "count(f)", "sum(i * 2)", "sum(d)", "min(s)", "max(d)", "min(day)", "max(at)", "bool_and(b)"]
    texts += ["bool_or(i > 5)", "min(f)", "max(CASE WHEN b THEN j END)", "sum(CASE WHEN s IS NULL THEN 1 ELSE 0 END)"]
    table = random_rows(random.Random(SEED), 200)
    for part in (table, pa.Table.from_pylist([{}], schema=ARROW_SCHEMA)):
        made = [partial_sql(text, TYPES, quote).sql for text in texts]
        for text, ours, theirs in zip(texts, by_spark(spark, made, part), by_duckdb(made, part), strict=True):
            assert ours == theirs, f"{text}, seed {SEED}"


@pytest.mark.parametrize(
    "text", ["i + 9223372036854775807", "i * 9223372036854775807", "-(i - 9223372036854775807 - 10)"]
)
def test_what_leaves_64_bits_fails_in_both(text: str, spark: SparkSession) -> None:
    table = pa.Table.from_pylist([{"i": 9}], schema=ARROW_SCHEMA)
    made = [type_expression(parse(text), TYPES, quote).sql]
    with pytest.raises(duckdb.OutOfRangeException):
        by_duckdb(made, table)
    with pytest.raises(PySparkException, match=r"ARITHMETIC_OVERFLOW|out of range"):
        by_spark(spark, made, table)
