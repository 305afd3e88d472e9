"""The first query of a new Spark server, shaped like a checkpoint: JSON, strict decoding, a fold, Parquet, a look-up.

Run as `python -m tidemark.stack.warm_up sc://HOST:PORT FOLDER`; it leaves nothing behind.
"""

import shutil
import sys
from pathlib import Path

ROUNDS = 2
RECORDS = 2000


def main() -> int:
    """Warm the server named by the first argument, with scratch files below the second.

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
    """Make the server load and compile what a checkpoint will need.

    Args:
        address: a Spark Connect URL.
        scratch: a folder that both sides can write.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812

    spark = SparkSession.builder.remote(address).getOrCreate()
    for turn in range(ROUNDS):
        target = str(scratch / f"run-{turn}")
        number = F.col("id")
        record = F.struct((number % 97).cast("string").alias("key"), number.alias("amount"))
        raw = spark.range(RECORDS).select(F.to_json(record).alias("value"), number.alias("offset"))
        decoded = F.from_json(
            "value", "key string, amount bigint, at timestamp, corrupt string", {"mode": "PERMISSIVE"}
        )
        batch = raw.select(decoded.alias("record"), "offset").persist()
        batch.select(F.count("*"), F.min("offset"), F.max("offset")).collect()
        latest = F.max_by("record.amount", F.struct("record.at", "offset"))
        folded = batch.groupBy("record.key").agg(F.count("*").alias("n"), F.sum("record.amount").alias("s"), latest)
        folded = folded.toDF("key", "n", "s", "last").withColumn("_key_group", F.pmod(F.hash("key"), F.lit(128)))
        folded.coalesce(1).sort("_key_group", "key").write.mode("overwrite").parquet(target)
        run = spark.read.parquet(target)
        run.unionByName(run).groupBy("key").agg(F.sum("n"), F.sum("s")).collect()
        batch.unpersist()
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
