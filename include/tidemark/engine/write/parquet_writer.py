"""Writes sorted Parquet to a folder of one attempt; readers see none of it until a commit names the files.

Spark writes, or if there are few rows, this process collects and writes them: Hadoop's way to a file takes seven
processes for `chmod` on a disk, and forty requests in a bucket (adr/0067).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from tidemark.errors import StoreError
from tidemark.model.checkpoint.manifest import WrittenRun
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.ports import WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

# Parquet files that Spark has written: their listing, footers, and the statistics that a commit trusts.
ArrowSystem = Callable[[], Any]
"""The file system of a warehouse for pyarrow; None = the local one."""
TableWriter = Callable[[pa.Table, str, Callable[[Path], WrittenRun]], WrittenRun]
"""Writes rows to a new file of a folder; see `storage.parquet_folder.write_table`."""


def this_machine() -> None:
    """Returns the file system of a local or shared disk."""


def written_run(
    path: str,
    rows: int,
    bounded: Iterable[str],
    arrow: ArrowSystem = this_machine,
    replaced: Collection[str] = (),
) -> WrittenRun:
    """Returns the files in the folder of the attempt, with their footers.

    Correctness does not depend on the listing: the rows of the footers must add up to the reported count.

    Args:
        path: path or URI of the folder `<warehouse>/<table>/<id>.<attempt>`.
        rows: number of rows that the write reported.
        bounded: columns whose bounds are exact, for data skipping.
        arrow: the file system of the path.
        replaced: names of files in the folder that belong to another run.

    Raises:
        StoreError: the rows do not add up, or a file cannot be read.
    """
    system, folder = arrow() or fs.LocalFileSystem(), path.rpartition("://")[2]
    name = path.rpartition("/")[2]
    try:
        listed = system.get_file_info(fs.FileSelector(folder))
        found = [i for i in listed if i.extension == "parquet" and i.base_name not in replaced]
        files = tuple(_read_footer(system, i, f"{name}/{i.base_name}", bounded) for i in found)
    except OSError as error:
        raise _unreadable(folder, str(error)) from error
    held = sum(f.rows for f in files)
    if held != rows:
        raise _unreadable(folder, f"its files hold {held} rows, the write reported {rows}")
    return WrittenRun(rows=rows, files=tuple(f for f in files if f.rows))


def paths_of(run: WrittenRun, folder: str) -> list[str]:
    """Returns the files of a run relative to the warehouse, as its folder `<table>/<id>.<attempt>` is."""
    return [f"{folder.rpartition('/')[0]}/{f.path}" for f in run.files]


def discard_run(folder: RunFolder) -> None:
    """Deletes the files of a run that will be written again. No commit names them.

    Raises:
        StoreError: they could not be deleted.
    """
    system, path = folder.arrow() or fs.LocalFileSystem(), folder.path.rpartition("://")[2]
    try:
        system.delete_dir(path)
    except OSError as error:
        raise _unreadable(path, str(error)) from error


def _read_footer(system: Any, info: Any, path: str, bounded: Iterable[str]) -> WrittenFile:
    with system.open_input_file(info.path) as source:
        footer = pq.ParquetFile(source).metadata
        return WrittenFile(path=path, size=info.size, rows=footer.num_rows, stats=stats_of(footer, bounded))


def stats_of(footer: Any, bounded: Iterable[str]) -> str:
    """Returns the statistics of a file as Delta's log has them.

    Args:
        footer: its metadata, from pyarrow.
        bounded: columns that get a least and a greatest value.
    """
    wanted = frozenset(bounded)
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for at in range(footer.num_columns):
        name = footer.schema.column(at).path
        if name not in wanted:
            continue
        found = [footer.row_group(g).column(at).statistics for g in range(footer.num_row_groups)]
        if found and all(s is not None and s.has_min_max and s.has_null_count for s in found):
            # JSON has no exact number for a decimal, so its bounds stay in the file's footer.
            if not any(isinstance(s.min, Decimal) for s in found):
                least[name] = _json(min(s.min for s in found))
                greatest[name] = _json(max(s.max for s in found))
            nulls[name] = sum(s.null_count for s in found)
    body = {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    return json.dumps(body, ensure_ascii=False)


def _json(value: Any) -> Any:
    """Returns a bound in Delta's JSON form; timestamps there have milliseconds, so these stay in the file's footer."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, date) else value


