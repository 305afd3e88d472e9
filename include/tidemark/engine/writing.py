"""Writes sorted Parquet to a folder of an attempt's own; nothing of it exists for readers until a commit names it."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from tidemark.engine.files import written_run
from tidemark.model.writes import WrittenRun

_ROWS_PER_FILE = 4_000_000
"""Of a run, whose size is not known before it is written."""
_OPTIONS = {
    "compression": "zstd",
    # Small row groups, because files are sorted by key group: a look-up of one key then decodes one of many.
    "parquet.block.size": str(8 * 2**20),
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


def files_for(at_most: int) -> int:
    """How many files a run of at most so many rows is written to."""
    return max(1, -(-at_most // _ROWS_PER_FILE))


def write_rows(rows: DataFrame, order: Sequence[str], folder: str, files: int, bounded: Sequence[str]) -> WrittenRun:
    """Writes rows, sorted within each file, and compares the footers with the count that the write reported.

    Args:
        rows: what to write.
        order: columns to sort by.
        folder: where; must not exist.
        files: how many files, at most.
        bounded: columns that get statistics in the log.

    Raises:
        StoreError: footers and reported count differ.
    """
    counter = Observation()
    shaped = rows.coalesce(files).sortWithinPartitions(*order).observe(counter, F.count(F.lit(1)).alias("rows"))
    shaped.write.mode("error").options(**_OPTIONS).parquet(folder)
    return written_run(folder, int(counter.get["rows"]), bounded)
