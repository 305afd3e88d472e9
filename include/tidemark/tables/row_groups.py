"""Parquet by row group: chosen row groups and columns of chosen files as one stream, counting every byte."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.model.checkpoint.segments import LiveFile
from tidemark.storage.bucket_path import BucketPath
from tidemark.storage.local_store import WarehousePath

PLACE = pa.schema({"_file": pa.int32(), "_row_group": pa.int32()})
"""Location of a row: number of the file, number of the row group in it."""
PARTITION = pa.schema({"_level": pa.int32(), "_checkpoint": pa.int64()})
"""Columns that the table knows for a file, and that the file does not contain."""

Bounds = Callable[[str], tuple[Any, Any] | None]
"""Least and greatest value of a column in a row group, if the footer has them."""
Pick = Callable[[int, Bounds], bool]
"""Whether to read a row group, given its number and its bounds."""


@dataclass(frozen=True, slots=True)
class NumberedFile:
    """A file of one or more handles: its number, its path, and its columns from the table."""

    number: int
    path: WarehousePath
    live: LiveFile


class CountedFile:
    """An open file that counts the bytes it reads, with the methods that pyarrow needs."""

    def __init__(self, path: WarehousePath) -> None:
        self.bytes = 0
        self._file: Any = path.open_seekable() if isinstance(path, BucketPath) else FileIO(path)

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return bool(self._file.closed)

    def read(self, size: int = -1) -> bytes:
        """Returns the next bytes."""
        found: bytes = self._file.read(size) or b""
        self.bytes += len(found)
        return found

    def seek(self, offset: int, whence: int = 0) -> int:
        """Moves to an offset."""
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        """Returns the offset of the next read."""
        return int(self._file.tell())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


@dataclass
class RowGroups:
    """Reads row groups; `bytes_read` counts the bytes read from the disk, including footers."""

    bytes_read: int = 0

    def stream(
        self, parts: Iterable[tuple[NumberedFile, Pick]], schema: pa.Schema, *, whole: bool = False
    ) -> pa.RecordBatchReader:
        """Yields the chosen row groups, one after the other, with their locations.

        Args:
            parts: files, each with its choice.
            schema: the columns to read, and their types.
            whole: adds `_level` and `_checkpoint`.
        """
        wanted = pa.schema([*schema, *PLACE, *(PARTITION if whole else ())])
        tables = (table.select(wanted.names).cast(wanted) for f, pick in parts for table in self._file(f, pick, schema))
        return pa.RecordBatchReader.from_batches(wanted, (b for table in tables for b in table.to_batches()))

    def schema_of(self, file: NumberedFile) -> pa.Schema:
        """Returns the columns of a file in their stored form."""
        source = CountedFile(file.path)
        try:
            with pq.ParquetFile(source) as opened:
                return opened.schema_arrow.remove_metadata()
        finally:
            self.bytes_read += source.bytes
            source.close()

    def _file(self, file: NumberedFile, pick: Pick, schema: pa.Schema) -> Iterator[pa.Table]:
        source = CountedFile(file.path)
        try:
            with pq.ParquetFile(source) as opened:
                for n in range(opened.num_row_groups):
                    if pick(n, _bounds(opened.metadata.row_group(n))):
                        yield _placed(opened.read_row_group(n, columns=schema.names), file, n)
        finally:
            self.bytes_read += source.bytes
            source.close()


def every(number: int, bounds: Bounds) -> bool:
    """Picks every row group."""
    return True


def above(column: str, least: int) -> Pick:
    """Picks row groups that may hold a greater value of a column than `least`."""

    def pick(number: int, bounds: Bounds) -> bool:
        found = bounds(column)
        return found is None or found[1] > least

    return pick


def select_row_groups(column: str, values: Iterable[int]) -> Pick:
    """Picks row groups that may hold one of these values of a column."""
    wanted = sorted(values)

    def pick(number: int, bounds: Bounds) -> bool:
        found = bounds(column)
        return any(found is None or found[0] <= value <= found[1] for value in wanted)

    return pick


def among(numbers: Iterable[int]) -> Pick:
    """Picks row groups by their numbers."""
    wanted = frozenset(numbers)
    return lambda number, bounds: number in wanted


def _bounds(group: Any) -> Bounds:
    columns = {group.column(at).path_in_schema: at for at in range(group.num_columns)}

    def bounds(column: str) -> tuple[Any, Any] | None:
        found = group.column(columns[column]).statistics if column in columns else None
        return (found.min, found.max) if found is not None and found.has_min_max else None

    return bounds


def _placed(rows: pa.Table, file: NumberedFile, row_group: int) -> pa.Table:
    own: Sequence[tuple[str, int, pa.DataType]] = (
        ("_file", file.number, pa.int32()),
        ("_row_group", row_group, pa.int32()),
        ("_level", file.live.level, pa.int32()),
        ("_checkpoint", file.live.checkpoint, pa.int64()),
    )
    for name, value, of in own:
        rows = rows.append_column(name, pa.repeat(pa.scalar(value, of), rows.num_rows))
    return rows
