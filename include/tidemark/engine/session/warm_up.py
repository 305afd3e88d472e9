"""The first query of a new Spark server, shaped like a checkpoint: JSON, strict decoding, a fold, Parquet, a look-up.

The engine never calls it: `tidemark up` runs it as a child process, because the stack does not import pyspark. Run as
`python -m tidemark.engine.session.warm_up sc://HOST:PORT FOLDER`; it leaves nothing behind.
"""

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession

ROUNDS = 2
RECORDS = 2000


def main() -> int:
    """Warms up the server given as first argument, with scratch files in the folder given as second.

    Returns:
        The exit code.
    """
    address, scratch = sys.argv[1], Path(sys.argv[2])
    try:
        warm(address, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


def warm(address: str, scratch: Path) -> None:
    """Makes the server load and compile what a checkpoint needs.

    Args:
        address: a Spark Connect URL.
        scratch: a folder that both sides can write to.
    """
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(address).getOrCreate()
    try:
        warm_session(spark, scratch)
    finally:
        spark.stop()


def warm_session(spark: "SparkSession", scratch: Path) -> None:
    """Runs the queries in a session, which stays open; the arguments are those of `warm`."""
    for turn in range(ROUNDS):
        _checkpoint(spark, scratch / f"run-{turn}")
    _look_up(spark, scratch / "table")
    _process(spark)


def _checkpoint(spark: "SparkSession", run: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    number = F.col("id")
    record = F.struct((number % 97).cast("string").alias("key"), number.alias("amount"))
    raw = spark.range(RECORDS).select(F.to_json(record).alias("value"), number.alias("offset"))
    decoded = F.from_json("value", "key string, amount bigint, at timestamp, corrupt string", {"mode": "PERMISSIVE"})
    batch = raw.select(decoded.alias("record"), "offset").persist()
    batch.select(F.count("*"), F.min("offset"), F.max("offset")).collect()
    latest = F.max_by("record.amount", F.struct("record.at", "offset"))
    folded = batch.groupBy("record.key").agg(F.count("*").alias("n"), F.sum("record.amount").alias("s"), latest)
    folded = folded.toDF("key", "n", "s", "last").withColumn("_key_group", F.pmod(F.hash("key"), F.lit(128)))
    folded.coalesce(1).sort("_key_group", "key").write.mode("overwrite").parquet(str(run))
    batch.unpersist()


def _look_up(spark: "SparkSession", table: Path) -> None:
    """Commits a table as Tidemark does, and resolves it."""
    import deltalake
    import pyarrow
    from pyspark.sql import functions as F  # noqa: N812

    rows = pyarrow.table({"key": ["a", "b"], "n": [1, 2], "_checkpoint": [1, 2]})
    deltalake.write_deltalake(str(table), rows, partition_by=["_checkpoint"])
    run = spark.read.format("delta").option("versionAsOf", 0).load(str(table)).where("_checkpoint <= 2")
    run.unionByName(run).groupBy("key").agg(F.sum("n"), F.max_by("n", "_checkpoint")).collect()


def _process(spark: "SparkSession") -> None:
    """Runs one Python worker, with sorted streams in and out."""
    sorted_stream = spark.range(RECORDS).repartition("id").sortWithinPartitions("id")
    sorted_stream.mapInArrow(_unchanged, "id bigint").count()


def _unchanged(batches: "Iterable[RecordBatch]") -> "Iterable[RecordBatch]":
    yield from batches


if __name__ == "__main__":
    sys.exit(main())
