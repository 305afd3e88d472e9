"""Files of a run are held against a count that does not come from them, whatever Spark reports of the write."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.connect.client.core import PlanObservedMetrics
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.metrics import ExecutionInfo

from tidemark.engine.write import parquet_writer as writing
from tidemark.engine.write.parquet_writer import RunFolder, RunSize, write_rows, written_run
from tidemark.errors import StoreError
from tidemark.model.checkpoint.manifest import WrittenRun

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(params=["nothing", "a name alone"])
def silent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write reports no count, as where the server did not wait for what it observed (SPARK-54279)."""
    bare = ExecutionInfo(None, [PlanObservedMetrics("rows", [], [])])
    monkeypatch.setattr(
        DataFrame, "executionInfo", property(lambda _: bare if request.param == "a name alone" else None)
    )


def _write(spark: SparkSession, folder: Path, rows: int = 1000) -> WrittenRun:
    return write_rows(spark.range(rows), ["id"], RunFolder(path=str(folder / "1.1")), RunSize(2), ["id"])


def test_a_count_that_was_not_reported_is_made(spark: SparkSession, tmp_path: Path, silent: None) -> None:
    assert _write(spark, tmp_path).rows == 1000
    assert _write(spark, tmp_path / "none", rows=0).rows == 0


def test_files_that_lack_rows_are_found_though_nothing_was_reported(
    spark: SparkSession, tmp_path: Path, silent: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(folder: str, *more: Any) -> WrittenRun:
        next(Path(folder).glob("*.parquet")).unlink()
        return written_run(folder, *more)

    monkeypatch.setattr(writing, "written_run", short)
    with pytest.raises(StoreError, match="hold 500 rows, the write reported 1000"):
        _write(spark, tmp_path)


def test_what_the_write_reported_is_not_counted_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(rows: DataFrame) -> int:
        raise AssertionError(f"counted again: {rows}")

    monkeypatch.setattr(DataFrame, "count", counted)
    assert _write(spark, tmp_path).rows == 1000


def test_the_short_rows_of_one_file_are_shared_by_tasks(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(300_000).select(F.xxhash64("id").alias("id"))
    written = [
        write_rows(some, ["id"], RunFolder(path=str(tmp_path / f"{n}.1")), RunSize(1), ["id"])
        for n, some in enumerate((rows, spark.range(1), spark.range(1)))
    ]
    paths = [str(tmp_path / file.path) for run in written for file in run.files]
    footer = pq.ParquetFile(paths[0]).metadata
    assert [footer.row_group(n).num_rows for n in range(footer.num_row_groups)] == [100_000] * 3
    read = spark.read.schema("id BIGINT").parquet(*paths).groupBy(F.spark_partition_id()).count()
    shares = [row["count"] for row in read.collect()]
    assert sum(shares) == 300_002
    assert max(shares) <= 200_002, f"one task reads {max(shares)} rows while the others wait"
