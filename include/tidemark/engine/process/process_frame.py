"""The output of an operator with a function for a batch: rows of its run, emitted records, failures."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.declare.flat_map import FlatMap
from tidemark.declare.operators import Process
from tidemark.engine.process.process_worker import (
    FAILED,
    FIRED,
    LETTER,
    LISTS,
    RUN,
    left_of,
    rebuild_error,
    record_column,
    tag_of,
)
from tidemark.engine.read.frames import letter_columns
from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.model.checkpoint.manifest import UidCounts, WrittenRun
from tidemark.model.checkpoint.segments import OperatorState, Part
from tidemark.model.checkpoint.sinks import ROW_ID
from tidemark.model.core.types import FieldType


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFrame:
    """The output of a function for a batch, kept until it is released.

    Attributes:
        operator: the operator of the function.
        rows: all rows; see `process_worker`.
        counts: number of rows of each kind.
        operator_state: the combined lists of its tasks; None if it declares none.
        fired: how many timers have fired.
        passed: the run, if it is written; then nothing is kept.
    """

    operator: Process | FlatMap
    rows: DataFrame
    counts: Mapping[int, int]
    operator_state: OperatorState | None = None
    fired: int = 0
    passed: WrittenRun | None = None

    def counted(self, counts: UidCounts, failed_again: int) -> UidCounts:
        """Returns the counts of the operator after its function; `failed_again`: of redriven records."""
        return counts.after(
            failed=self.failed,
            emitted=self.emitted,
            operator_state=self.operator_state,
            failed_again=failed_again,
            fired=self.fired,
        )

    @property
    def emitted(self) -> dict[str, int]:
        """The number of emitted records per output, by its uid."""
        return {output.uid: self.counts.get(tag_of(n), 0) for n, output in enumerate(self.operator.outputs)}

    @property
    def failed(self) -> int:
        """The number of records that the function failed on."""
        return self.counts.get(LETTER, 0)

    @property
    def written(self) -> int:
        """The number of rows of the run."""
        return self.counts.get(RUN, 0)

    @property
    def run(self) -> DataFrame | None:
        """The rows of the run; None if it is written."""
        return run_of(self.rows) if self.passed is None else None

    def records(self, output: str) -> DataFrame:
        """The records of an output in the form of decoded records, for operators that read them."""
        n = self._number(output)
        here = ("topic", "`partition`", "`offset`", "_path", "event_time AS timestamp", "event_time")
        record = f"{record_column(n)} AS record"
        nothing = ("CAST(NULL AS STRING) AS _reason", "CAST(NULL AS BINARY) AS key", "CAST(NULL AS BINARY) AS value")
        return self.rows.where(f"_tag = {tag_of(n)}").selectExpr(*here, record, *nothing)

    def sunk(self, output: str) -> DataFrame:
        """The records of an output in the columns of a sink."""
        n = self._number(output)
        places = (f"'{output}'", "topic", "`partition`", "`offset`", "_path")
        own = [f"{sql} AS {name}" for sql, (name, _) in zip(places, ROW_ID, strict=True)]
        return self.rows.where(f"_tag = {tag_of(n)}").selectExpr(f"{record_column(n)}.*", *own)

    def _number(self, output: str) -> int:
        return [made.uid for made in self.operator.outputs].index(output)

    def letters(self, records: DataFrame, emitted: FieldType | None, at: str = "record") -> DataFrame:
        """Returns dead letters for the records that the function failed on, in `letter_columns`."""
        place = ["topic", "partition", "offset", "_path"]
        why = self.rows.where(f"_tag = {LETTER}").select(*place, "why")
        return records.join(why, place).selectExpr(*letter_columns(self.operator.uid, "why", emitted, at))

    def count_failed(self, redriven: DataFrame) -> int:
        """Counts the redriven records, which have `_path`, that the function failed on."""
        place = ["topic", "partition", "offset", "_path"]
        failed = self.rows.where(f"_tag = {LETTER}").select(*place)
        return failed.join(redriven.select(*place), place, "left_semi").count()

    def release(self) -> None:
        """Releases the cached rows."""
        if self.passed is None:
            with translate_spark_errors():
                self.rows.unpersist()


def keep_output(operator: Process | FlatMap, rows: DataFrame) -> tuple[ProcessFrame, dict[int, dict[str, Part]]]:
    """Computes and counts the output of a function.

    Args:
        operator: the operator of the function.
        rows: what its workers return; persisted.

    Returns:
        The output, and the parts of lists that tasks have left, by task.

    Raises:
        ProcessFunctionError, StateOverflowError, EngineError: see `run_process`; the rows are released.
    """
    with translate_spark_errors():
        place = F.struct("topic", "partition", "offset", "_path", "why")
        lists = F.collect_list(F.when(F.col("_tag").isin(LISTS, FIRED), F.col("why")))
        seen = (F.count(F.lit(1)).alias("rows"), F.min(place).alias("first"), lists.alias("lists"))
        found = rows.groupBy("_tag").agg(*seen).collect()
    told = {r["_tag"]: r["lists"] for r in found}
    fired = sum(map(int, told.get(FIRED, ())))
    made = ProcessFrame(operator=operator, rows=rows, counts={r["_tag"]: r["rows"] for r in found}, fired=fired)
    failure = next((r["first"]["why"] for r in found if r["_tag"] == FAILED), None)
    if failure is not None:
        made.release()
        raise rebuild_error(failure)
    return made, dict(map(left_of, told.get(LISTS, ())))


def run_of(rows: DataFrame) -> DataFrame:
    """Returns the rows of the run among what workers return."""
    run = rows.where(f"_tag = {RUN}").selectExpr("run.*")
    return run.withColumn("_key_group", F.col("_key_group").cast("int"))