def _unreadable(folder: str, why: str) -> StoreError:
    return StoreError(
        f"unusable run: {folder}: {why}",
        safe="every completed checkpoint is intact; nothing was committed.",
        next="check the disk, then run the pipeline again: another attempt writes the run again.",
    )


def _is_remote(rows: DataFrame) -> bool:
    from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame

    return isinstance(rows, ConnectDataFrame)


# Metrics of an action: aggregates over passing rows (Spark's `observe`), under a name.
class Observed:
    """The metrics of one action.

    A task that runs twice may report twice, and a Connect server of Spark 4.1 waits 100 ms for observed metrics, then
    answers without them (SPARK-54279). Callers need a fallback or a check.
    """

    def __init__(self) -> None:
        self._observations: dict[str, Observation] = {}
        self._told: dict[str, Mapping[str, Any]] = {}

    def on(self, rows: DataFrame, name: str, *aggregates: Column) -> DataFrame:
        """Returns the same rows, which report the aggregates as they pass by.

        Args:
            rows: any frame.
            name: name of these aggregates; once per action.
            aggregates: with aliases.
        """
        from pyspark.sql import Observation

        if _is_remote(rows):
            # An `Observation` would ask the server whether this is a stream, which analyses the whole plan once more.
            told: DataFrame = rows.observe(name, *aggregates)
            return told
        self._observations[name] = Observation(name)
        return rows.observe(self._observations[name], *aggregates)

    def over(self, done: DataFrame) -> None:
        """Marks the action on this frame as complete; call it before `of`."""
        if _is_remote(done):
            info = done.executionInfo
            self._told = {} if info is None else dict(info.flows)
        else:
            self._told = {name: observation.get for name, observation in self._observations.items()}

    def of(self, name: str) -> Mapping[str, Any]:
        """Returns values by alias; empty if none were reported."""
        # A server that stopped waiting may still return the name without values.
        return self._told.get(name, {})


