"""Broadcast states of one attempt: resolved for process functions and for joins of folds, copied from foreign tables.

They are small: each is sent whole to the driver or to every task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.declare.pipeline import Pipeline
from tidemark.declare.sources import Broadcast
from tidemark.engine.process.arrow_values import stored_reader
from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.engine.state.resolve_sql import finish_rows, resolve_state
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.model.checkpoint.broadcast_copies import TableVersion, copied_rows
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.ttl import Now
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.sql import quote, record_path, spark
from tidemark.model.schema.lookup_joins import Join
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.ports import ForeignTables
from tidemark.processing.broadcasts import broadcast_records, too_large


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastStates:
    """The broadcast states of one attempt as of its barrier; used once their runs are written.

    Attributes:
        warehouse: the warehouse, with the session of the attempt.
        pipeline: the declaration.
        plan: the plan, whose input handles are the state that the parent left.
        now: the clocks of the candidate.
        runs: the files of this attempt's run per uid, relative to the warehouse; omitted if nothing changed.
    """

    warehouse: SparkWarehouse
    pipeline: Pipeline
    plan: CheckpointPlan
    now: Now
    runs: Mapping[str, Sequence[str]]
    _kept: dict[str, DataFrame] = field(default_factory=dict, init=False)
    _values: dict[str, dict[Any, Any]] = field(default_factory=dict, init=False)

    def values(self) -> dict[str, dict[Any, Any]]:
        """The records of each state by key, as process functions see them; sent to the driver once.

        Raises:
            StateOverflowError: a state has more than `max_keys` keys.
            EngineError: Spark failed.
        """
        for broadcast in self.pipeline.broadcast:
            if broadcast.uid not in self._values:
                rows = _rows(self._table(broadcast), broadcast.source.schema)
                self._values[broadcast.uid] = broadcast_records(broadcast, rows)
        return self._values

    def frame(self, uid: str) -> DataFrame | None:
        """Returns one row per key of a state in the columns of its record, cached; None if it is empty.

        Raises:
            StateOverflowError: it has more than `max_keys` keys.
        """
        broadcast = self._declared(uid)
        if uid not in self._kept:
            state = self._state(broadcast)
            if state is None:
                return None
            self._kept[uid] = state.persist()
            if self._kept[uid].count() > broadcast.max_keys:
                raise too_large(broadcast)
        return self._kept[uid]

    def row_type(self, uid: str) -> FieldType:
        """Returns the struct of its rows."""
        return self._declared(uid).source.schema

    def release(self) -> None:
        """Releases cached frames."""
        for frame in self._kept.values():
            frame.unpersist()
        self._kept.clear()

    def _table(self, broadcast: Broadcast) -> pa.Table | None:
        """Returns the rows of a state, from this process where it can read them."""
        schema, handle = self.plan.schemas[broadcast.uid], self.plan.handles[broadcast.uid]
        candidate, files = self.warehouse.candidate, self.runs.get(broadcast.uid, ())
        if candidate is not None and schema.is_portable and broadcast.uid not in self._kept:
            groups = self.warehouse.groups(handle)
            at_most = broadcast.max_keys + 1
            return candidate.rows(schema, groups, files, self.now, at_most) if groups or files else None
        with translate_spark_errors():
            state = self._kept[broadcast.uid] if broadcast.uid in self._kept else self._state(broadcast)
            return None if state is None else state.toArrow()

    def _declared(self, uid: str) -> Broadcast:
        return next(b for b in self.pipeline.broadcast if b.uid == uid)

    def _state(self, broadcast: Broadcast) -> DataFrame | None:
        """Returns the rows of a state, at most one more than allowed; None if none are stored."""
        schema, handle, runs = self.plan.schemas[broadcast.uid], self.plan.handles[broadcast.uid], self.runs
        parts = [self.warehouse.stored_rows(schema, handle)] if handle else []
        if runs.get(broadcast.uid):
            parts.append(self.warehouse.files(schema, runs[broadcast.uid]))
        if not parts:
            return None
        whole = finish_rows(self.warehouse.session, reduce(DataFrame.unionAll, parts), schema, self.now)
        names = [name for name, _ in broadcast.source.schema.fields]
        return whole.select(*map(spark, map(quote, names))).limit(broadcast.max_keys + 1)


def join_states(records: DataFrame, joins: Sequence[Join], states: BroadcastStates) -> DataFrame:
    """Returns decoded records with the row of each joined state as a field, null if no row has the key.

    Every row of a state has a different key, so no record is duplicated.

    Raises:
        StateOverflowError: a state has more than `max_keys` keys.
    """
    with translate_spark_errors():
        for join in joins:
            records = _with_row(records, join, states)
    return records


def _with_row(records: DataFrame, join: Join, states: BroadcastStates) -> DataFrame:
    state, row, record = states.frame(join.uid), states.row_type(join.uid), F.col("record")
    if state is None:
        return records.withColumn("record", record.withField(join.uid, F.expr(f"CAST(NULL AS {row.sql})")))
    marks = {f"_on{n}": key.name for n, key in enumerate(states.plan.schemas[join.uid].keys)}
    fields = ", ".join(f"`{name}`" for name, _ in row.fields)
    rows = state.selectExpr(*(f"`{name}` AS {mark}" for mark, name in marks.items()), f"struct({fields}) AS _row")
    same = " AND ".join(f"{spark(record_path(on))} = {mark}" for on, mark in zip(join.on, marks, strict=True))
    found = records.join(F.broadcast(rows), F.expr(same), "left")
    return found.withColumn("record", record.withField(join.uid, F.col("_row"))).drop("_row", *marks)


def _rows(found: pa.Table | None, record: FieldType) -> list[dict[str, Any]]:
    if found is None:
        return []
    names = [name for name, _ in record.fields]
    columns = [stored_reader(of.with_null(True))(found[name].combine_chunks()) for name, of in record.fields]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def copy_tables(
    warehouse: SparkWarehouse, pipeline: Pipeline, plan: CheckpointPlan, tables: ForeignTables
) -> dict[str, list[dict[str, Any]]]:
    """Returns, per uid of `plan.copies`, the run that replaces its state by the planned version.

    Raises:
        DataLostError: the planned version does not exist any more.
        StoreError, EngineError: the table, or the current state, could not be read.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for uid in plan.copies:
        at = TableVersion(id=plan.broadcast_ids[uid], version=plan.broadcast_versions[uid])
        rows = tables.rows(pipeline.tables[uid], at)
        with translate_spark_errors():
            found[uid] = copied_rows(plan, uid, rows, _keys(warehouse, plan, uid))
    return found


def copied_frame(session: SparkSession, schema: OperatorSchema, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Returns the rows of a copy as a frame with the columns of a run."""
    columns = run_columns(schema)
    ddl = ", ".join(f"{quote(name)} {sql}" for name, sql in columns)
    return session.createDataFrame([tuple(row[name] for name, _ in columns) for row in rows], spark(ddl))


def _keys(warehouse: SparkWarehouse, plan: CheckpointPlan, uid: str) -> list[tuple[Any, ...]]:
    if not plan.handles[uid]:
        return []
    schema = plan.schemas[uid]
    state = resolve_state(warehouse, schema, plan.handles[uid], Now())
    names = [k.name for k in schema.keys]
    rows = state.select(*names).toArrow().to_pylist()
    return [tuple(row[name] for name in names) for row in rows]
