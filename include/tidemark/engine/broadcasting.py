"""Broadcast states of one attempt: resolved for process functions, and copied from foreign tables.

They are small: they come to the driver whole.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidemark.engine.arrow_values import stored_reader
from tidemark.engine.failures import translated
from tidemark.engine.resolving import finished, resolved
from tidemark.engine.warehouse import Warehouse
from tidemark.model.copies import TableVersion, copied_rows
from tidemark.model.expressions import quoted, spark
from tidemark.model.plan import CheckpointPlan
from tidemark.model.resolving import run_columns
from tidemark.model.schema import OperatorSchema
from tidemark.model.ttl import Now
from tidemark.model.types import FieldType
from tidemark.pipeline import Pipeline
from tidemark.ports import ForeignTables
from tidemark.processing.broadcasts import broadcast_records


def broadcast_values(
    warehouse: Warehouse,
    pipeline: Pipeline,
    plan: CheckpointPlan,
    runs: Mapping[str, Sequence[str]],
    now: Now,
) -> dict[str, dict[Any, Any]]:
    """Per uid of a broadcast state its records by key, as of the plan's barrier (A11).

    Args:
        warehouse: where state lies, and the attempt's session.
        pipeline: the declaration.
        plan: the plan, whose input handles are what the parent left.
        runs: per uid the files of this attempt's run, relative to the warehouse; left out where nothing changed.
        now: the candidate's clocks.

    Raises:
        StateOverflowError: a state has more than `max_keys` keys.
        EngineError: Spark failed.
    """
    found: dict[str, dict[Any, Any]] = {}
    for broadcast in pipeline.broadcast:
        schema = plan.schemas[broadcast.uid]
        parts = []
        if plan.handles[broadcast.uid]:
            parts.append(warehouse.stored(schema, plan.handles[broadcast.uid]))
        if runs.get(broadcast.uid):
            parts.append(warehouse.files(schema, runs[broadcast.uid]))
        rows: list[dict[str, Any]] = []
        if parts:
            with translated():
                whole = finished(warehouse.session, reduce(DataFrame.unionAll, parts), schema, now)
                rows = _rows(whole.limit(broadcast.max_keys + 1).toArrow(), broadcast.source.schema)
        found[broadcast.uid] = broadcast_records(broadcast, rows)
    return found


def _rows(found: pa.Table, record: FieldType) -> list[dict[str, Any]]:
    names = [name for name, _ in record.fields]
    columns = [stored_reader(of.with_null(True))(found[name].combine_chunks()) for name, of in record.fields]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def copied(
    warehouse: Warehouse, pipeline: Pipeline, plan: CheckpointPlan, tables: ForeignTables
) -> dict[str, list[dict[str, Any]]]:
    """Per uid of `plan.copies` the run that replaces its state by the planned version.

    Raises:
        DataLostError: the planned version is gone.
        StoreError, EngineError: the table, or the state so far, could not be read.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for uid in plan.copies:
        at = TableVersion(id=plan.broadcast_ids[uid], version=plan.broadcast_versions[uid])
        rows = tables.rows(pipeline.tables[uid], at)
        with translated():
            found[uid] = copied_rows(plan, uid, rows, _keys(warehouse, plan, uid))
    return found


def copied_frame(session: SparkSession, schema: OperatorSchema, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """The rows of a copy as a frame with the columns of a run."""
    columns = run_columns(schema)
    ddl = ", ".join(f"{quoted(name)} {sql}" for name, sql in columns)
    return session.createDataFrame([tuple(row[name] for name, _ in columns) for row in rows], spark(ddl))


def _keys(warehouse: Warehouse, plan: CheckpointPlan, uid: str) -> list[tuple[Any, ...]]:
    if not plan.handles[uid]:
        return []
    schema = plan.schemas[uid]
    state = resolved(warehouse, schema, plan.handles[uid], Now())
    names = [k.name for k in schema.keys]
    rows = state.select(*names).toArrow().to_pylist()
    return [tuple(row[name] for name in names) for row in rows]