_FILE_BYTES = 64 * 2**20
"""Target size: files of 32 to 128 MiB are large enough to be read in one go, and each is written by one task."""
_FILE_ROWS = 1_000_000
"""Small rows take longer to sort and encode than their bytes suggest, so a task gets no more of them either."""
_ROW_BYTES, _ENOUGH_ROWS = 16, 10_000
"""Bytes of a row of a run, until the table has enough rows to show it."""
_COUNT = "rows"
_OPTIONS = {
    "compression": "zstd",
    # Small row groups: files are sorted by key group, so looking up one key decodes only one of many groups, and tasks
    # share the rows of one file.
    "parquet.block.size": str(8 * 2**20),
    "parquet.block.row.count.limit": "100000",
    # Keys are nearly all different: as plain text they compress better than a dictionary of them and its numbers.
    "parquet.dictionary.page.size": str(2**17),
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


def files_for(at_most: int, written: StateHandle) -> int:
    """Returns the largest number of files for a run; there are never more than tasks behind the shuffle.

    Args:
        at_most: upper bound of its rows; their total size is unknown before they are written.
        written: the rows that the table has, whose size says how large a row is.
    """
    size = written.bytes / written.rows if written.rows >= _ENOUGH_ROWS else _ROW_BYTES
    return max(1, math.ceil(at_most * size / _FILE_BYTES), at_most // _FILE_ROWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """The folder of the files of one run.

    Attributes:
        path: path or URI of `<warehouse>/<table>/<id>.<attempt>`; must not exist, unless a run there is replaced.
        arrow: the file system of the path.
        replaces: names of the files there that the run replaces; they stay until their readers are done.
        write: writes rows of this process there; None = only Spark can.
    """

    path: str
    arrow: ArrowSystem = this_machine
    replaces: frozenset[str] = frozenset()
    write: TableWriter | None = None


@dataclass(frozen=True, slots=True)
class RunSize:
    """How a run is written.

    Attributes:
        files: maximum number of files.
        is_collected: whether this process collects the rows and writes one file.
    """

    files: int
    is_collected: bool = False

    @classmethod
    def of(cls, at_most: int, written: StateHandle, batch: int | None = None) -> RunSize:
        """Returns how a run of a state is written.

        Args:
            at_most: upper bound of its rows.
            written: the rows that the table has, whose size says how large a row is.
            batch: bytes of the batch, if rows hold nothing but what its records hold; None = they may hold more.
        """
        found = cls.of_batch(at_most, written, batch)
        if found.is_collected:
            return found
        is_known = written.rows >= _ENOUGH_ROWS
        size = at_most * written.bytes / written.rows if is_known else 0.0
        few = at_most <= (_COLLECTED_ROWS if is_known else _UNKNOWN_ROWS) and size <= _COLLECTED_BYTES
        return cls(files_for(at_most, written), few)

    @classmethod
    def of_batch(cls, at_most: int, written: StateHandle, batch: int | None) -> RunSize:
        """Returns how rows are written whose size only the batch shows; for the arguments see `of`."""
        few = batch is not None and batch <= _COLLECTED_BYTES and at_most <= _COLLECTED_ROWS
        return cls(files_for(at_most, written), few)


_COLLECTED_ROWS, _COLLECTED_BYTES, _UNKNOWN_ROWS = 65_536, 16 * 2**20, 5_000
"""Rows that this process collects, their bytes in files, and rows whose size is not known yet."""


def write_rows(
    rows: DataFrame,
    order: Sequence[str],
    folder: RunFolder,
    size: RunSize,
    bounded: Sequence[str],
    observed: Observed | None = None,
) -> WrittenRun:
    """Writes rows, sorted within each file, and compares the footers with the count that the write reported.

    If the write reported no count, the rows are counted again.

    Args:
        rows: the rows to write.
        order: columns to sort by.
        folder: the target folder.
        size: how many files there are, and who writes them.
        bounded: columns that get statistics in the log.
        observed: an observation that the rows already carry; it is completed after the write.

    Raises:
        StoreError: the footers differ from the reported count, or a file cannot be written.
    """
    from pyspark.sql import functions as F

    observed = observed or Observed()
    if size.is_collected and folder.write is not None:
        table = _collected(rows)
        observed.over(rows)
        return _write_table(_ordered(table, order), folder, folder.write, bounded)
    shaped = rows.coalesce(size.files).sortWithinPartitions(*order)
    shaped = observed.on(shaped, _COUNT, F.count(F.lit(1)).alias(_COUNT))
    shaped.write.mode("append" if folder.replaces else "error").options(**_OPTIONS).parquet(folder.path)
    observed.over(shaped)
    count = observed.of(_COUNT).get(_COUNT)
    held = rows.count() if count is None else count
    return written_run(folder.path, held, bounded, folder.arrow, folder.replaces)


def _collected(rows: DataFrame) -> pa.Table:
    if _is_remote(rows):
        # `toArrow` asks the server for the schema first, which analyses the whole plan once more.
        remote: Any = rows
        table = remote._to_table()[0] if hasattr(remote, "_to_table") else rows.toArrow()
    else:
        table = rows.toArrow()
    # Spark says that a field of a struct is never null, although it is where the struct is.
    return table.cast(pa.schema([(column.name, _nullable(column.type)) for column in table.schema]))


def _ordered(table: pa.Table, order: Sequence[str]) -> pa.Table:
    if not table.num_rows:
        return table
    if not any(pa.types.is_list(table.schema.field(name).type) for name in order):
        return table.sort_by([(name, "ascending") for name in order])
    # Arrow does not order lists: here, these are the paths of records, which are short.
    places = list(zip(*(_comparable(table[name]) for name in order), strict=True))
    return table.take(sorted(range(len(places)), key=places.__getitem__))


def _comparable(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return [value or [] for value in values] if pa.types.is_list(column.type) else values


def _nullable(of: pa.DataType) -> pa.DataType:
    """Returns the same type, with parts that may be null, as Spark writes files."""
    if pa.types.is_struct(of):
        return pa.struct([(of.field(n).name, _nullable(of.field(n).type)) for n in range(of.num_fields)])
    if pa.types.is_map(of):
        return pa.map_(of.key_type, _nullable(of.item_type))
    return pa.list_(_nullable(of.value_type)) if pa.types.is_list(of) else of


def _write_table(table: pa.Table, folder: RunFolder, write: TableWriter, bounded: Sequence[str]) -> WrittenRun:
    def read(local: Path) -> WrittenRun:
        return written_run(str(local), table.num_rows, bounded, replaced=folder.replaces)

    try:
        return write(table, f"part-{len(folder.replaces):05d}.parquet", read)
    except OSError as error:
        raise _unreadable(folder.path, str(error)) from error
