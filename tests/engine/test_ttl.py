"""TTL, lists, deletes and aggregates on real Spark: folded, compacted and resolved as a brute-force replay says."""

import json
import os
import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.delete_keys import CASES
from tests.support.scale import cases
from tests.support.ttl_cases import Batch, TtlCase, case, expected
from tidemark.engine.read.frames import applied_sql, decode, fold, with_keys
from tidemark.engine.state.resolve_sql import compact_rows, finish_rows
from tidemark.model.schema.operator_schema import KeyColumn, OperatorSchema, run_columns
from tidemark.tables.delta_tables import arrow_schema

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
CASES_ON_SPARK = cases(12)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RAW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


def _raw(spark: SparkSession, batch: Batch) -> DataFrame:
    """The batch as a Kafka read would give it."""
    rows = []
    for e in batch.events:
        at = EPOCH + timedelta(milliseconds=e.event_ms)
        body = None
        if e.values is not None:
            price = e.values["price"]
            fields = {"key": e.key, "at": at.isoformat(), "n": e.values["n"], "price": price and str(price)}
            body = json.dumps(fields).encode()
        place = {"topic": "t", "partition": e.partition, "offset": e.offset, "timestamp": at}
        rows.append({**place, "key": e.key.encode(), "value": body})
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=RAW))


def _stored(frame: DataFrame, schema: OperatorSchema) -> pa.Table:
    return frame.toArrow().cast(arrow_schema(run_columns(schema)))


def _rows(spark: SparkSession, runs: list[pa.Table], schema: OperatorSchema) -> DataFrame:
    """The rows of several runs, which may be none: a compaction drops what has expired."""
    columns = ", ".join(f"`{name}` {sql}" for name, sql in run_columns(schema))
    return spark.createDataFrame(pa.concat_tables(runs), columns)


def _judge(spark: SparkSession, made: TtlCase, seed: int) -> None:
    chance, schema = random.Random(seed), made.schema
    handles: list[pa.Table] = []
    for plan, batch in made.plans():
        if batch.events:
            records = decode(_raw(spark, batch), made.pipeline, plan, "records")
            handles.append(_stored(fold(records, schema, plan, batch.now), schema))
        if handles and chance.random() < 0.5:
            cut = chance.randrange(len(handles))
            merged = compact_rows(spark, _rows(spark, handles[cut:], schema), schema, batch.now, deepest=cut == 0)
            handles = [*handles[:cut], _stored(merged, schema)]
    if not handles:
        return
    last = made.batches[-1]
    found = finish_rows(spark, _rows(spark, handles, schema), schema, last.now).toArrow().to_pylist()
    got = {(r["key"],): {f.name: r[f.name] for f in schema.fields} for r in found}
    assert got == expected(made, last.number), f"case {seed}, {schema.fields}"


def test_spark_is_right_for_any_schedule(spark: SparkSession) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    for seed in range(SEED, SEED + CASES_ON_SPARK):
        _judge(spark, case(seed, batches=4, most=8), seed)


@pytest.mark.parametrize("columns", sorted({c[0] for c in CASES}, key=repr), ids=lambda c: "-".join(n for n, _ in c))
def test_spark_reads_message_keys_as_the_twin_does(spark: SparkSession, columns: object) -> None:
    cases = [(key, named) for of, key, named in CASES if of == columns]
    schema = _keyed_by(columns)
    rows = [{"topic": "t", "partition": 0, "offset": n, "key": key} for n, (key, _) in enumerate(cases)]
    of = pa.schema([RAW.field(name) for name in ("topic", "partition", "offset", "key")])
    record = ", ".join(f"CAST(NULL AS {k.type.sql}) AS {k.name}" for k in schema.keys)
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, schema=of))
    frame = frame.selectExpr("*", "'null_value' AS _reason", f"struct({record}) AS record")
    applied = [
        r["applied"]
        for r in frame.selectExpr(f"{applied_sql(schema)} AS applied", "offset").orderBy("offset").collect()
    ]
    assert applied == [named is not None for _, named in cases]
    names = [f"_k{n}" for n in range(len(schema.keys))]
    kept = {r["offset"]: tuple(r[n] for n in names) for r in with_keys(frame, schema).toArrow().to_pylist()}
    last: dict[object, int] = {}
    last |= {named: n for n, (_, named) in enumerate(cases) if named is not None}
    assert {named: n for n, named in kept.items()} == last


def _keyed_by(columns: object) -> OperatorSchema:
    assert isinstance(columns, tuple)
    keys = tuple(KeyColumn(name, name, of) for name, of in columns)
    return OperatorSchema("u", keys, (), deletes=True)
