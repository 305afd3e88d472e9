"""A log that retention has trimmed, read by Spark: every version that is kept opens, and has the rows that it had."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.tables_drivers import TABLE, DeltaTablesDriver, Fence, request
from tidemark.model.checkpoint.segments import LOG, Segment
from tidemark.model.retention.deletion import log_prefix
from tidemark.tables.local_table_files import LocalTableFiles

VERSIONS, OLDEST = 45, 27


def test_spark_reads_the_versions_that_are_kept_and_no_older_one(spark: SparkSession, tmp_path: Path) -> None:
    driver, files, parent = DeltaTablesDriver(tmp_path), LocalTableFiles(str(tmp_path)), None
    for number in range(1, VERSIONS + 1):
        parent = _committed(driver, number, parent)
    at = str(tmp_path / TABLE)

    def rows(version: int) -> int:
        return spark.read.format("delta").option("versionAsOf", version).load(at).count()

    prefix = log_prefix(TABLE, [f for f in files.files(TABLE) if f"/{LOG}/" in f.path], OLDEST)
    assert prefix is not None
    files.delete(f.path for f in prefix.files)
    assert prefix.until <= OLDEST
    assert {v: rows(v) for v in (prefix.until, OLDEST, OLDEST + 1, 39, 40, 44)} == {
        v: 3 * (v + 1) for v in (prefix.until, OLDEST, OLDEST + 1, 39, 40, 44)
    }
    with pytest.raises(PySparkException):
        rows(prefix.until - 1)


def test_spark_reads_from_a_log_checkpoint_that_was_written_for_it(spark: SparkSession, tmp_path: Path) -> None:
    driver, files, parent = DeltaTablesDriver(tmp_path), LocalTableFiles(str(tmp_path)), None
    for number in range(1, VERSIONS + 1):
        parent = _committed(driver, number, parent)
    files.ensure_log_checkpoint(TABLE, OLDEST)
    log = [f for f in files.files(TABLE) if f"/{LOG}/" in f.path]
    prefix = log_prefix(TABLE, log, OLDEST)
    assert prefix is not None
    assert prefix.until == OLDEST
    files.delete(f.path for f in prefix.files)
    at = str(tmp_path / TABLE)
    for version in (OLDEST, 44):
        found = spark.read.format("delta").option("versionAsOf", version).load(at)
        assert found.count() == 3 * (version + 1)


def _committed(driver: DeltaTablesDriver, number: int, parent: Segment | None) -> Segment:
    return driver.tables.commit(request(driver.write(number, 1), number, parent), Fence()).segment
