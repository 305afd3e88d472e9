"""Checks of a candidate before it is published: counted dead letters, limits of fields, and the gate on Spark.

Importing Great Expectations takes seconds, so it is imported when a gate runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.declare.pipeline import Gate
from tidemark.engine.read.batch_stats import inexact_read
from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.engine.state.resolve_sql import finish_rows
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.model.checkpoint.manifest import Verdict
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.sql import adds_sql, limited_schema, spark
from tidemark.model.schema.operator_schema import OperatorSchema, with_state
from tidemark.processing.expectations import judge, quiet_context, run_suite


def refuse_miscounted(uid: str, *, counted: int, written: int) -> None:
    """Compares the dead letters of an operator with their count, because they may have been read a second time.

    Raises:
        EngineError: the numbers differ.
    """
    if counted != written:
        raise inexact_read(f"{uid}: {counted} dead letters were counted, {written} were written")


# Compares what a batch adds to limited fields with what the keys already hold; see `model.kinds.base.sql`. It reads
# only key columns and limited fields, only for keys that the batch adds to, and only for operators with limited fields.
# It resolves with the query that readers use, so both find the same keys too large.
@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCheck:
    """A run that is written but not yet committed.

    Attributes:
        warehouse: the warehouse with the state.
        plan: the plan that is executed.
        uid: uid of the fold.
        files: files of the run, relative to the warehouse.
        rows: number of rows of the run.
        now: the clocks after the batch: state that has expired by then does not count.
    """

    warehouse: SparkWarehouse
    plan: CheckpointPlan
    uid: str
    files: Sequence[str]
    rows: int
    now: Now


def refuse_overflow(check: LimitCheck) -> None:
    """Raises if a key of the run, merged with its stored state, would be too large for readers.

    Raises:
        StateOverflowError: a key is too large; the message names the field and the key.
        EngineError, StoreError: see the look-up.
    """
    schema, warehouse = limited_schema(check.plan.schemas[check.uid]), check.warehouse
    handle = check.plan.handles[check.uid]
    if schema is None or not check.files or not handle:
        return
    if warehouse.candidate is not None and schema.is_portable and check.rows <= FEW_KEYS:
        warehouse.candidate.refuse_overflow(schema, warehouse.groups(handle), check.files, check.now)
        return
    with translate_spark_errors():
        found = finish_rows(check.warehouse.session, _rows(check, schema), schema, check.now)
        # Every field must be used in the query, or Spark omits it.
        found.agg(F.max(F.xxhash64(*(f.name for f in schema.fields)))).collect()


def _rows(check: LimitCheck, schema: OperatorSchema) -> DataFrame:
    added = check.warehouse.files(schema, check.files).where(spark(adds_sql(schema)))
    return added.unionAll(check.warehouse.stored_of(schema, check.plan.handles[check.uid], added, check.rows))


FEW_KEYS = 65_536
"""Keys that this process looks up: before it has planned a query, Spark takes longer."""
_PLACE = ("topic", "partition", "offset", "timestamp", "event_time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The candidate that a gate judges.

    Attributes:
        warehouse: the warehouse, with the session that owns the frames.
        plan: the plan.
        sources: names of the pipeline's sources.
        records: the decoded frame, cached, per source that has records.
        runs: the files of the run per uid, relative to the warehouse.
        applied: the number of records behind each run, per uid: at least its number of rows.
        now: the clocks of the candidate.
    """

    warehouse: SparkWarehouse
    plan: CheckpointPlan
    sources: Sequence[str]
    records: Mapping[str, DataFrame]
    runs: Mapping[str, Sequence[str]]
    applied: Mapping[str, int]
    now: Now

    @property
    def uids(self) -> Sequence[str]:
        """See `GatedFrames`."""
        return tuple(with_state(self.plan.schemas))

    def frame(self, kind: str, uid: str) -> DataFrame | None:
        """See `GatedFrames`."""
        if kind == "records":
            return self._good_records(uid or self.sources[0])
        return self._rows_of(uid, with_state_below=kind == "state") if self.runs.get(uid) else None

    def _good_records(self, source: str) -> DataFrame | None:
        records = self.records.get(source)
        if records is None:
            return None
        here = [f"`{name}` AS `_{name}`" for name in _PLACE]
        good = records.where("_reason IS NULL")
        return good.selectExpr("record.*", *here)

    def _rows_of(self, uid: str, *, with_state_below: bool) -> DataFrame:
        schema = self.plan.schemas[uid]
        rows = self.warehouse.files(schema, self.runs[uid])
        if with_state_below and self.plan.handles[uid]:
            rows = rows.unionAll(self.warehouse.stored_of(schema, self.plan.handles[uid], rows, self.applied[uid]))
        now = self.now if with_state_below else Now()
        return finish_rows(self.warehouse.session, rows, schema, now)


def judge_in_spark(gate: Gate, candidate: Candidate) -> Verdict:
    """Runs a gate on a candidate; see `processing.expectations.judge`.

    Raises:
        EngineError: Spark failed.
    """
    with translate_spark_errors():
        return judge(gate, candidate, _Validator())


class _Validator:
    """Validates the frames of one candidate, in one context of Great Expectations, which takes time to make."""

    def __init__(self) -> None:
        self._source: Any = None
        self._frames = 0

    def __call__(self, frame: DataFrame, expectations: Sequence[Any]) -> Sequence[Any]:
        import great_expectations as gx

        if self._source is None:
            # Without persist=False, GX would cache the frame and never release it; the records are already cached.
            self._source = quiet_context(gx).data_sources.add_spark("candidate", persist=False)
        self._frames += 1
        return run_suite(gx, self._source.add_dataframe_asset(f"frame {self._frames}"), frame, expectations)
