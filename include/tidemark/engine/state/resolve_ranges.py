"""Resolves a state in Spark's Python workers, a range of key groups in each: Spark only takes the rows (ADR 0019).

Nothing is shuffled or broadcast, because all rows of a key have its key group. How a range is read is not known here.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidemark.engine.process.subtasks import parallelism
from tidemark.model.schema.key_groups import KeyGroupRange, key_group_ranges
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.sql.fold_columns import quoted, spark
from tidemark.sql.resolve import empty_columns

RangeReader = Callable[[KeyGroupRange], Iterator[pa.RecordBatch]]
"""Yields the resolved rows of a range of key groups; it travels pickled."""
FEWEST, MOST = 500_000, 8_000_000
"""Stored rows of one task: with fewer its start costs more than its work, with more its memory is not bounded."""


def resolved_by_ranges(session: SparkSession, schema: OperatorSchema, rows: int, reader: RangeReader) -> DataFrame:
    """One row per live key, as `resolving.resolved` gives them; every column may be null, says the schema.

    Args:
        session: classic or Connect; its Python workers must have this release of Tidemark, and what the reader needs.
        schema: the operator's stored schema.
        rows: how many rows are stored.
        reader: resolves one range.
    """
    ranges = key_group_ranges(schema.key_groups, _tasks(session, schema, rows))
    columns = ", ".join(f"{quoted(name)} {sql}" for name, sql in empty_columns(schema))
    numbers = session.range(0, len(ranges), 1, len(ranges))
    return numbers.mapInArrow(partial(_read, reader, ranges), spark(columns))


def _read(
    reader: RangeReader, ranges: Sequence[KeyGroupRange], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from reader(ranges[number])


def _tasks(session: SparkSession, schema: OperatorSchema, rows: int) -> int:
    """One per core, if each has enough to do; as many times more as a large state needs; at most one per key group."""
    wide = max(1, min(parallelism(session, schema), math.ceil(rows / FEWEST)))
    return min(wide * math.ceil(max(rows, 1) / (wide * MOST)), schema.key_groups)
