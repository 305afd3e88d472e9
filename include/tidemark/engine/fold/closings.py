"""Closes the windows of a fold in Spark: rows of the batch and stored rows up to the frontier become emitted rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.declare.windows import IS_FINAL, late_output
from tidemark.engine.fold.fold import named_overflows
from tidemark.engine.fold.passed_run import PassedRun
from tidemark.engine.read.frames import fold, key_names, with_keys
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
from tidemark.model.schema.event_windows import END, START, StoredWindow
from tidemark.model.schema.key_groups import key_hash_sql
from tidemark.model.schema.operator_schema import OperatorSchema

_LATE_PATH = "concat(_path, array(0L))"
"""The path of a late record among the rows of an operator, as that of the only row of a function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedWindows:
    """The output of a fold with windows for a batch, kept until it is released; see `ProcessFrame`.

    Attributes:
        uid: the operator.
        row: the struct of its emitted rows.
        run: the rows of the batch whose windows stay open; None if a run that is written already has only these.
        written: upper bound of their number.
        closed: the rows of windows, finished, with their position: of closed ones, and of open ones for the sink only.
        late: the late records, with `_path`, if they are rows of an output.
        emitted: how many rows each output has, by its uid.
        kept: the cached frames.
        replaced: the run that `run` replaces; its files are read until the release.
    """

    uid: str
    row: FieldType
    run: DataFrame | None
    written: int
    closed: DataFrame | None
    late: DataFrame | None
    emitted: Mapping[str, int]
    kept: tuple[DataFrame, ...]
    replaced: PassedRun | None = None

    def records(self, output: str) -> DataFrame:
        """The rows in the form of decoded records, for operators that read them."""
        nothing = ("CAST(NULL AS STRING) AS _reason", "CAST(NULL AS BINARY) AS key", "CAST(NULL AS BINARY) AS value")
        path = "_path" if output == self.uid else f"{_LATE_PATH} AS _path"
        here = ("topic", "`partition`", "`offset`", path, "event_time AS timestamp", "event_time")
        if output != self.uid:
            return self._late.selectExpr(*here, "record", *nothing)
        fields = ", ".join(f"'{name}', `{name}`" for name, _ in self.row.fields)
        closed = self._closed.where(IS_FINAL) if IS_FINAL in dict(self.row.fields) else self._closed
        return closed.selectExpr(*here, f"named_struct({fields}) AS record", *nothing)

    def sunk(self, output: str) -> DataFrame:
        """The rows in the columns of a sink."""
        path = "_path" if output == self.uid else _LATE_PATH
        places = (f"'{output}'", "topic", "CAST(`partition` AS INT)", "`offset`", path)
        own = [f"{sql} AS {name}" for sql, (name, _) in zip(places, ROW_ID, strict=True)]
        if output != self.uid:
            return self._late.selectExpr("record.*", *own)
        return self._closed.selectExpr(*(f"`{name}`" for name, _ in self.row.fields), *own)

    def release(self) -> None:
        """Releases the cached rows, and deletes a run that was replaced."""
        with translate_spark_errors():
            for frame in self.kept:
                frame.unpersist()
        if self.replaced is not None:
            self.replaced.discard()

    @property
    def _closed(self) -> DataFrame:
        assert self.closed is not None  # noqa: S101  (for the type checker: callers ask for emitted rows only)
        return self.closed

    @property
    def _late(self) -> DataFrame:
        assert self.late is not None  # noqa: S101  (for the type checker: callers ask for emitted rows only)
        return self.late


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
        applied: how many records it applies.
        updates: whether rows of open windows are emitted, too.
        late: the late records, with `_path`, and their number, if they are rows of an output.
        passed: the run that was written while the batch was read; None if none was.
    """

    warehouse: SparkWarehouse
    plan: CheckpointPlan
    uid: str
    row: FieldType
    now: Now
    is_fed: bool
    applied: int
    updates: bool = False
    late: tuple[DataFrame, int] | None = None
    passed: PassedRun | None = None

    @property
    def schema(self) -> OperatorSchema:
        """The stored schema."""
        return self.plan.schemas[self.uid]


def close_windows(task: ClosingTask, records: DataFrame | None) -> ClosedWindows:
    """Folds the batch, and finishes the windows that the frontier has reached, and for updates those of the batch.

    A frontier that has passed the end of no window closes nothing: then the run is that of a plain fold, and no query
    runs here.

    Args:
        task: the fold.
        records: the records of its input, for updates with `_path`; None if it applies none.

    Raises:
        StateOverflowError: a partial result does not fit.
        EngineError, StoreError: Spark failed, or a version of the state is missing.
    """
    if records is None:
        return _closed(task, None)
    with named_overflows(records, task.schema):
        return _closed(task, records)


def _closed(task: ClosingTask, records: DataFrame | None) -> ClosedWindows:
    schema, plan = task.schema, task.plan
    before, after = plan.frontier_before(task.uid), task.now.frontiers.get(task.uid)
    with translate_spark_errors():
        is_updated = task.updates and records is not None
        moves = after is not None and after != before and _window(schema).may_close(before, after)
        run = _rows_of_batch(task, records)
        if not moves and not is_updated:
            return _output(task, run if task.passed is None else None, None, ())
        kept = list[DataFrame]()
        if records is not None and task.passed is None:
            run = run.persist()
            kept.append(run)
        stays = task.passed is not None and after is not None and task.passed.outlives(after)
        rows = _candidates(task, None if records is None or _is_apart(schema, stays) else run, before, after)
        if rows is None:
            return _output(task, None if stays else run, None, ())
        finished = finish_rows(task.warehouse.session, rows, schema, Now())
        closed = _emitted(task, finished, records, before, after).persist()
        still_open = run if after is None else _open_rows(schema, run, closed, after)
        return _output(task, None if stays else still_open, closed, (*kept, closed))


def _rows_of_batch(task: ClosingTask, records: DataFrame | None) -> DataFrame:
    """The rows of the batch."""
    if task.passed is not None:
        return task.passed.rows()
    if records is None:
        return task.warehouse.rows_of(task.schema, ())
    return fold(records, task.schema, task.plan, task.now, emitted=task.is_fed)


def _is_apart(schema: OperatorSchema, outlives: bool) -> bool:
    """Whether no row of the batch is part of a window that closes: they outlive the frontier, as their windows do."""
    return outlives and _window(schema).has_row_per_window


def _emitted(
    task: ClosingTask, finished: DataFrame, records: DataFrame | None, before: int | None, after: int | None
) -> DataFrame:
    """The rows of windows that become rows of the output, with their position."""
    schema, is_final = task.schema, ended_sql(before, after)
    if not task.updates or records is None:
        added = [f"true AS {IS_FINAL}"] if task.updates else []
        return finished.where(is_final).selectExpr("*", *added, *_position(schema))
    still = f"`_changed` = {task.plan.id}"
    still = still if before is None else f"{still} AND {_after(before)}"
    found = finished.where(f"({is_final}) OR ({still})").selectExpr("*", f"({is_final}) AS {IS_FINAL}")
    placed = found.join(_last_records(records, schema), [k.name for k in schema.keys], "left")
    return placed.selectExpr(*found.columns, *_update_position(schema))


def _candidates(task: ClosingTask, run: DataFrame | None, before: int | None, after: int | None) -> DataFrame | None:
    """Returns the rows, of the batch and stored, that may be part of emitted windows; None if there are none."""
    schema, window = task.schema, _window(task.schema)
    handle = task.plan.handles[task.uid]
    stored = task.warehouse.stored_rows(schema, handle, before) if handle else None
    if stored is not None and not window.is_merged:
        due = stored.where(spark(_began(before, after, window)))
        stored = due if not task.updates or run is None else _with_touched(task, due, stored, run, after)
    parts = [rows for rows in (run, stored) if rows is not None]
    if not parts:
        return None
    rows = reduce(DataFrame.unionByName, parts)
    if not window.is_merged:
        return rows
    # A session that closes has a row that ends with it; its other rows may end anywhere before.
    names = ["_key_group", *(k.name for k in schema.own_keys)]
    ending = rows.where(ended_sql(before, after)).select(*names)
    return rows.join(ending, names, "left_semi").select(*rows.columns)


def _with_touched(task: ClosingTask, due: DataFrame, stored: DataFrame, run: DataFrame, after: int | None) -> DataFrame:
    """Adds the stored rows of the windows that the batch adds to."""
    schema = task.schema
    names = ["_key_group", *(k.name for k in schema.found_by)]
    rest = stored if after is None else stored.where(spark(f"NOT ({_began(None, after, _window(schema))})"))
    return due.unionByName(rest.join(run.select(*names).distinct(), names, "left_semi").select(*due.columns))


def _began(before: int | None, after: int | None, window: StoredWindow) -> str:
    """Returns the condition that a stored row may be part of a window that closes."""
    if after is None:
        return "false"
    began = f'"{START if not window.has_row_per_window else END}" <= {SPARK.instant(after)}'
    return began if before is None else f"{began} AND {window.outlives_sql(str(before), SPARK)}"


def ended_sql(before: int | None, after: int | None) -> str:
    """Returns the condition that a row ends after one frontier and not after the next."""
    if after is None:
        return "false"
    since = "" if before is None else f" AND {_after(before)}"
    return f"`{END}` <= {SPARK.instant(after)}{since}"


def _after(frontier: int) -> str:
    return f"`{END}` > {SPARK.instant(frontier)}"


def _open_rows(schema: OperatorSchema, run: DataFrame, closed: DataFrame, after: int) -> DataFrame:
    """Returns the rows of the batch that are part of a window that is still open."""
    window = _window(schema)
    outlives = spark(window.outlives_sql(str(after), SPARK))
    if not window.is_merged:
        return run.where(outlives)
    within = f"r.`{START}` >= c.`{START}` AND r.`{END}` <= c.`{END}`"
    same = " AND ".join([*(f"r.`{k.name}` = c.`{k.name}`" for k in schema.own_keys), within])
    return run.alias("r").join(closed.alias("c"), F.expr(same), "left_anti").select(*run.columns)


def _window(schema: OperatorSchema) -> StoredWindow:
    assert schema.window is not None  # noqa: S101  (for the type checker: only folds with windows close any)
    return schema.window


def _output(
    task: ClosingTask, run: DataFrame | None, closed: DataFrame | None, kept: tuple[DataFrame, ...]
) -> ClosedWindows:
    late, count = task.late or (None, 0)
    return ClosedWindows(
        uid=task.uid,
        row=task.row,
        run=run,
        written=task.applied,
        closed=closed,
        late=late,
        emitted={
            task.uid: 0 if closed is None else closed.count(),
            **({late_output(task.uid): count} if task.schema.keeps_late else {}),
        },
        kept=kept,
        replaced=None if run is None else task.passed,
    )


def _last_records(records: DataFrame, schema: OperatorSchema) -> DataFrame:
    """Returns the greatest position of a record of the batch per key and window, in the column `_last`."""
    names = [k.name for k in schema.keys]
    own = (f"{k} AS `{name}`" for k, name in zip(key_names(schema), names, strict=True))
    place = "struct(topic, `partition`, `offset`, _path) AS _place"
    placed = with_keys(records, schema).selectExpr(*own, place)
    keys = [f'"{k.name}"' for k in schema.own_keys]
    windows = spark(_window(schema).windows_sql("{rows}", keys, [*names, "_place"], SPARK))
    spread = records.sparkSession.sql(f"SELECT * FROM {windows}", rows=placed)  # noqa: S608  (names of columns)
    return spread.groupBy(*names).agg(F.expr("max(_place) AS _last"))


def _update_position(schema: OperatorSchema) -> list[str]:
    """The position of a row, final or not: that of an update is the last record that it has from the batch."""
    closed = [part.rpartition(" AS ") for part in _position(schema)]
    updated = {
        "topic": "_last.topic",
        "`partition`": "_last.`partition`",
        "`offset`": "_last.`offset`",
        "_path": f"concat(_last._path, array({spark(key_hash_sql(schema))}, unix_millis(`{END}`)))",
    }
    return [
        f"CASE WHEN {IS_FINAL} THEN {sql} ELSE {updated[name]} END AS {name}" if name in updated else f"{sql} AS {name}"
        for sql, _, name in closed
    ]


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
