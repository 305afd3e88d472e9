"""Reads state without a JVM: deltalake opens each segment at its version, DuckDB resolves over Arrow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from tidemark.adapters.arrow_types import arrow_schema
from tidemark.adapters.delta_reading import files_in, open_table, refused
from tidemark.adapters.duckdb_session import opened, told
from tidemark.model.dialects import DUCKDB
from tidemark.model.key_groups import key_group
from tidemark.model.layouts import mapped_sql
from tidemark.model.resolving import empty_columns, resolving_sql
from tidemark.model.schema import OperatorSchema
from tidemark.model.segments import Segment, StateHandle
from tidemark.model.ttl import Now
from tidemark.ports import LiveFile


def read_state(
    warehouse: str, schema: OperatorSchema, handle: StateHandle, now: Now, key: Sequence[object] | None = None
) -> pa.Table:
    """One row per live key: key columns, state fields, `_changed`, in no particular order.

    Args:
        warehouse: root of all tables.
        schema: the operator's stored schema, as the manifest carries it.
        handle: its state, as the manifest names it.
        now: the checkpoint's clocks.
        key: only this key, one value per key column; files and row groups that cannot hold it are skipped.

    Raises:
        StoreError: a version or a file of the handle is gone.
        StateOverflowError: a key's merged state does not fit; the message names the key.
    """
    rows = stored_rows(warehouse, schema, handle)
    if rows is None:
        return arrow_schema(empty_columns(schema)).empty_table()
    return resolve(schema, now, rows if key is None else rows.filtered(_of_key(schema, key)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """Rows that are not read yet, as DuckDB gets them.

    Attributes:
        parts: Arrow tables or datasets, each with the query over its name that makes rows of one schema of it; None
            where it has them already.
    """

    parts: tuple[tuple[Any, Callable[[str], str] | None], ...]

    def filtered(self, condition: Any) -> "Relation":
        """The rows of datasets that meet a condition on columns which all of them have, read."""
        return Relation(parts=tuple((rows.to_table(filter=condition), sql) for rows, sql in self.parts))

    def registered(self, connection: duckdb.DuckDBPyConnection, name: str) -> str:
        """Makes the rows known to a connection; returns the relation that a query reads."""
        selected = []
        for n, (rows, sql) in enumerate(self.parts):
            own = name if len(self.parts) == 1 else f"{name} {n}"
            connection.register(own, rows)
            written = '"' + own.replace('"', '""') + '"'
            selected.append(f"FROM {written}" if sql is None else sql(written))
        return f'({" UNION ALL ".join(selected)}) AS "_stored"'


def stored_rows(warehouse: str, schema: OperatorSchema, handle: StateHandle) -> Relation | None:
    """The rows of a handle's files in the columns of a schema, nothing read yet; None where it has no files.

    Raises:
        StoreError: a version or a file of the handle is gone.
    """
    paths: dict[str, list[str]] = {}
    for segment, f in files_of(warehouse, handle):
        table = segment.path if schema.layout(segment.path) is not None else ""
        paths.setdefault(table, []).append(str(Path(warehouse, segment.path, f.path)))
    disk = fs.LocalFileSystem()
    parts = ((ds.dataset(found, format="parquet", filesystem=disk), table) for table, found in paths.items())
    return Relation(parts=tuple((rows, _mapping(schema, table)) for rows, table in parts)) if paths else None


def _mapping(schema: OperatorSchema, table: str) -> Callable[[str], str]:
    return lambda relation: mapped_sql(schema, table, relation, DUCKDB)


def resolve(schema: OperatorSchema, now: Now, rows: Any) -> pa.Table:
    """One row per live key of stored rows: a `Relation` or an Arrow table that holds all rows of each of its keys.

    Raises:
        StoreError: the rows cannot be read.
        StateOverflowError: a key's merged state does not fit; the message names the key.
    """
    with opened() as connection, told(f"state of {schema.uid} is not readable"):
        relation = rows if isinstance(rows, Relation) else Relation(parts=((rows, None),))
        named = relation.registered(connection, "rows")
        resolved = connection.sql(resolving_sql(schema, named, now)).to_arrow_table()
        return resolved.cast(arrow_schema(empty_columns(schema)))


def files_of(warehouse: str, handle: StateHandle) -> list[tuple[Segment, LiveFile]]:
    """The files of a handle with the segments that name them, oldest segment first.

    Raises:
        StoreError: a version or a file of the handle is gone.
    """
    found = []
    for segment in handle:
        table = Path(warehouse, segment.path)
        for f in files_in(open_table(table, segment.version), segment.after, segment.through):
            if not (table / f.path).is_file():
                raise refused(table, f"file {f.path} of version {segment.version} is gone")
            found.append((segment, f))
    return found


def _of_key(schema: OperatorSchema, key: Sequence[object]) -> Any:
    found = pc.field("_key_group") == key_group(key, schema.key_groups)
    for column, value in zip(schema.keys, key, strict=True):
        found = found & (pc.field(column.name) == pc.scalar(value))
    return found
