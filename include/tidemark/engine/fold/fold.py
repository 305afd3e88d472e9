"""Folds records by an operator's key and writes the run."""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from tidemark.engine.fold.overflow import overflowing_key
from tidemark.engine.read.frames import folded
from tidemark.engine.read.observed_metrics import Observed
from tidemark.engine.session.spark_errors import NumericOverflow, overflow, translated
from tidemark.engine.write.parquet_writer import RunFolder, files_for, write_rows
from tidemark.engine.write.written_files import bounded_columns
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.table_writes import WrittenRun
from tidemark.model.core.ttl import Now
from tidemark.sql.limits import overflows_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldTask:
    """One fold of one batch.

    Attributes:
        plan: what is executed.
        uid: the fold.
        now: the clocks after the batch; nothing of them is used where no field has a limit.
        at_most: records.
        folder: where the run goes.
        emitted: whether a process emitted the records.
    """

    plan: CheckpointPlan
    uid: str
    now: Now
    at_most: int
    folder: RunFolder
    emitted: bool = False


def write_fold(records: DataFrame, task: FoldTask, observed: Observed | None = None) -> WrittenRun:
    """Writes the run of a fold, sorted by key group and key.

    Args:
        records: of its input.
        task: what is folded, and where to.
        observed: what the records are observed by already.

    Raises:
        StateOverflowError: a key's partial does not fit its type, or its limit; the message names both.
        EngineError, StoreError: Spark failed, or its files are not what it has reported.
    """
    schema = task.plan.schemas[task.uid]
    order = ["_key_group", *(key.name for key in schema.keys)]
    with overflows_of(task.uid):
        try:
            with translated():
                run = folded(records, schema, task.plan, task.now, emitted=task.emitted)
                files, bounded = files_for(task.at_most), bounded_columns(schema)
                return write_rows(run, order, task.folder, files, bounded, observed)
        except NumericOverflow as error:
            with translated():
                key = overflowing_key(records, schema)
            raise overflow(key or error.what) from error
