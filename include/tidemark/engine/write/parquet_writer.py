"""Writes sorted Parquet to a folder of one attempt; readers see none of it until a commit names the files."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.engine.read.observed_metrics import Observed
from tidemark.engine.write.written_files import ArrowSystem, this_machine, written_run
from tidemark.model.checkpoint.table_writes import WrittenRun

_ROWS_PER_FILE = 4_000_000
"""File size of a run, whose total size is unknown before it is written."""
_COUNT = "rows"
_OPTIONS = {
    "compression": "zstd",
    # Small row groups: files are sorted by key group, so looking up one key decodes only one of many groups.
    "parquet.block.size": str(8 * 2**20),
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


def files_for(at_most: int) -> int:
    """Returns the number of files for a run of at most this many rows."""
    return max(1, -(-at_most // _ROWS_PER_FILE))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """The folder of the files of one run.

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

    If the write reported no count, the rows are counted again.

    Args:
        rows: the rows to write.
        order: columns to sort by.
        folder: the target folder.
        files: maximum number of files.
        bounded: columns that get statistics in the log.
        observed: an observation that the rows already carry; it is completed after the write.

    Raises:
        StoreError: the footers differ from the reported count.
    """
    observed = observed or Observed()
    shaped = rows.coalesce(files).sortWithinPartitions(*order)
    shaped = observed.on(shaped, _COUNT, F.count(F.lit(1)).alias(_COUNT))
    shaped.write.mode("error").options(**_OPTIONS).parquet(folder.path)
    observed.over(shaped)
    count = observed.of(_COUNT).get(_COUNT)
    return written_run(folder.path, rows.count() if count is None else count, bounded, folder.arrow)
