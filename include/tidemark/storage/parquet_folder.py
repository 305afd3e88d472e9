"""Durable, hashed Parquet and text files in a private folder, and a folder that appears as a whole."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.model.retention.export_manifest import ExportedFile
from tidemark.storage.local_store import Root, fsync, hash_of, stage_folder

ROWS_PER_FILE = 2_000_000
ROW_GROUP = 100_000
_COMPRESSION, _FAST = "zstd", "lz4"
_DICTIONARY = 2**17
"""Bytes of a dictionary: keys are nearly all different, and as plain text they compress better."""


@dataclass(frozen=True, slots=True)
class ParquetFolder:
    """A folder that no other process uses.

    Attributes:
        path: path of the folder, which must exist.
        rows_per_file: rows per file for tables of several files.
    """

    path: Path
    rows_per_file: int = ROWS_PER_FILE

    def files(self, name: str, rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[ExportedFile]:
        """Writes rows, in order, to a folder with as many files as needed, at least one."""
        return [self._describe_file(path, n) for path, n in self._written(name, rows, schema, _COMPRESSION)]

    def scratch_files(self, name: str, rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> tuple[str, ...]:
        """Writes rows like `files`, for this process alone: fast, and not durable; returns the full paths."""
        return tuple(str(self.path / path) for path, _ in self._written(name, rows, schema, _FAST))

    def _written(
        self, name: str, rows: Iterable[pa.RecordBatch], schema: pa.Schema, compression: str
    ) -> list[tuple[str, int]]:
        batches, made = row_groups(rows, schema), list[tuple[str, int]]()
        batch = next(batches, None)
        while batch is not None or not made:
            path, written = f"{name}/part-{len(made):05d}.parquet", 0
            with self._opened(path, schema, compression) as writer:
                while batch is not None and written < self.rows_per_file:
                    writer.write_table(batch)
                    written += batch.num_rows
                    batch = next(batches, None)
            made.append((path, written))
        return made

    def file(self, name: str, rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> ExportedFile:
        """Writes rows, in order, to one file."""
        written = 0
        with self._opened(f"{name}.parquet", schema) as writer:
            for batch in row_groups(rows, schema):
                writer.write_table(batch)
                written += batch.num_rows
        return self._describe_file(f"{name}.parquet", written)

    def text(self, name: str, text: str) -> ExportedFile:
        """Writes a text."""
        where = self.path / name
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(text)
        return self._describe_file(name)

    def _opened(self, name: str, schema: pa.Schema, compression: str = _COMPRESSION) -> pq.ParquetWriter:
        where = self.path / name
        where.parent.mkdir(parents=True, exist_ok=True)
        return open_rows_writer(where, schema, compression)

    def _describe_file(self, name: str, rows: int | None = None) -> ExportedFile:
        where = self.path / name
        fsync(where)
        return ExportedFile(path=name, bytes=where.stat().st_size, sha256=hash_of(where), rows=rows)


@contextmanager
def create_atomically(target: Path, aside: str) -> Iterator[Path]:
    """Yields a folder that appears under its final name as a whole, or not at all.

    Args:
        target: the final path; it must not exist, its parent must.
        aside: name of the sibling folder that is filled in the meantime; it is removed if filling fails.

    Raises:
        OSError: the disk refused, or `target` was created in the meantime.
    """
    filled = target.with_name(aside)
    filled.mkdir()
    try:
        yield filled
        for folder in [p for p in filled.rglob("*") if p.is_dir()] + [filled]:
            fsync(folder)
        filled.rename(target)
    except BaseException:
        shutil.rmtree(filled, ignore_errors=True)
        raise
    fsync(target.parent)


Told = TypeVar("Told")


def write_table(warehouse: Root, folder: str, table: pa.Table, name: str, read: Callable[[Path], Told]) -> Told:
    """Writes rows to a new file in a folder of the warehouse; none if there are no rows.

    Args:
        warehouse: root of all tables.
        folder: path relative to it; no other process uses it.
        table: the rows.
        name: name of the file.
        read: looks at the local folder with the file, before it is sent to a bucket.

    Returns:
        What `read` returns.

    Raises:
        StoreError, OSError: see `stage_folder`.
    """
    with stage_folder(warehouse, folder) as target:
        target.mkdir(parents=True, exist_ok=True)
        if table.num_rows:
            with open_rows_writer(target / name, table.schema) as writer:
                writer.write_table(table, ROW_GROUP)
        return read(target)


def row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yields rows with the declared types, in tables of a row group each: DuckDB's own batches may be small."""
    held, rows = list[pa.Table](), 0
    for batch in batches:
        held.append(pa.Table.from_batches([batch]).cast(schema))
        rows += batch.num_rows
        while rows >= ROW_GROUP:
            whole = pa.concat_tables(held)
            yield whole.slice(0, ROW_GROUP)
            held, rows = [whole.slice(ROW_GROUP)], rows - ROW_GROUP
    if rows:
        yield pa.concat_tables(held)


def open_rows_writer(path: Path | BinaryIO, schema: pa.Schema, compression: str = _COMPRESSION) -> pq.ParquetWriter:
    """Opens a file of a table for rows: microseconds as Spark writes and reads them, checksums, small dictionaries."""
    return pq.ParquetWriter(
        path,
        schema,
        compression=compression,
        write_page_checksum=True,
        coerce_timestamps="us",
        dictionary_pagesize_limit=_DICTIONARY,
    )
