"""Resolves a state in Spark's Python workers, a range of key groups in each; Spark only collects the rows (adr/0019).

Nothing is shuffled or broadcast, because all rows of a key have its key group. The caller supplies the reader of a
range.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidemark.engine.process.subtasks import parallelism
from tidemark.model.kinds.base.sql import quote, spark
from tidemark.model.schema.key_groups import KeyGroupRange, key_group_ranges
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.sql.resolve import empty_columns

RangeReader = Callable[[KeyGroupRange], Iterator[pa.RecordBatch]]
"""Yields the resolved rows of a range of key groups; pickled to travel to workers."""
FEWEST, MOST = 500_000, 8_000_000
"""Stored rows per task: with fewer, starting a task costs more than its work; with more, its memory is unbounded."""


def resolved_by_ranges(session: SparkSession, schema: OperatorSchema, rows: int, reader: RangeReader) -> DataFrame:
    """Returns one row per live key, like `resolve_sql.resolve_state`; the schema says that every column may be null.

    Args:
        session: classic or Connect; its Python workers need this release of Tidemark, and what the reader needs.
        schema: the operator's stored schema.
        rows: number of stored rows.
        reader: resolves one range.
    """
    ranges = key_group_ranges(schema.key_groups, _tasks(session, schema, rows))
    columns = ", ".join(f"{quote(name)} {sql}" for name, sql in empty_columns(schema))
    numbers = session.range(0, len(ranges), 1, len(ranges))
    return numbers.mapInArrow(partial(_read_ranges, reader, ranges), spark(columns))


def _read_ranges(
    reader: RangeReader, ranges: Sequence[KeyGroupRange], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from reader(ranges[number])


def _tasks(session: SparkSession, schema: OperatorSchema, rows: int) -> int:
    """Returns one task per core if each has enough work, more for a large state, at most one per key group."""
    wide = max(1, min(parallelism(session, schema), math.ceil(rows / FEWEST)))
    return min(wide * math.ceil(max(rows, 1) / (wide * MOST)), schema.key_groups)
