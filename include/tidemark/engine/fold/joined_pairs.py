"""Interval joins in Spark: records of both inputs become rows of one operator, and rows become pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame

from tidemark.declare.interval_join import IntervalJoin, SelectedField
from tidemark.engine.fold.closings import ClosedWindows, ended_sql
from tidemark.engine.read.frames import fold
from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.engine.state.resolve_sql import compact_rows, finish_rows
from tidemark.engine.state.state_files import SparkWarehouse, rows_of_keys
from tidemark.model.checkpoint.emitted import windows_of
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.key_texts import short_hash_sql
from tidemark.model.core.ttl import Now
from tidemark.model.portable_sql.dialects import SPARK
from tidemark.model.schema.event_windows import END, START
from tidemark.model.schema.interval_joins import (
    LEFT,
    MATCHED,
    POSITION,
    RECORDS,
    RIGHT,
    SIDE,
    SIDES,
)
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class JoiningBatch:
    """One interval join in one batch.

    Attributes:
        warehouse: the warehouse, with the session of the attempt.
        plan: the plan that is executed.
        join: the declaration.
        now: the clocks after the batch.
        applied: how many records it applies.
    """

    warehouse: SparkWarehouse
    plan: CheckpointPlan
    join: IntervalJoin
    now: Now
    applied: int

    @property
    def schema(self) -> OperatorSchema:
        """The stored schema."""
        return self.plan.schemas[self.join.uid]


def join_batch(task: JoiningBatch, records: DataFrame | None) -> ClosedWindows:
    """Pairs the records of a batch with each other and with stored ones, and finds the left rows that stay alone.

    Args:
        task: the join.
        records: the records of both inputs; None if it applies none.

    Raises:
        EngineError, StoreError: Spark failed, or a version of the state is missing.
    """
    schema, plan, join = task.schema, task.plan, task.join
    session, kept, emitted = task.warehouse.session, list[DataFrame](), list[DataFrame]()
    before, after = plan.frontier_before(join.uid), task.now.frontiers.get(join.uid)
    with translate_spark_errors():
        handle = plan.handles[join.uid]
        stored = task.warehouse.stored_rows(schema, handle, before) if handle else None
        run, paired = task.warehouse.rows_of(schema, ()), 0
        if records is not None:
            # Cut off from the plans of both inputs: Connect cannot return a plan of over a hundred levels. The frame is
            # kept, because Connect drops the rows with it, although other frames read them.
            run = fold(records, schema, plan, task.now).localCheckpoint()
            pairs = _pairs(task, run, stored).persist()
            kept += [run, pairs]
            paired = pairs.count()
            if paired:
                emitted.append(pairs.selectExpr(*_pair_columns(join)))
            if paired and join.window.keeps_unmatched:
                marks = pairs.selectExpr(*_mark_columns(schema, plan)).distinct()
                run = compact_rows(session, run.unionByName(marks), schema, Now(), deepest=False)
        if after is not None:
            if after != before and join.window.keeps_unmatched:
                due = _due(run, stored, before, after)
                alone = finish_rows(session, due, schema, Now()).where(f"`{SIDE}` = '{LEFT}' AND `{MATCHED}` IS NULL")
                emitted.append(alone.selectExpr(*_alone_columns(join)))
            run = run.where(f"`{END}` > {SPARK.instant(after)}")
        closed = reduce(DataFrame.unionByName, emitted).persist() if emitted else None
        rows = 0 if closed is None else closed.count()
        return ClosedWindows(
            uid=join.uid,
            row=join.outputs[0].emitted,
            run=run,
            written=task.applied + paired if task.applied else 0,
            closed=closed,
            late=None,
            emitted={join.uid: rows},
            kept=(*kept, closed) if closed is not None else tuple(kept),
        )


def _due(run: DataFrame, stored: DataFrame | None, before: int | None, after: int) -> DataFrame:
    """The rows whose time is over with this batch; left ones of the batch outlive the frontier before it."""
    parts = [run] if stored is None else [run, stored]
    return reduce(DataFrame.unionByName, [rows.where(ended_sql(before, after)) for rows in parts])


def _pairs(task: JoiningBatch, run: DataFrame, stored: DataFrame | None) -> DataFrame:
    """The pairs with at least one row of the batch: all columns of the left one, and what a pair needs of the right."""
    new = {side: _side(run, side) for side in SIDES}
    if stored is None:
        return _matching(task, new[LEFT], new[RIGHT])
    found = rows_of_keys(stored, run, task.applied, task.schema.own_keys)
    # Marks have no record; every row has one operand with it.
    old = {side: _side(found, side) for side in SIDES}
    fresh = _matching(task, new[LEFT], new[RIGHT].unionByName(old[RIGHT]))
    return fresh.unionByName(_matching(task, old[LEFT], new[RIGHT]))


def _side(rows: DataFrame, side: str) -> DataFrame:
    return rows.where(f"`{SIDE}` = '{side}' AND `{RECORDS[side]}` IS NOT NULL")


def _matching(task: JoiningBatch, left: DataFrame, right: DataFrame) -> DataFrame:
    names = [key.name for key in task.schema.own_keys]
    of_left = [*(key.name for key in task.schema.keys), RECORDS[LEFT], "_key_group"]
    columns = [f"l.`{name}`" for name in of_left]
    columns += [f"r.`{RECORDS[RIGHT]}`", f"r.`{POSITION}` AS _position", f"r.`{START}` AS _start"]
    same = " AND ".join(f"l.`{name}` = r.`{name}`" for name in names)
    window = task.join.window
    distance = f"unix_micros(r.`{START}`) - unix_micros(l.`{START}`)"
    near = f"{distance} BETWEEN {window.lower_ms * 1000}L AND {window.upper_ms * 1000}L"
    text = f"SELECT {', '.join(columns)} FROM {{left}} AS l JOIN {{right}} AS r ON {same} AND {near}"  # noqa: S608
    found: DataFrame = task.warehouse.session.sql(text, left=left, right=right)
    return found


def _mark_columns(schema: OperatorSchema, plan: CheckpointPlan) -> list[str]:
    """The operand that marks a left row, over a pair."""
    made = {
        MATCHED: "true",
        "_last_at": f"unix_millis(`{START}`)",
        "_kind": "'operand'",
        "_changed": f"CAST({plan.id} AS BIGINT)",
        "_key_group": "`_key_group`",
        **{key.name: f"`{key.name}`" for key in schema.keys},
    }
    return [f"{made.get(name, f'CAST(NULL AS {sql})')} AS `{name}`" for name, sql in run_columns(schema)]


def _pair_columns(join: IntervalJoin) -> list[str]:
    hashes = f"array({_hash(POSITION)}, {_hash('_position')})"
    return [*(_field(found) for found in join.selected), *_place(join, f"greatest(`{START}`, _start)", hashes)]


def _alone_columns(join: IntervalJoin) -> list[str]:
    at = f"timestamp_micros(unix_micros(`{START}`) + {join.window.keeps_ms(LEFT) * 1000}L)"
    return [*(_field(found) for found in join.selected), *_place(join, at, f"array({_hash(POSITION)})")]


def _hash(position: str) -> str:
    return short_hash_sql(f"CAST(`{position}` AS BINARY)")


def _field(found: SelectedField) -> str:
    steps = ".".join(f"`{step}`" for step in (RECORDS[found.side], *found.path.split(".")))
    return f"{steps} AS `{found.name}`"


def _place(join: IntervalJoin, at: str, hashes: str) -> Sequence[str]:
    place = windows_of(join.uid)
    return (
        f"'{place.topic}' AS topic",
        f"{place.partition} AS `partition`",
        f"unix_millis({at}) AS `offset`",
        f"{hashes} AS _path",
        f"{at} AS event_time",
    )
