"""Finds and removes keys in Parquet files (`ports.KeyFiles`): with pyarrow, a row group at a time, without a JVM."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.errors import StoreError
from tidemark.model.checkpoint.row_tables import ROW_CHECKPOINT
from tidemark.model.retention.erasure import ErasedKey
from tidemark.model.retention.letter_keys import belongs_to
from tidemark.ports import LiveFile, WrittenFile, WrittenRun
from tidemark.storage.local_store import Root, arrow_place, fsync, join_path, stage_folder

Footers = Callable[[str, int, Sequence[str]], WrittenRun]
"""`engine.write.parquet_writer.written_run`: files of a folder with footers, given the rows and bounded columns."""
_GROUP, _UID = "_key_group", "_uid"
_RAW = ("key", "value", "headers")
"""Columns of dead letters with the raw data from Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetKeyFiles:
    """Implements `ports.KeyFiles` on a local or shared file system, or in a bucket.

    Attributes:
        warehouse: root of all tables.
        footers: reads the written files, as every commit does.
    """

    warehouse: Root
    footers: Footers

    def rows_of(self, table: str, file: LiveFile, key: ErasedKey) -> int:
        """See `ports.KeyFiles`."""
        with self._opened(table, file) as opened:
            return sum(_count(_mask(table, opened, n, key)) for n in _groups(opened, key.groups))

    def without(
        self, table: str, files: Sequence[LiveFile], key: ErasedKey, folder: str
    ) -> Mapping[str, WrittenFile | None]:
        """See `ports.KeyFiles`."""
        made, rows = dict[str, str](), 0
        with _mapped(folder), stage_folder(self.warehouse, folder) as target:
            target.mkdir(parents=True, exist_ok=True)
            for n, f in enumerate(files):
                name = f"part-{n:05d}.parquet"
                rows += self._copied(table, f, key, target / name)
                made[f.path] = f"{target.name}/{name}"
            fsync(target)
            written = {w.path: w for w in self.footers(str(target), rows, (*key.columns, _GROUP, ROW_CHECKPOINT)).files}
        return {path: written.get(name) for path, name in made.items()}

    def mentions(self, table: str, file: LiveFile, columns: Mapping[str, object]) -> int:
        """See `ports.KeyFiles`."""
        key = ErasedKey(columns=tuple(columns), values=tuple(columns.values()), groups=())
        with self._opened(table, file) as opened:
            return sum(_count(_mask(table, opened, n, key)) for n in range(opened.num_row_groups))

    def _copied(self, table: str, file: LiveFile, key: ErasedKey, target: Path) -> int:
        rows, touched = 0, set[int]()
        with self._opened(table, file) as opened:
            touched.update(_groups(opened, key.groups))
            # Microseconds, as Spark writes and reads them, even if another writer's file has others.
            with pq.ParquetWriter(
                target, opened.schema_arrow, compression="zstd", write_page_checksum=True, coerce_timestamps="us"
            ) as writer:
                for n in range(opened.num_row_groups):
                    held = opened.read_row_group(n)
                    if n in touched:
                        held = held.filter(pc.invert(_mask_of(table, held, key)))
                    if held.num_rows:
                        writer.write_table(held)
                        rows += held.num_rows
        fsync(target)
        return rows

    @contextmanager
    def _opened(self, table: str, file: LiveFile) -> Iterator[pq.ParquetFile]:
        path, system = arrow_place(join_path(self.warehouse, table, file.path))
        with _mapped(f"{table}/{file.path}"), pq.ParquetFile(path, filesystem=system) as opened:
            yield opened


def _groups(opened: pq.ParquetFile, groups: Sequence[int]) -> list[int]:
    """Returns row groups that may contain one of some key groups, by their bounds."""
    column = opened.schema_arrow.get_field_index(_GROUP)
    if column < 0:
        return list(range(opened.num_row_groups))
    at = next((n for n in range(opened.metadata.num_columns) if opened.schema.column(n).path == _GROUP), None)
    found = []
    for n in range(opened.num_row_groups):
        bounds = None if at is None else opened.metadata.row_group(n).column(at).statistics
        if bounds is None or not bounds.has_min_max or any(bounds.min <= group <= bounds.max for group in groups):
            found.append(n)
    return found


def _mask(table: str, opened: pq.ParquetFile, n: int, key: ErasedKey) -> Any:
    wanted = _RAW if _is_letters(table) else (*key.columns, *([_UID] if _is_sink(table) else ()))
    columns = [name for name in wanted if name in opened.schema_arrow.names]
    return _mask_of(table, opened.read_row_group(n, columns=columns), key)


def _mask_of(table: str, held: pa.Table, key: ErasedKey) -> Any:
    if _is_letters(table):
        return _letters_of(held, key)
    if not set(key.columns) <= set(held.column_names):
        return pa.repeat(pa.scalar(False), held.num_rows)
    found = None
    for name, value in zip(key.columns, key.values, strict=True):
        equal = pc.fill_null(_equal(held.column(name), value), False)
        found = equal if found is None else pc.and_(found, equal)
    if key.uids and _is_sink(table):
        found = pc.and_(found, pc.is_in(held.column(_UID), pa.array(sorted(key.uids))))
    return found


def _equal(column: pa.ChunkedArray, value: object) -> Any:
    try:
        return pc.equal(column, pa.scalar(value).cast(column.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.repeat(pa.scalar(False), len(column))  # a sink has a column of the same name for something else


def _letters_of(held: pa.Table, key: ErasedKey) -> Any:
    columns = dict(zip(key.columns, key.values, strict=True))
    if key.has_several_names:
        columns = {f"any member {n}": value for n, value in enumerate(key.values)}
    raw = [held.column(name).to_pylist() for name in _RAW if name in held.column_names]
    return pa.array([_is_of(columns, *row) for row in zip(*raw, strict=True)], pa.bool_())


def _is_of(
    columns: Mapping[str, object],
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Mapping[str, bytes | None]] | None = None,
) -> bool:
    return belongs_to(key, value, columns, [h["value"] for h in headers or ()])


def _is_sink(table: str) -> bool:
    """Whether a table has rows that operators have emitted, each with its operator."""
    return table.split("/")[1:2] in (["sinks"], ["outbox"])


def _is_letters(table: str) -> bool:
    """Whether a table has dead letters, whose columns are never those of a key, whatever their names."""
    return table.split("/")[1:2] == ["dead_letters"]


def _count(mask: Any) -> int:
    return int(pc.sum(mask).as_py() or 0)


@contextmanager
def translate_library_errors(what: str, *, safe: str, following: str) -> Iterator[None]:
    """Translates errors of the disk and of libraries.

    Args:
        what: the file or folder that was read or written.
        safe: what the failure has not changed.
        following: what to do next.

    Raises:
        StoreError: for each of them.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"could not read or write {what}: {str(error).splitlines()[0]}", safe=safe, next=following
        ) from error


def _mapped(what: str) -> AbstractContextManager[None]:
    return translate_library_errors(
        what,
        safe="this changed no restore point; those revised earlier are complete.",
        following="check the disk, then repeat the erasure: it continues with the rest.",
    )
