"""A state as Spark's Python workers resolve it, range by range of key groups."""

from pathlib import Path
from unittest import mock

from pyspark.sql import DataFrame, SparkSession

from tidemark.engine.state import resolve_ranges as ranges
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.ttl import Now
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.readers.state_reader import range_reader


def by_workers(spark: SparkSession, root: Path, schema: OperatorSchema, handle: StateHandle, now: Now) -> DataFrame:
    """One row per live key, in as many tasks as there are shuffle partitions, however few rows."""
    with mock.patch.object(ranges, "FEWEST", 1):
        return ranges.resolved_by_ranges(spark, schema, handle.rows, range_reader(str(root), schema, handle, now))
