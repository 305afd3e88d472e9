"""The rows of a patch, made by DuckDB from external tables and the patched state: it looks up just those keys."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tidemark.errors import UsageError
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.sql import key_columns
from tidemark.model.retention.export_manifest import ExportedFile
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.readers.duckdb_session import open_connection, translate_duckdb_errors
from tidemark.readers.state_reader import Relation, stored_rows
from tidemark.sql.patch_rows import PatchedState, compared_sql, ended_sql, numbered_sql, patch_sql
from tidemark.sql.resolve import resolving_sql
from tidemark.storage.local_store import Root
from tidemark.storage.parquet_folder import ParquetFolder
from tidemark.tables.delta_tables import arrow_schema
from tidemark.transfer.bootstrap_tables import GivenTable
from tidemark.transfer.export_folder import order_columns, stored_order

_BATCH = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenPatch:
    """A patch for the state of one operator.

    Attributes:
        schema: the stored schema, which says that the state is patched.
        handle: the state to patch.
        now: its clocks.
        at_ms: access time of the keys that are set, on the operator's clock.
        values: path of a table of keys and their new values; None = no key is set.
        deletes: path of a table of keys to delete; None = no key is deleted.
    """

    schema: OperatorSchema
    handle: StateHandle
    now: Now
    at_ms: int
    values: str | None
    deletes: str | None


class PatchRows:
    """The rows of a patch, not written yet; valid inside the block of `patch_rows`."""

    def __init__(self, connection: Any, given: GivenPatch) -> None:
        self._connection, self._given = connection, given

    def write(self, folder: ParquetFolder, name: str, number: int) -> list[ExportedFile]:
        """Writes the rows; does nothing if there are none.

        Args:
            folder: the target folder.
            name: folder in it.
            number: id of the checkpoint that makes them.

        Raises:
            OSError: the disk refused.
        """
        schema = self._given.schema
        columns = run_columns(schema)
        if not self._count("made"):
            return []
        made = self._connection.sql(order_columns(numbered_sql("made", number), columns, stored_order(schema)))
        return folder.files(name, made.to_arrow_reader(_BATCH), arrow_schema(columns))

    def describe(self, files: Sequence[ExportedFile]) -> PatchedState:
        """Returns the effect of the patch, given its files."""
        schema = self._given.schema
        (new, equal) = self._connection.sql(compared_sql(schema, "given", "was", "becomes")).fetchall()[0]
        there = self._count(f"deleted SEMI JOIN was USING ({', '.join(key_columns(schema))})")
        return PatchedState(
            new=new,
            changed=self._count("given") - new - equal,
            equal=equal,
            deleted=there,
            absent=self._count("deleted") - there,
            rows=self._count("made"),
            bytes=sum(f.bytes for f in files),
        )

    def _count(self, relation: str) -> int:
        found: int = self._connection.sql(f"SELECT count(*) FROM {relation}").fetchall()[0][0]
        return found


@contextmanager
def patch_rows(warehouse: Root, given: GivenPatch) -> Iterator[PatchRows]:
    """Reads the tables, looks up the patched state, and makes the rows.

    Raises:
        NotFoundError: there is no such table.
        UsageError: a row does not fit, its window is closed, or a key is both set and deleted.
        StateOverflowError: the new value of a key does not fit; the message names the key.
        StoreError: a table, or the state, cannot be read.
    """
    rows = stored_rows(warehouse, given.schema, given.handle)
    if rows is None:
        rows = Relation(parts=((arrow_schema(run_columns(given.schema)).empty_table(), None),))
    with open_connection(rows.files) as connection:
        with translate_duckdb_errors(f"state of {given.schema.uid} cannot be patched"):
            _load(connection, given)
            _make(connection, given, rows.register(connection, "rows"))
        yield PatchRows(connection, given)


def _load(connection: Any, given: GivenPatch) -> None:
    """Creates the tables `given` and `deleted`: the request."""
    schema, keys = given.schema, ", ".join(key_columns(given.schema))
    paths = {"given": given.values, "deleted": given.deletes}
    for name, path in paths.items():
        if path is not None:
            frontier = given.now.frontiers.get(schema.uid)
            GivenTable(path, schema, keys_only=name == "deleted", frontier=frontier).load(connection, name)
    for name, other in (("given", "deleted"), ("deleted", "given")):
        if paths[name] is None:
            connection.execute(f"CREATE TEMP TABLE {name} AS FROM {other} LIMIT 0")
    twice = connection.sql(f"SELECT {keys} FROM given SEMI JOIN deleted USING ({keys}) ORDER BY ALL LIMIT 3").fetchall()
    if twice:
        raise UsageError(
            f"keys of {schema.uid} are both set and deleted: {', '.join('/'.join(map(str, key)) for key in twice)}",
            next="keep each of them in only one of the two tables.",
        )


def _make(connection: Any, given: GivenPatch, stored: str) -> None:
    """Creates the tables `beneath` (stored rows of these keys), `made` (patch rows), `was` and `becomes` (resolved)."""
    schema, keys = given.schema, ", ".join(key_columns(given.schema))
    touched = f"(SELECT {keys} FROM given UNION ALL SELECT {keys} FROM deleted) AS t"
    tables = {
        "beneath": f"SELECT * FROM {stored} SEMI JOIN {touched} USING ({keys})",
        "gone": f"SELECT * FROM deleted SEMI JOIN beneath USING ({keys})",
        "made": patch_sql(schema, "given", "gone", given.at_ms),
        "was": resolving_sql(schema, "beneath", given.now),
        "becomes": resolving_sql(schema, "made", given.now),
    }
    for name, query in tables.items():
        connection.execute(f"CREATE TEMP TABLE {name} AS {query}")
    if schema.maps:
        connection.execute(f"INSERT INTO made {ended_sql(schema, 'beneath', 'made')}")
