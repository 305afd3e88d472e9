"""Folds records by the key of an operator and writes the run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.engine.read.frames import applied_sql, fold, key_sql
from tidemark.engine.session.spark_errors import NumericOverflow, overflow, translate_spark_errors
from tidemark.engine.write.parquet_writer import Observed, RunFolder, RunSize, write_rows
from tidemark.model.checkpoint.manifest import WrittenRun
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.sql import overflows_of, record_path, spark
from tidemark.model.schema.operator_schema import OperatorSchema, StoredField


# Finds the key whose sum overflowed, after Spark has failed without naming it.
def overflowing_key(records: DataFrame, schema: OperatorSchema) -> str | None:
    """Returns text that names a key whose partial result does not fit, or None if no integer sum is the cause.

    Sums of doubles cannot overflow 38 decimal digits, so they are left out. So are decimals: their sums already have 38
    digits, and Spark names the field in the error.
    """
    fields = [f for f in schema.fields if f.fold_kind.may_leave_64_bits(f)]
    if not fields:
        return None
    keys = [F.expr(sql).alias(k.name) for sql, k in zip(key_sql(schema), schema.keys, strict=True)]
    sums = [F.expr(f"sum(CAST({spark(record_path(f.source))} AS DECIMAL(38,0)))").alias(f.name) for f in fields]
    totals = records.where(applied_sql(schema)).groupBy(*keys).agg(*sums)
    found = totals.where(" OR ".join(_outside(f) for f in fields)).limit(1).collect()
    if not found:
        return None
    key = ", ".join(str(found[0][k.name]) for k in schema.keys)
    field = next(f.name for f in fields if not -(2**63) <= (found[0][f.name] or 0) < 2**63)
    return f"{field} of key ({key}) does not fit 64 bits"


def _outside(field: StoredField) -> str:
    return f"`{field.name}` NOT BETWEEN {-(2**63)} AND {2**63 - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldTask:
    """One fold of one batch.

    plan: the plan that is executed. uid: uid of the fold. now: the clocks after the batch; not used unless a field has
    a limit. at_most: upper bound of the number of records. folder: folder of the run. emitted: whether a process
    emitted the records. batch: see `RunSize.of`.
    """

    plan: CheckpointPlan
    uid: str
    now: Now
    at_most: int
    folder: RunFolder
    emitted: bool = False
    batch: int | None = None


def write_fold(records: DataFrame, task: FoldTask, observed: Observed | None = None) -> WrittenRun:
    """Writes the run of a fold, sorted by key group and key.

    Args:
        records: records of its input.
        task: the fold, and the target folder.
        observed: an observation that the records already carry.

    Raises:
        StateOverflowError: a partial result of a key exceeds its type or limit; the message names the key and the
            field.
        EngineError, StoreError: Spark failed, or the files differ from Spark's report.
    """
    schema = task.plan.schemas[task.uid]
    order = ["_key_group", *(key.name for key in schema.keys)]
    with named_overflows(records, schema), translate_spark_errors():
        run = fold(records, schema, task.plan, task.now, emitted=task.emitted)
        size, bounded = RunSize.of(task.at_most, task.plan.handles[task.uid], task.batch), schema.bounded_columns
        return write_rows(run, order, task.folder, size, bounded, observed)


@contextmanager
def named_overflows(records: DataFrame, schema: OperatorSchema) -> Iterator[None]:
    """Runs a block that folds records, and names the operator, and the key if possible, if a result does not fit.

    Raises:
        StateOverflowError: a partial result of a key exceeds its type or limit.
    """
    with overflows_of(schema.uid):
        try:
            yield
        except NumericOverflow as error:
            with translate_spark_errors():
                key = overflowing_key(records, schema)
            raise overflow(key or error.what) from error
