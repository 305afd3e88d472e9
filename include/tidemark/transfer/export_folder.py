"""A checkpoint's states as plain files, without a JVM: DuckDB merges, pyarrow writes, batch by batch."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.sql import DUCKDB_MACROS, quote
from tidemark.model.retention.export_manifest import ExportedFile, ExportedState
from tidemark.model.schema.key_groups import key_group_ranges
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.readers.duckdb_session import open_connection, translate_duckdb_errors
from tidemark.readers.state_reader import Relation, stored_rows
from tidemark.sql.resolve import compacted_sql, empty_columns, resolving_sql
from tidemark.storage.local_store import Root
from tidemark.storage.parquet_folder import ParquetFolder
from tidemark.tables.delta_tables import arrow_schema

_BATCH = 100_000
RANGE_ROWS = 1_000_000
"""Stored rows that are merged at a time: they fit into memory, and each range opens all files again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderExport:
    """Writes to one folder.

    Attributes:
        warehouse: root of all tables.
        folder: the target folder.
        checkpoint: the exported checkpoint.
    """

    warehouse: Root
    folder: ParquetFolder
    checkpoint: Checkpoint

    def state(self, uid: str, queries: Mapping[str, str]) -> ExportedState:
        """Writes one operator's state: fully compacted stored rows, resolved rows, and queries.

        Args:
            uid: the operator.
            queries: the filled resolving query over `segments`, per dialect.

        Raises:
            UsageError: only Spark can read the state.
            StateOverflowError: a key's merged state does not fit; the message names the key.
            StoreError: a version or a file of the handle is missing.
        """
        schema = self.checkpoint.plan.schemas[uid]
        with translate_duckdb_errors(f"state of {uid} cannot be read"):
            rows = compacted_batches(self.warehouse, schema, self.checkpoint.handles[uid], self.checkpoint.now)
            stored = self.folder.files(f"stored/{uid}", rows, arrow_schema(run_columns(schema)))
            resolved = self._resolved(uid, [str(self.folder.path / file.path) for file in stored])
        texts = {dialect: self._query(uid, dialect, query) for dialect, query in queries.items()}
        return ExportedState(schema=replace(schema, older=()), stored=tuple(stored), resolved=resolved, queries=texts)

    def _resolved(self, uid: str, stored: Sequence[str]) -> ExportedFile:
        """Writes the resolved rows in order of keys, from the files with the compacted ones."""
        schema = self.checkpoint.plan.schemas[uid]
        relation = Relation(parts=((tuple(stored), None),))
        with open_connection(stored) as connection:
            query = resolving_sql(schema, relation.register(connection, "rows"), self.checkpoint.now)
            rows = connection.sql(order_columns(query, empty_columns(schema), [k.name for k in schema.keys]))
            return self.folder.file(f"state/{uid}", rows.to_arrow_reader(_BATCH), arrow_schema(empty_columns(schema)))

    def _query(self, uid: str, dialect: str, query: str) -> ExportedFile:
        head = f"-- {self.checkpoint.plan.pipeline}: state of {uid} at {self.checkpoint.plan.name}\n"
        if dialect == "duckdb":
            macros = f"{DUCKDB_MACROS};\n" if "raise_error(" in query else ""
            source = f"SELECT * FROM read_parquet('stored/{uid}/*.parquet')"
            whole = (
                f"{head}-- to be run in the folder that holds stored/\n{macros}WITH segments AS ({source})\n{query}\n"
            )
        else:
            whole = f"{head}-- segments: a view of the Parquet files in stored/{uid}\n{query}\n"
        return self.folder.text(f"queries/{uid}.{dialect}.sql", whole)


def compacted_batches(
    warehouse: Root, schema: OperatorSchema, handle: StateHandle, now: Now, *, is_sorted: bool = True
) -> Iterator[pa.RecordBatch]:
    """Yields a state as a compaction of everything leaves it; a range of key groups is merged after the other.

    Args:
        warehouse: root of all tables.
        schema: the operator's stored schema.
        handle: its state.
        now: the checkpoint's clocks.
        is_sorted: whether the rows come in the order of their files.

    Raises:
        UsageError: only Spark can merge the rows.
        StoreError: a version or a file of the handle is missing.
    """
    rows = stored_rows(warehouse, schema, handle)
    if rows is None:
        return
    count = max(1, min(math.ceil(handle.rows / RANGE_ROWS), schema.key_groups))
    with open_connection(rows.files) as connection:
        for within in key_group_ranges(schema.key_groups, count):
            relation = replace(rows, key_groups=within).register(connection, "rows")
            deepest = compacted_sql(schema, relation, now, deepest=True)
            order = stored_order(schema) if is_sorted else []
            held = connection.sql(order_columns(deepest, run_columns(schema), order))
            yield from held.to_arrow_reader(_BATCH)


def order_columns(query: str, columns: Sequence[tuple[str, str]], order: Sequence[str]) -> str:
    """Returns the columns of a query's rows, sorted if there is anything to sort by."""
    names, by = ", ".join(quote(name) for name, _ in columns), ", ".join(quote(name) for name in order)
    return f'SELECT {names} FROM ({query}) AS "_made"{f" ORDER BY {by}" if by else ""}'


def stored_order(schema: OperatorSchema) -> list[str]:
    """Returns the columns by which stored rows are sorted within a file."""
    entries = ["_field", *(f"{f.name}__key" for f in schema.maps)] if schema.maps else []
    return ["_key_group", *(k.name for k in schema.keys), *entries]
