"""Parquet files that Spark has written: their listing, footers, and the statistics that a commit trusts."""

import json
from collections.abc import Callable, Iterable
from datetime import date, datetime
from typing import Any

import pyarrow.parquet as pq
from pyarrow import fs

from tidemark.errors import StoreError
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.ports import WrittenFile, WrittenRun

ArrowSystem = Callable[[], Any]
"""The file system of a warehouse for pyarrow; None = the local one."""


def this_machine() -> None:
    """Returns the file system of a local or shared disk."""


def written_run(path: str, rows: int, bounded: Iterable[str], arrow: ArrowSystem = this_machine) -> WrittenRun:
    """Returns the files in the folder of the attempt, with their footers.

    Correctness does not depend on the listing: the rows of the footers must add up to the reported count.

    Args:
        path: path or URI of the folder `<warehouse>/<table>/<id>.<attempt>`.
        rows: number of rows that the write reported.
        bounded: columns whose bounds are exact, for data skipping.
        arrow: the file system of the path.

    Raises:
        StoreError: the rows do not add up, or a file cannot be read.
    """
    system, folder = arrow() or fs.LocalFileSystem(), path.rpartition("://")[2]
    name = path.rpartition("/")[2]
    try:
        found = [i for i in system.get_file_info(fs.FileSelector(folder)) if i.extension == "parquet"]
        files = tuple(_read_footer(system, i, f"{name}/{i.base_name}", bounded) for i in found)
    except OSError as error:
        raise _unreadable(folder, str(error)) from error
    held = sum(f.rows for f in files)
    if held != rows:
        raise _unreadable(folder, f"its files hold {held} rows, the write reported {rows}")
    return WrittenRun(rows=rows, files=tuple(f for f in files if f.rows))


def bounded_columns(schema: OperatorSchema) -> tuple[str, ...]:
    """Returns the columns of a run that get a minimum and maximum in the log: the keys and the key group."""
    return (*(k.name for k in schema.keys), "_key_group")


def _read_footer(system: Any, info: Any, path: str, bounded: Iterable[str]) -> WrittenFile:
    with system.open_input_file(info.path) as source:
        footer = pq.ParquetFile(source).metadata
        return WrittenFile(path=path, size=info.size, rows=footer.num_rows, stats=_stats(footer, frozenset(bounded)))


def _stats(footer: Any, bounded: frozenset[str]) -> str:
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for at in range(footer.num_columns):
        name = footer.schema.column(at).path
        if name not in bounded:
            continue
        found = [footer.row_group(g).column(at).statistics for g in range(footer.num_row_groups)]
        if found and all(s is not None and s.has_min_max and s.has_null_count for s in found):
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
