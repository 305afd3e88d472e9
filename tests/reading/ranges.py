"""A state as it is read range by range of key groups, by DuckDB."""

import pickle
from collections.abc import Iterator

import pyarrow as pa

from tidemark.adapters.arrow_types import arrow_schema
from tidemark.adapters.located import Root
from tidemark.adapters.state_reader import range_reader
from tidemark.model.key_groups import key_group_ranges
from tidemark.model.resolving import empty_columns
from tidemark.model.schema import OperatorSchema
from tidemark.model.segments import StateHandle
from tidemark.model.ttl import Now


def read_by_ranges(root: Root, schema: OperatorSchema, handle: StateHandle, now: Now, count: int = 2) -> pa.Table:
    """What readers that went through a pickle give together, in the order of their ranges."""
    reader = pickle.loads(pickle.dumps(range_reader(root, schema, handle, now)))  # noqa: S301  (ours)

    def batches() -> Iterator[pa.RecordBatch]:
        for key_groups in key_group_ranges(schema.key_groups, count):
            yield from reader(key_groups)

    return pa.Table.from_batches(batches(), schema=arrow_schema(empty_columns(schema)))
