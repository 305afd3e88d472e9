"""DuckDB over Arrow and files of state: private connections that open nothing else, with translated errors.

A query sees only registered relations, and the files named when the connection was opened. The only files written are
spilled intermediates of a large query, in a folder that is deleted with the connection.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import duckdb
import pyarrow as pa

from tidemark.errors import StateOverflowError, StoreError
from tidemark.model.kinds.base.sql import DUCKDB_MACROS, overflow_in

WORKER: Mapping[str, str] = {"threads": "1", "memory_limit": "1GB"}
"""Settings for several programs on one machine, each with its share; larger intermediates are spilled."""
ALONE: Mapping[str, str] = {"memory_limit": "1GB"}
"""Settings for one program with all cores; larger intermediates are spilled."""
_BATCH = 10_000
"""Rows per batch, as many as in a batch of Spark: larger batches are not faster."""
_CLOSED = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    # Otherwise DuckDB looks an unknown table up among the variables of this program.
    "python_enable_replacements": "false",
}


@contextmanager
def open_connection(
    files: Sequence[str] = (), config: Mapping[str, str] | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Opens a connection in memory, in UTC, with Tidemark's macros.

    Args:
        files: paths of the only files that it may read.
        config: DuckDB's settings for threads and memory; by default it uses the whole machine.
    """
    with TemporaryDirectory(prefix="tidemark-duckdb-") as spill:
        connection = duckdb.connect(config={**(config or {}), **_CLOSED, "temp_directory": spill})
        try:
            connection.execute(f"SET allowed_paths = [{', '.join(map(literal, files))}]")
            connection.execute("SET enable_external_access = false")
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(DUCKDB_MACROS)
            yield connection
        finally:
            connection.close()


def literal(text: str) -> str:
    """Returns a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


class QueryRunner(Protocol):
    """Runs queries over Arrow tables, one after the other."""

    def __call__(self, sql: str, **tables: Any) -> pa.Table:
        """Returns the rows of a query, which sees the tables and readers passed with it."""


@contextmanager
def open_query_runner(config: Mapping[str, str] | None = None) -> Iterator[QueryRunner]:
    """Opens a connection for many small queries, because opening one takes longer than most of them.

    Args:
        config: as in `open_connection`.
    """
    with open_connection(config=config) as connection:

        def ask(sql: str, **tables: Any) -> pa.Table:
            for name, table in tables.items():
                connection.register(name, table)
            found = connection.sql(sql).to_arrow_table()
            for name in tables:
                connection.unregister(name)
            return found

        yield ask


def stream_batches(rows: duckdb.DuckDBPyRelation, schema: pa.Schema, size: int = _BATCH) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a query in these columns, a batch of about `size` rows at a time, while DuckDB continues.

    Raises:
        duckdb.Error: as for any query; errors of DuckDB between two batches arrive from Arrow as OSError.
    """
    try:
        for batch in rows.to_arrow_reader(size):
            yield batch.cast(schema)
    except OSError as error:
        kind = duckdb.OutOfRangeException if str(error).startswith("Out of Range") else duckdb.Error
        raise kind(str(error)) from error


@contextmanager
def translate_duckdb_errors(what: str) -> Iterator[None]:
    """Translates DuckDB's errors.

    Args:
        what: the failed operation; DuckDB's message follows in parentheses.

    Raises:
        StateOverflowError: a key's merged state does not fit; the message names the key.
        StoreError: any other error of DuckDB.
    """
    try:
        yield
    except duckdb.Error as error:
        refuse_overflow(error)
        if isinstance(error, duckdb.OutOfRangeException):
            raise StateOverflowError(
                f"state overflow: {what} ({message_of(error)})",
                safe="every completed checkpoint is intact.",
                next="declare the finish of the aggregate over floats, or use an older checkpoint.",
            ) from error
        raise StoreError(
            f"{what} ({message_of(error)})",
            safe="nothing was written; other restore points may be intact.",
            next="restore the table's files from a backup of the warehouse, or read an older checkpoint.",
        ) from error


def message_of(error: duckdb.Error) -> str:
    """Returns DuckDB's message in one line, without the text of the statement."""
    return " ".join(str(error).partition("\n\nLINE")[0].split())


def is_damage(error: duckdb.Error, files: Sequence[str]) -> bool:
    """Whether one of the files is damaged: errors of the Parquet reader have no class of their own."""
    return type(error) is duckdb.Error or any(path in str(error) for path in files)


def refuse_overflow(error: duckdb.Error) -> None:
    """Raises if DuckDB reports that merged state does not fit.

    Raises:
        StateOverflowError: it does; the message names the key.
    """
    what = overflow_in(str(error))
    if what is not None:
        raise StateOverflowError(
            f"state overflow: {what}",
            safe="every completed checkpoint is intact.",
            next="widen the field's type or its limit and replay, or read the key from an older checkpoint.",
        ) from error
