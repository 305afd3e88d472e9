"""Writes sorted Parquet to a folder of an attempt's own; nothing of it exists for readers until a commit names it."""

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame

from tidemark.engine.files import ArrowSystem, this_machine, written_run
from tidemark.model.writes import WrittenRun

_ROWS_PER_FILE = 4_000_000
"""Of a run, whose size is not known before it is written."""
_COUNT = "rows"
_OPTIONS = {
    "compression": "zstd",
    # Small row groups, because files are sorted by key group: a look-up of one key then decodes one of many.
    "parquet.block.size": str(8 * 2**20),
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


def files_for(at_most: int) -> int:
    """How many files a run of at most so many rows is written to."""
    return max(1, -(-at_most // _ROWS_PER_FILE))


def write_rows(
    rows: DataFrame,
    order: Sequence[str],
    folder: str,
    files: int,
    bounded: Sequence[str],
    arrow: ArrowSystem = this_machine,
) -> WrittenRun:
    """Writes rows, sorted within each file, and compares the footers with the count that the write reported.

    Where it reported none, the rows are counted again; those of a batch are cached.

    Args:
        rows: what to write.
        order: columns to sort by.
        folder: where; must not exist.
        files: how many files, at most.
        bounded: columns that get statistics in the log.
        arrow: the file system of the folder.

    Raises:
        StoreError: footers and reported count differ.
    """
    shaped, reported = _counted(rows.coalesce(files).sortWithinPartitions(*order))
    shaped.write.mode("error").options(**_OPTIONS).parquet(folder)
    count = reported()
    return written_run(folder, rows.count() if count is None else count, bounded, arrow)


def _counted(rows: DataFrame) -> tuple[DataFrame, Callable[[], int | None]]:
    """The rows, and how many of them the action reported, once it is over; None where it did not.

    A Connect server of Spark 4.1 waits 100 ms for what was observed, then answers without it (SPARK-54279).
    """
    count = F.count(F.lit(1)).alias(_COUNT)
    if isinstance(rows, ConnectDataFrame):
        # An `Observation` would ask the server whether this is a stream: all of the plan, analysed once more.
        shaped: Any = rows.observe(_COUNT, count)
        return shaped, lambda: _told(shaped)
    counter = Observation(_COUNT)
    return rows.observe(counter, count), lambda: counter.get.get(_COUNT)


def _told(shaped: ConnectDataFrame) -> int | None:
    """What the last action on them has observed."""
    info = shaped.executionInfo
    flows = [] if info is None else info.flows
    # A server that gave up waiting may still give the name, with nothing under it.
    return next((found.get(_COUNT) for name, found in flows if name == _COUNT), None)
