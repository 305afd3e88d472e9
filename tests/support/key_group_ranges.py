"""Reads a state with DuckDB, one range of key groups at a time."""

import pickle
from collections.abc import Iterator

import pyarrow as pa

from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.ttl import Now
from tidemark.model.schema.key_groups import key_group_ranges
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.readers.state_reader import range_reader
from tidemark.sql.resolve import empty_columns
from tidemark.storage.local_store import Root
from tidemark.tables.delta_tables import arrow_schema


def read_by_ranges(root: Root, schema: OperatorSchema, handle: StateHandle, now: Now, count: int = 2) -> pa.Table:
    """Reads all ranges in order with a reader that was pickled and unpickled, and joins the results."""
    reader = pickle.loads(pickle.dumps(range_reader(root, schema, handle, now)))  # noqa: S301  (our own pickle)

    def batches() -> Iterator[pa.RecordBatch]:
        for key_groups in key_group_ranges(schema.key_groups, count):
            yield from reader(key_groups)

    return pa.Table.from_batches(batches(), schema=arrow_schema(empty_columns(schema)))
