"""Closes the windows of a fold in Spark: rows of the batch and stored rows up to the frontier become emitted rows."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from tidemark.engine.read.frames import fold
from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.engine.state.resolve_sql import finish_rows
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.model.checkpoint.emitted import windows_of
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.sinks import ROW_ID
from tidemark.model.core.ttl import Now
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.sql import spark
from tidemark.model.portable_sql.dialects import SPARK
from tidemark.model.schema.event_windows import END
from tidemark.model.schema.key_groups import key_hash_sql
from tidemark.model.schema.operator_schema import OperatorSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedWindows:
    """The output of a fold with windows for a batch, kept until it is released; see `ProcessFrame`.

    Attributes:
        uid: the operator.
        row: the struct of its emitted rows.
        run: the rows of the batch whose windows stay open.
        written: how many there are.
        closed: the rows of closed windows, finished, with their position.
        emitted: how many there are, by the uid of the output.
        kept: the cached frames.
    """

    uid: str
    row: FieldType
    run: DataFrame
    written: int
    closed: DataFrame | None
    emitted: Mapping[str, int]
    kept: tuple[DataFrame, ...]

    def records(self, _: str) -> DataFrame:
        """The rows in the form of decoded records, for operators that read them."""
        here = ("topic", "`partition`", "`offset`", "_path", "event_time AS timestamp", "event_time")
        fields = ", ".join(f"'{name}', `{name}`" for name, _ in self.row.fields)
        nothing = ("CAST(NULL AS STRING) AS _reason", "CAST(NULL AS BINARY) AS key", "CAST(NULL AS BINARY) AS value")
        return self._closed.selectExpr(*here, f"named_struct({fields}) AS record", *nothing)

    def sunk(self, output: str) -> DataFrame:
        """The rows in the columns of a sink."""
        places = (f"'{output}'", "topic", "`partition`", "`offset`", "_path")
        own = [f"{sql} AS {name}" for sql, (name, _) in zip(places, ROW_ID, strict=True)]
        return self._closed.selectExpr(*(f"`{name}`" for name, _ in self.row.fields), *own)

    def release(self) -> None:
        """Releases the cached rows."""
        with translate_spark_errors():
            for frame in self.kept:
                frame.unpersist()

    @property
    def _closed(self) -> DataFrame:
        assert self.closed is not None  # noqa: S101  (for the type checker: callers ask for emitted rows only)
        return self.closed


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingTask:
    """One fold with windows in one batch.

    Attributes:
        warehouse: the warehouse, with the session of the attempt.
        plan: the plan that is executed.
        uid: the operator.
        row: the struct of its emitted rows.
        now: the clocks after the batch.
        is_fed: whether another operator emitted its records.
    """

    warehouse: SparkWarehouse
    plan: CheckpointPlan
    uid: str
    row: FieldType
    now: Now
    is_fed: bool

    @property
    def schema(self) -> OperatorSchema:
        """The stored schema."""
        return self.plan.schemas[self.uid]


def close_windows(task: ClosingTask, records: DataFrame | None) -> ClosedWindows:
    """Folds the batch, and finishes the windows that the frontier has reached.

    Args:
        task: the fold.
        records: the records of its input; None if it applies none.

    Raises:
        StateOverflowError: a partial result does not fit.
        EngineError, StoreError: Spark failed, or a version of the state is missing.
    """
    schema, plan, session = task.schema, task.plan, task.warehouse.session
    before, after = plan.frontier_before(task.uid), task.now.frontiers.get(task.uid)
    kept = list[DataFrame]()
    with translate_spark_errors():
        run = task.warehouse.rows_of(schema, ())
        if records is not None:
            run = fold(records, schema, plan, task.now, emitted=task.is_fed).persist()
            kept.append(run)
        closes = after is not None and after != before
        open_run = run.where(f"`{END}` > {SPARK.instant(after)}") if after is not None and closes else run
        due = list[DataFrame]()
        if records is not None and closes:
            due.append(run.where(f"`{END}` <= {SPARK.instant(after or 0)}"))
        if plan.handles[task.uid] and closes:
            since = f" AND `{END}` > {SPARK.instant(before)}" if before is not None else ""
            stored = task.warehouse.stored_rows(schema, plan.handles[task.uid])
            due.append(stored.where(f"`{END}` <= {SPARK.instant(after or 0)}{since}"))
        closed = None
        if due:
            rows = due[0] if len(due) == 1 else due[0].unionByName(due[1])
            closed = finish_rows(session, rows, schema, Now()).selectExpr("*", *_position(schema)).persist()
            kept.append(closed)
        counts = {task.uid: 0 if closed is None else closed.count()}
        return ClosedWindows(
            uid=task.uid,
            row=task.row,
            run=open_run,
            written=0 if records is None else open_run.count(),
            closed=closed,
            emitted=counts,
            kept=tuple(kept),
        )


def _position(schema: OperatorSchema) -> list[str]:
    """The position of a closed window's row, and its event time: the last one that the window holds."""
    place, end = windows_of(schema.uid), f"`{END}`"
    return [
        f"'{place.topic}' AS topic",
        f"{place.partition} AS `partition`",
        f"unix_millis({end}) AS `offset`",
        f"array({spark(key_hash_sql(schema))}) AS _path",
        f"{end} - INTERVAL 1 MILLISECOND AS event_time",
    ]
