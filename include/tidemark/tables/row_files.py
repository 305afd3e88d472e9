"""Rows of sinks and dead letters in Parquet: reads them with their checkpoint, and merges files of many checkpoints.

A file that a checkpoint wrote has its checkpoint in its partition. A compacted file holds rows of many checkpoints, and
names that of each row (`row_tables.ROW_CHECKPOINT`).
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.model.checkpoint.row_tables import ROW_CHECKPOINT, RowTable, letter_rows, may_hold
from tidemark.model.checkpoint.segments import Segment, StateHandle, is_base
from tidemark.model.checkpoint.sinks import FIRST_PATH, PATH
from tidemark.ports import LiveFile, WrittenRun
from tidemark.storage.local_store import Root, arrow_place, fsync, join_path, stage_folder
from tidemark.storage.parquet_folder import open_rows_writer
from tidemark.tables.delta_reader import segment_files, unusable_table
from tidemark.tables.delta_tables import arrow_schema
from tidemark.tables.key_rewriter import Footers, translate_library_errors

_PLACE = ["topic", "partition", "offset", "path"]
StoredLetter = tuple[int, str, int, int, tuple[int, ...]]
"""Checkpoint, topic, partition, offset and path."""
_BATCH = 65_536
"""Rows that a merge holds in memory at a time."""


def read_file(
    warehouse: Root, table: RowTable, segment: Segment, file: LiveFile, columns: Sequence[str], checkpoint: int = 0
) -> pa.Table:
    """Returns the rows of a file in some columns of a table, with their checkpoint in `ROW_CHECKPOINT` as the last one.

    Expired rows are left out.

    Args:
        warehouse: root of all tables.
        table: the table.
        segment: the segment that names the file.
        file: the file.
        columns: the columns to return; a column that the file lacks is null.
        checkpoint: return only rows of this checkpoint; 0 = all rows.

    Raises:
        StoreError: the file is missing, or cannot be read.
    """
    wanted = [(name, sql) for name, sql in table.columns if name in columns]
    place = join_path(warehouse, segment.path)
    path, system = arrow_place(place / file.path)
    named = is_base(segment.path)
    sources = _stored([name for name, _ in wanted], table, segment)
    try:
        held = pq.read_table(
            path,
            columns=[*sources, *([ROW_CHECKPOINT] if named else [])],
            partitioning=None,
            filesystem=system,
            filters=pc.field(ROW_CHECKPOINT) == checkpoint if named and checkpoint else None,
        )
        rows = _shaped(held, arrow_schema(wanted), None if named else file.checkpoint)
    except (OSError, pa.ArrowInvalid) as error:
        raise unusable_table(place, f"file {file.path} cannot be read: {error}") from error
    at = rows.column(ROW_CHECKPOINT)
    is_wanted = pc.greater(at, table.handle.expired)
    return rows.filter(pc.and_(is_wanted, pc.equal(at, checkpoint)) if checkpoint else is_wanted)


def read_letters(
    warehouse: Root, handle: StateHandle, columns: list[str], checkpoint: int | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """Yields the dead letters of a handle with the checkpoint that wrote them.

    Args:
        warehouse: the warehouse.
        handle: the dead-letter tables of an operator.
        columns: the columns to read.
        checkpoint: only the letters of this checkpoint; None = all.

    Raises:
        StoreError: a version or a file of the handle is missing.
    """
    held = letter_rows(handle)
    for segment, f in ((s, f) for s in handle for f in segment_files(join_path(warehouse, s.path), s)):
        if checkpoint is None or may_hold(segment, f, checkpoint):
            rows = read_file(warehouse, held, segment, f, columns, checkpoint or 0)
            yield from _by_checkpoint(rows)


def find_letters(
    warehouse: Root, handle: StateHandle, positions: Collection[tuple[str, int, int]]
) -> list[StoredLetter]:
    """Finds dead letters at positions (topic, partition, offset), whatever checkpoint wrote them.

    Returns:
        Of each letter: its checkpoint, topic, partition, offset and path.

    Raises:
        StoreError: a version or a file of the handle is missing.
    """
    found = []
    for made, part in read_letters(warehouse, handle, _PLACE):
        places = zip(*(part[name].to_pylist() for name in _PLACE), strict=True)
        found += [(made, *at, tuple(path or ())) for *at, path in places if tuple(at) in positions]
    return found


def _by_checkpoint(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Splits rows by the checkpoint in `ROW_CHECKPOINT`, which they lose."""
    ordered = rows.sort_by(ROW_CHECKPOINT)
    ends = pc.run_end_encode(ordered[ROW_CHECKPOINT].combine_chunks()) if ordered.num_rows else None
    first = 0
    for end, made in zip(ends.run_ends.to_pylist(), ends.values.to_pylist(), strict=True) if ends else ():
        yield made, ordered.slice(first, end - first).drop_columns([ROW_CHECKPOINT])
        first = end


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetRowFiles:
    """Implements `ports.RowFiles` on a local or shared file system, or in a bucket.

    Attributes:
        warehouse: root of all tables.
        footers: reads the written files, as every commit does.
    """

    warehouse: Root
    footers: Footers

    def merge(
        self, table: RowTable, files: Sequence[tuple[Segment, LiveFile]], folder: str, rows_per_file: int
    ) -> WrittenRun:
        """See `ports.RowFiles`."""
        with _mapped(folder), stage_folder(self.warehouse, folder) as target:
            target.mkdir(parents=True, exist_ok=True)
            rows = _write(self._batches(table, files), arrow_schema(table.stored), target, rows_per_file)
            fsync(target)
            return self.footers(str(target), rows, (ROW_CHECKPOINT,))

    def _batches(self, table: RowTable, files: Sequence[tuple[Segment, LiveFile]]) -> Iterator[pa.Table]:
        """The rows of files, without expired ones."""
        schema = arrow_schema(table.columns)
        for segment, file in files:
            named = is_base(segment.path)
            columns = _stored(schema.names, table, segment) + ([ROW_CHECKPOINT] if named else [])
            path, system = arrow_place(join_path(self.warehouse, segment.path, file.path))
            with pq.ParquetFile(path, filesystem=system) as opened:
                for batch in opened.iter_batches(batch_size=_BATCH, columns=columns):
                    held = pa.Table.from_batches([batch])
                    rows = _shaped(held, schema, None if named else file.checkpoint)
                    yield rows.filter(pc.greater(rows.column(ROW_CHECKPOINT), table.handle.expired))


