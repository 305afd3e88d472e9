"""The warehouse of a test, for its Spark session."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.engine.state.resolve_sql import compact_rows
from tidemark.engine.state.resolve_sql import merge_levels as merge_with_spark
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.engine.write.parquet_writer import written_run
from tidemark.model.checkpoint.manifest import WrittenRun
from tidemark.model.state.compaction import LevelMerge
from tidemark.readers.candidate_state import CandidateState
from tidemark.readers.state_reader import key_reader
from tidemark.storage.parquet_folder import write_table
from tidemark.tables.delta_tables import DeltaTables
from tidemark.testing.twin.memory import ManualClock
from tidemark.transfer.export_folder import stored_order
from tidemark.transfer.level_files import merge_levels


def warehouse_of(spark: SparkSession, root: Path, *, by_workers: bool = True) -> SparkWarehouse:
    """The warehouse in a folder, which finds its files through the Delta logs.

    Stored rows of a process are looked up by workers, or by joins of Spark's.
    """
    tables = DeltaTables(warehouse=str(root), clock=ManualClock())
    reader = partial(key_reader, str(root)) if by_workers else None
    write = partial(write_table, str(root))
    return SparkWarehouse(
        session=spark,
        root=str(root),
        files_of=tables.files_of,
        worker_reader=reader,
        write=write,
        candidate=CandidateState(warehouse=str(root)),
    )


def merge_both_ways(spark: SparkSession, root: Path) -> Callable[[LevelMerge], WrittenRun]:
    """The product's merge of levels, whose rows are compared with those that Spark's SQL would write."""

    def merge(wanted: LevelMerge) -> WrittenRun:
        warehouse = warehouse_of(spark, root)
        if not wanted.schema.is_portable:
            return merge_with_spark(warehouse, wanted)
        run = merge_levels(str(root), wanted, written_run)
        with translate_spark_errors():
            rows = warehouse.rows_of(wanted.schema, wanted.groups)
            expected = compact_rows(spark, rows, wanted.schema, wanted.now, deepest=wanted.deepest).toArrow()
        by = [(name, "ascending") for name in stored_order(wanted.schema)]
        assert run.rows == expected.num_rows
        if run.rows:
            found = pq.read_table(root / wanted.folder).select(expected.column_names)
            assert found.sort_by(by).to_pylist() == expected.cast(found.schema).sort_by(by).to_pylist()
        return run

    return merge
