"""Writes sorted Parquet to a folder of an attempt's own; nothing of it exists for readers until a commit names it."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.engine.read.observed_metrics import Observed
from tidemark.engine.write.written_files import ArrowSystem, this_machine, written_run
from tidemark.model.checkpoint.table_writes import WrittenRun

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """Where the files of one run go.

    Attributes:
        path: path or URI of `<warehouse>/<table>/<id>.<attempt>`; must not exist.
        arrow: the file system of the path.
    """

    path: str
    arrow: ArrowSystem = this_machine


def write_rows(
    rows: DataFrame,
    order: Sequence[str],
    folder: RunFolder,
    files: int,
    bounded: Sequence[str],
    observed: Observed | None = None,
) -> WrittenRun:
    """Writes rows, sorted within each file, and compares the footers with the count that the write reported.

    Where it reported none, the rows are counted again.

    Args:
        rows: what to write.
        order: columns to sort by.
        folder: where.
        files: how many files, at most.
        bounded: columns that get statistics in the log.
        observed: what the rows are observed by already; it is told when the write is over.

    Raises:
        StoreError: footers and reported count differ.
    """
    observed = observed or Observed()
    shaped = rows.coalesce(files).sortWithinPartitions(*order)
    shaped = observed.on(shaped, _COUNT, F.count(F.lit(1)).alias(_COUNT))
    shaped.write.mode("error").options(**_OPTIONS).parquet(folder.path)
    observed.over(shaped)
    count = observed.of(_COUNT).get(_COUNT)
    return written_run(folder.path, rows.count() if count is None else count, bounded, folder.arrow)
