"""Reads state without a JVM: deltalake opens each segment at its version, DuckDB resolves over Arrow."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from tidemark.adapters.arrow_types import arrow_schema
from tidemark.adapters.delta_reading import files_in, open_table, refused
from tidemark.errors import StateOverflowError
from tidemark.model.expressions import DUCKDB_MACROS, overflow_in
from tidemark.model.key_groups import key_group
from tidemark.model.resolving import empty_columns, resolving_sql
from tidemark.model.schema import OperatorSchema
from tidemark.model.segments import StateHandle


def read_state(
    warehouse: str, schema: OperatorSchema, handle: StateHandle, key: Sequence[object] | None = None
) -> pa.Table:
    """One row per live key: key columns, state fields, `_changed`, in no particular order.

    Args:
        warehouse: root of all tables.
        schema: the operator's stored schema, as the manifest carries it.
        handle: its state, as the manifest names it.
        key: only this key, one value per key column; files and row groups that cannot hold it are skipped.

    Raises:
        StoreError: a version or a file of the handle is gone.
        StateOverflowError: a key's merged state does not fit; the message names the key.
    """
    shape = arrow_schema(empty_columns(schema))
    paths = _paths(warehouse, handle)
    if not paths:
        return shape.empty_table()
    rows = ds.dataset(paths, format="parquet", filesystem=fs.LocalFileSystem())
    found: Any = rows if key is None else rows.to_table(filter=_of_key(schema, key))
    connection = duckdb.connect()
    try:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(DUCKDB_MACROS)
        connection.register("rows", found)
        return connection.sql(resolving_sql(schema, "rows")).to_arrow_table().cast(shape)
    except duckdb.Error as error:
        what = overflow_in(str(error))
        if what is None:
            raise refused(Path(warehouse), f"state of {schema.uid} is not readable ({error})") from error
        raise StateOverflowError(
            f"state overflow: {what}",
            safe="every completed checkpoint is intact.",
            next="widen the field's type or its limit and replay, or look at the key in an older checkpoint.",
        ) from error
    finally:
        connection.close()


def _paths(warehouse: str, handle: StateHandle) -> list[str]:
    paths = []
    for segment in handle:
        table = Path(warehouse, segment.path)
        for f in files_in(open_table(table, segment.version), segment.after, segment.through):
            if not (table / f.path).is_file():
                raise refused(table, f"file {f.path} of version {segment.version} is gone")
            paths.append(str(table / f.path))
    return paths


def _of_key(schema: OperatorSchema, key: Sequence[object]) -> Any:
    found = pc.field("_key_group") == key_group(key, schema.key_groups)
    for column, value in zip(schema.keys, key, strict=True):
        found = found & (pc.field(column.name) == pc.scalar(value))
    return found
