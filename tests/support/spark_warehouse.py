"""The warehouse of a test as its Spark session sees it."""

from pathlib import Path

from pyspark.sql import SparkSession

from tidemark.engine.state.state_files import Warehouse
from tidemark.tables.delta_tables import DeltaTables
from tidemark.testing.twin.memory import ManualClock


def warehouse_of(spark: SparkSession, root: Path) -> Warehouse:
    """Files are named by the Delta logs below a folder."""
    tables = DeltaTables(warehouse=str(root), clock=ManualClock())
    return Warehouse(session=spark, root=str(root), files_of=tables.files_of)