def _shaped(held: pa.Table, schema: pa.Schema, checkpoint: int | None) -> pa.Table:
    """Rows in the columns of a schema, and their checkpoint; `checkpoint` is that of all rows."""
    columns = [_column(held, of) for of in schema]
    at = pa.repeat(pa.scalar(checkpoint, pa.int64()), held.num_rows) if checkpoint else held[ROW_CHECKPOINT]
    return pa.table([*columns, at], schema=schema.append(pa.field(ROW_CHECKPOINT, pa.int64())))


def _stored(columns: Sequence[str], table: RowTable, segment: Segment) -> list[str]:
    """The columns of a file to read for columns of a table."""
    there = table.sources_of(segment.path)
    numbered = PATH in columns and PATH not in there
    return [name for name in columns if name in there] + ([FIRST_PATH] if numbered else [])


def _column(rows: pa.Table, of: pa.Field) -> pa.ChunkedArray:
    if of.name == PATH and FIRST_PATH in rows.column_names:
        numbers = rows[FIRST_PATH].combine_chunks()
        return pa.chunked_array([pa.ListArray.from_arrays(pa.array(range(len(numbers) + 1), pa.int32()), numbers)])
    if of.name not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, of.type)])
    return rows[of.name].cast(of.type)


def _write(batches: Iterator[pa.Table], schema: pa.Schema, target: Path, rows_per_file: int) -> int:
    """Writes rows in their order to files of at most so many rows; returns the number of rows."""
    rows, writer, left = 0, None, 0
    try:
        for held in (part for part in batches if part.num_rows):
            while held.num_rows:
                if writer is None or not left:
                    writer, left = _next(writer, schema, target), rows_per_file
                part, held = held.slice(0, left), held.slice(left)
                writer.write_table(part)
                rows, left = rows + part.num_rows, left - part.num_rows
    finally:
        if writer is not None:
            writer.close()
    for path in target.glob("*.parquet"):
        fsync(path)
    return rows


def _next(writer: Any, schema: pa.Schema, target: Path) -> pq.ParquetWriter:
    if writer is not None:
        writer.close()
    number = len(list(target.glob("*.parquet")))
    return open_rows_writer(target / f"part-{number:05d}.parquet", schema)


def _mapped(what: str) -> AbstractContextManager[None]:
    return translate_library_errors(
        what,
        safe="no checkpoint names the files that were written.",
        following="check the disk, then run tidemark compact again.",
    )
