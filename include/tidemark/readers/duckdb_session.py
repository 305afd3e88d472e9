"""DuckDB over Arrow and files of state: a connection of its own that opens nothing else, and tells errors in our words.

What a query may see is what was registered, and the files that were named when the connection was opened. Only spilled
intermediates of a large query are written, in a folder that goes with the connection.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import duckdb
import pyarrow as pa

from tidemark.errors import StateOverflowError, StoreError
from tidemark.sql.fold_columns import DUCKDB_MACROS, overflow_in

WORKER: Mapping[str, str] = {"threads": "1", "memory_limit": "1GB"}
"""Settings where several programs of one machine ask at once, each for its share; larger intermediates are spilled."""
_BATCH = 10_000
"""Rows that are handed on at once, as many as Spark puts into one batch: more are no faster."""
_CLOSED = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    # Without this a table that is not found is looked up among the variables of this program.
    "python_enable_replacements": "false",
}


@contextmanager
def opened(files: Sequence[str] = (), config: Mapping[str, str] | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection in memory, in UTC, that knows our macros.

    Args:
        files: paths of the only files that it may read.
        config: settings of DuckDB's for threads and memory; it takes all that the machine has without them.
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
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


class Ask(Protocol):
    """Asks one query after another of Arrow tables."""

    def __call__(self, sql: str, **tables: Any) -> pa.Table:
        """The rows of a query; it sees the tables and readers that are given with it."""


@contextmanager
def asking() -> Iterator[Ask]:
    """A connection for many small queries: opening one takes longer than most of them."""
    with opened() as connection:

        def ask(sql: str, **tables: Any) -> pa.Table:
            for name, table in tables.items():
                connection.register(name, table)
            found = connection.sql(sql).to_arrow_table()
            for name in tables:
                connection.unregister(name)
            return found

        yield ask


def streamed(rows: duckdb.DuckDBPyRelation, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a query in these columns, a batch at a time, while DuckDB goes on.

    Raises:
        duckdb.Error: as for any query; what DuckDB meets between two batches comes through Arrow as an OSError.
    """
    try:
        for batch in rows.to_arrow_reader(_BATCH):
            yield batch.cast(schema)
    except OSError as error:
        kind = duckdb.OutOfRangeException if str(error).startswith("Out of Range") else duckdb.Error
        raise kind(str(error)) from error


@contextmanager
def told(what: str) -> Iterator[None]:
    """Tells DuckDB's errors in our words.

    Args:
        what: what could not be done; DuckDB's message follows in parentheses.

    Raises:
        StateOverflowError: a key's merged state does not fit; the message names the key.
        StoreError: anything else that DuckDB complains of.
    """
    try:
        yield
    except duckdb.Error as error:
        refuse_overflow(error)
        if isinstance(error, duckdb.OutOfRangeException):
            raise StateOverflowError(
                f"state overflow: {what} ({message_of(error)})",
                safe="every completed checkpoint is intact.",
                next="declare the finish of the aggregate over floats, or look at an older checkpoint.",
            ) from error
        raise StoreError(
            f"{what} ({message_of(error)})",
            safe="nothing was written; other restore points may be intact.",
            next="put the table's files back from a backup of the warehouse, or read an older checkpoint.",
        ) from error


def message_of(error: duckdb.Error) -> str:
    """DuckDB's message in one line, without the text of the statement."""
    return " ".join(str(error).partition("\n\nLINE")[0].split())


def is_damage(error: duckdb.Error, files: Sequence[str]) -> bool:
    """Whether one of the files is damaged: what the Parquet reader trips over has no class of its own."""
    return type(error) is duckdb.Error or any(path in str(error) for path in files)


def refuse_overflow(error: duckdb.Error) -> None:
    """Raises if DuckDB says that merged state does not fit.

    Raises:
        StateOverflowError: naming the key.
    """
    what = overflow_in(str(error))
    if what is not None:
        raise StateOverflowError(
            f"state overflow: {what}",
            safe="every completed checkpoint is intact.",
            next="widen the field's type or its limit and replay, or look at the key in an older checkpoint.",
        ) from error
