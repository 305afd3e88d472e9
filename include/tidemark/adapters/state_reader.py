"""Reads state without a JVM: deltalake opens each segment at its version, DuckDB resolves over Arrow."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from tidemark.adapters.arrow_types import arrow_schema
from tidemark.adapters.delta_reading import files_in, open_table, refused
from tidemark.adapters.duckdb_session import opened, told
from tidemark.model.key_groups import key_group
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
    rows = stored_rows(warehouse, handle)
    if rows is None:
        return arrow_schema(empty_columns(schema)).empty_table()
    return resolve(schema, now, rows if key is None else rows.to_table(filter=_of_key(schema, key)))


def stored_rows(warehouse: str, handle: StateHandle) -> ds.Dataset | None:
    """The rows of a handle's files as they are stored, nothing read yet; None where it has no files.

    Raises:
        StoreError: a version or a file of the handle is gone.
    """
    paths = [str(Path(warehouse, segment.path, f.path)) for segment, f in files_of(warehouse, handle)]
    return ds.dataset(paths, format="parquet", filesystem=fs.LocalFileSystem()) if paths else None


def resolve(schema: OperatorSchema, now: Now, rows: Any) -> pa.Table:
    """One row per live key of stored rows: an Arrow table or dataset that holds all rows of each of its keys.

    Raises:
        StoreError: the rows cannot be read.
        StateOverflowError: a key's merged state does not fit; the message names the key.
    """
    with opened() as connection, told(f"state of {schema.uid} is not readable"):
        connection.register("rows", rows)
        resolved = connection.sql(resolving_sql(schema, "rows", now)).to_arrow_table()
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
