"""External Parquet files or a Delta table as stored rows of an operator: typed, keyed, sorted, every row checked."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.errors import NotFoundError, StoreError, UsageError
from tidemark.model.kinds.base.sql import key_columns
from tidemark.model.retention.export_manifest import ExportedFile
from tidemark.model.schema.key_groups import groups_of
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.readers.duckdb_session import open_connection, translate_duckdb_errors
from tidemark.sql.initial_state import given_columns, stored_sql, timer_faults, window_fault
from tidemark.storage.parquet_folder import ParquetFolder
from tidemark.tables.delta_tables import arrow_schema, fits
from tidemark.transfer.export_folder import order_columns, stored_order

_BATCH = 100_000
_GROUP = pa.field("_key_group", pa.int32())
_UNREADABLE = (DeltaError, OSError, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class GivenTable:
    """A table with the future state of an operator; it is only read.

    Attributes:
        path: a Parquet file, a folder of them, or a Delta table, at its newest version.
        schema: the operator's stored schema.
        keys_only: whether it only names keys: field columns are not read, and stay null.
        frontier: of the operator: windows up to it are closed and timers have fired; None = none has.
    """

    path: str
    schema: OperatorSchema
    keys_only: bool = False
    frontier: int | None = None

    def check(self) -> int:
        """Reads every row; returns their number.

        Raises:
            NotFoundError: nothing exists at this path.
            UsageError: a column is missing or has another type, a value does not fit, a key is null or occurs twice, a
                window is closed or none of the operator's, or a timer would never fire.
            StoreError: the table cannot be read.
        """
        with open_connection() as connection, translate_duckdb_errors(f"{self.path} cannot be used"):
            return self.load(connection, "given")

    def write(self, folder: ParquetFolder, at_ms: int, changed: int) -> list[ExportedFile]:
        """Writes the stored rows in the form of an export; see `sql.initial_state`.

        Raises:
            TidemarkError: see `check`.
        """
        columns = run_columns(self.schema)
        with open_connection() as connection, translate_duckdb_errors(f"{self.path} cannot be used"):
            self.load(connection, "given")
            rows = stored_sql(self.schema, "given", at_ms, changed)
            made = connection.sql(order_columns(rows, columns, stored_order(self.schema)))
            name = f"stored/{self.schema.uid}"
            return folder.files(name, made.to_arrow_reader(_BATCH), arrow_schema(columns))

    def load(self, connection: Any, name: str) -> int:
        """Makes a table of the rows, batch by batch, so that an error of one batch is raised unchanged.

        Args:
            connection: connection to DuckDB.
            name: name of the new table, with `given_columns` and `_key_group`.

        Raises:
            TidemarkError: see `check`.
        """
        keys, count = ", ".join(key_columns(self.schema)), 0
        make = f"CREATE TEMP TABLE {name} AS"
        for batch in self._rows():
            connection.register("batch", batch)
            connection.execute(f"{make} FROM batch")
            connection.unregister("batch")
            make, count = f"INSERT INTO {name} BY NAME", count + batch.num_rows
        twice = f"SELECT {keys} FROM {name} GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL LIMIT 3"
        found = connection.sql(twice).fetchall()
        if found:
            raise self._refused(f"keys occur twice: {', '.join('/'.join(map(str, key)) for key in found)}")
        torn = [found for f in self.schema.fields for found in f.state_kind.import_faults(f)]
        for wrong, why in [*torn, *timer_faults(self.schema, self.frontier)]:
            if connection.sql(f"SELECT 1 FROM {name} WHERE {wrong} LIMIT 1").fetchall():
                raise self._refused(why)
        return count

    def _rows(self) -> Iterator[pa.Table]:
        """Yields the wanted columns in their types, and `_key_group`; first an empty table with all columns."""
        whole = given_columns(self.schema)
        yield arrow_schema([(name, of.sql) for name, of in whole]).append(_GROUP).empty_table()
        wanted = tuple((k.name, k.type) for k in self.schema.keys) if self.keys_only else whole
        schema = arrow_schema([(name, of.sql) for name, of in wanted])
        there, batches = self._source()
        held = {f.name: f.type for f in there}
        wrong = [f"{n} {of.sql} is missing" for n, of in wanted if n not in held]
        wrong += [f"{n} is {held[n]}, not {of.sql}" for n, of in wanted if n in held and not fits(held[n], of)]
        if wrong:
            raise self._refused("; ".join(wrong))
        for batch in batches:
            yield self._grouped(batch, schema)

    def _grouped(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
        try:
            rows = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
        except (pa.ArrowException, KeyError) as error:
            raise self._refused(f"a value does not fit: {str(error).splitlines()[0]}") from error
        keys = [k.name for k in self.schema.keys]
        nulls = [name for name in keys if rows[name].null_count]
        if nulls:
            raise self._refused(f"a key is null: {', '.join(nulls)}")
        values = list(zip(*(rows[name].to_pylist() for name in keys), strict=True))
        if self.schema.window is not None:
            for *_, start, end in values:
                why = window_fault(self.schema.window, start.astimezone(UTC), end.astimezone(UTC), self.frontier)
                if why is not None:
                    raise self._refused(why)
        return rows.append_column(_GROUP, key_groups_of(self.schema, values))

    def _source(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        path = Path(self.path)
        with self._readable():
            if path.is_dir() and DeltaTable.is_deltatable(str(path)):
                reader = pa.RecordBatchReader.from_stream(DeltaTable(str(path)).scan())
                return reader.schema, self._read_batches(iter(reader))
            files = [path] if path.is_file() else sorted(filter(_is_data(path), path.rglob("*.parquet")))
            if not files:
                raise NotFoundError(f"no table at {self.path}", next="name a Parquet file, a folder, or a Delta table.")
            return pq.read_schema(files[0]), self._read_batches(_batches(files))

    def _read_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self._readable():
            yield from batches

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except _UNREADABLE as error:
            raise StoreError(f"{self.path} cannot be read: {error}", next="check the table.") from error

    def _refused(self, why: str) -> UsageError:
        as_what = "name keys" if self.keys_only else "be the state"
        return UsageError(
            f"{self.path} cannot {as_what} of {self.schema.uid}: {why}",
            next="give one row per key; mean, reduce and aggregate need the columns of their accumulators.",
        )


def _is_data(folder: Path) -> Callable[[Path], bool]:
    """Whether a file belongs to the table: Spark also treats names that start with `_` or `.` as a writer's own."""
    return lambda file: not any(part.startswith(("_", ".")) for part in file.relative_to(folder).parts)


def _batches(files: list[Path]) -> Iterator[pa.RecordBatch]:
    for path in files:
        with pq.ParquetFile(path) as source:
            yield from source.iter_batches(_BATCH)


def key_groups_of(schema: OperatorSchema, keys: Iterable[Sequence[object]]) -> pa.Array:
    """Returns the column `_key_group` of rows with these keys."""
    return pa.array(groups_of(schema, keys), _GROUP.type)
