"""Compares what a batch adds to limited fields with what its keys hold already (A3); see `model.limits`.

Only key columns and the limited fields are read, only of keys to which the batch adds, and only by operators that have
such fields. It resolves with the text that readers use, so that both find the same keys too large.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.engine.session.spark_errors import translated
from tidemark.engine.state.resolve_sql import finished
from tidemark.engine.state.state_files import Warehouse
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.ttl import Now
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.sql.fold_columns import spark
from tidemark.sql.limits import adds_sql, limited


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCheck:
    """A run that is written and not yet committed.

    Attributes:
        warehouse: where state lies.
        plan: what is executed.
        uid: the fold.
        files: of the run, relative to the warehouse.
        rows: of the run.
        now: the clocks after the batch: what has expired by then does not count.
    """

    warehouse: Warehouse
    plan: CheckpointPlan
    uid: str
    files: Sequence[str]
    rows: int
    now: Now


def refuse_overflow(check: LimitCheck) -> None:
    """Raises where a key of the run would be too large for readers, together with what it holds.

    Raises:
        StateOverflowError: naming the field and the key.
        EngineError, StoreError: as the look-up raises them.
    """
    schema = limited(check.plan.schemas[check.uid])
    if schema is None or not check.files or not check.plan.handles[check.uid]:
        return
    with translated():
        found = finished(check.warehouse.session, _rows(check, schema), schema, check.now)
        # Something of every field has to be asked for, or Spark leaves the field out.
        found.agg(F.max(F.xxhash64(*(f.name for f in schema.fields)))).collect()


def _rows(check: LimitCheck, schema: OperatorSchema) -> DataFrame:
    added = check.warehouse.files(schema, check.files).where(spark(adds_sql(schema)))
    return added.unionAll(check.warehouse.stored_of(schema, check.plan.handles[check.uid], added, check.rows))
