"""The warehouse of a test as its Spark session sees it."""

from pathlib import Path

from pyspark.sql import SparkSession

from tidemark.adapters.delta_log import DeltaTables
from tidemark.adapters.memory import ManualClock
from tidemark.engine.warehouse import Warehouse


def warehouse_of(spark: SparkSession, root: Path) -> Warehouse:
    """Files are named by the Delta logs below a folder."""
    tables = DeltaTables(warehouse=str(root), clock=ManualClock())
    return Warehouse(session=spark, root=str(root), files_of=tables.files_of)
