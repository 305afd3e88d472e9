"""The warehouse of a test, for its Spark session."""

from pathlib import Path

from pyspark.sql import SparkSession

from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.tables.delta_tables import DeltaTables
from tidemark.testing.twin.memory import ManualClock


def warehouse_of(spark: SparkSession, root: Path) -> SparkWarehouse:
    """The warehouse in a folder, which finds its files through the Delta logs."""
    tables = DeltaTables(warehouse=str(root), clock=ManualClock())
    return SparkWarehouse(session=spark, root=str(root), files_of=tables.files_of)
