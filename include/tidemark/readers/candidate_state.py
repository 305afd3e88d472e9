"""Reads stored state for the engine: in this process, also with files of runs that no commit names yet, or in workers.

For few keys DuckDB answers before Spark has planned the query. It is imported with the first question, because most
runs have none.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.sql import adds_sql, quote
from tidemark.model.portable_sql.dialects import DUCKDB
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.compaction import Group
from tidemark.sql.resolve import empty_columns, resolving_sql
from tidemark.storage.local_store import Root, join_path

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.readers.state_reader import KeyReader


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateState:
    """Implements `engine.state.state_files.CandidateReader`, and its `WorkerReader`, for one warehouse.

    Attributes:
        warehouse: root of all tables.
    """

    warehouse: Root

    def rows(
        self, schema: OperatorSchema, groups: Sequence[Group], files: Sequence[str], now: Now, at_most: int
    ) -> "pa.Table":
        """Returns one row per live key: key columns, state fields, `_changed`, in no particular order.

        Args:
            schema: the stored schema.
            groups: the stored files, at least one if there are no others.
            files: paths of the run's files, relative to the warehouse.
            now: the clocks of the candidate.
            at_most: more rows than this are left out.

        Raises:
            StoreError: a file is missing or cannot be read.
            StateOverflowError: a key's merged state does not fit; the message names the key.
        """
        from tidemark.tables.delta_tables import arrow_schema

        with self._opened(schema, groups, files) as (connection, stored, run):
            whole = " UNION ALL BY NAME ".join(f"SELECT * FROM {rows}" for rows in (stored, run) if rows)
            query = resolving_sql(schema, f'({whole}) AS "_stored"', now)
            found = connection.sql(f'SELECT * FROM ({query}) AS "_resolved" LIMIT {at_most}')
            return found.to_arrow_table().cast(arrow_schema(empty_columns(schema)))

    def refuse_overflow(self, schema: OperatorSchema, groups: Sequence[Group], files: Sequence[str], now: Now) -> None:
        """Merges the rows of a run that add to limited fields with the stored rows of their keys.

        Args:
            schema: the stored schema with the limited fields alone; see `limited_schema`.
            groups: the stored files, at least one.
            files: paths of the run's files, relative to the warehouse, at least one.
            now: the clocks of the candidate.

        Raises:
            StateOverflowError: the result does not fit; the message names the field and the key.
            StoreError: a file is missing or cannot be read.
        """
        keys = ", ".join(quote(k.name) for k in schema.found_by)
        with self._opened(schema, groups, files) as (connection, stored, run):
            added = f"SELECT * FROM {run} WHERE {DUCKDB.text(adds_sql(schema))}"
            connection.execute(f'CREATE TEMPORARY TABLE "_added" AS {added}')
            older = f'SELECT * FROM {stored} SEMI JOIN "_added" USING ({keys})'
            whole = f'(SELECT * FROM "_added" UNION ALL BY NAME {older}) AS "_stored"'
            # Every field must be used in the query, or DuckDB omits it.
            fields = ", ".join(quote(f.name) for f in schema.fields)
            connection.execute(f'SELECT max(hash({fields})) FROM ({resolving_sql(schema, whole, now)}) AS "_merged"')
            connection.fetchall()

    def key_reader(self, schema: OperatorSchema, groups: Sequence[Group], due: str) -> "KeyReader":
        """Returns a reader of some keys that can be sent to workers; see `readers.state_reader.key_reader`."""
        from tidemark.readers.state_reader import key_reader

        return key_reader(self.warehouse, schema, groups, due)

    @contextmanager
    def _opened(
        self, schema: OperatorSchema, groups: Sequence[Group], files: Sequence[str]
    ) -> Iterator[tuple[Any, str, str]]:
        """Opens a connection; yields it with the relations of stored rows and of the run, empty if there are none."""
        from tidemark.readers.duckdb_session import ALONE, open_connection, translate_duckdb_errors
        from tidemark.readers.state_reader import Relation, readable, relation_of

        run = readable([join_path(self.warehouse, path) for path in files]) if files else ()
        parts = [relation_of(self.warehouse, schema, groups) if groups else None]
        parts.append(Relation(parts=((run, None),)) if files else None)
        opened = [path for rows in parts if rows is not None for path in rows.files]
        with (
            open_connection(opened, ALONE) as connection,
            translate_duckdb_errors(f"state of {schema.uid} cannot be read"),
        ):
            stored, added = ("" if r is None else r.register(connection, f"rows {n}") for n, r in enumerate(parts))
            yield connection, stored, added
