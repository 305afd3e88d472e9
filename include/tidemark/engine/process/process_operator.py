"""Operators with a function in Spark, through `mapInArrow`: for a Process one sorted stream per partition, no cogroup.

Stored rows are looked up once, for touched keys only: by the workers, or where these may lack access to the files, by a
join of Spark's (adr/0065). The output of the function is kept, so that the run, the sink,
the dead letters and the operators that read it are all written from one call.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.declare.co_process import CoProcess
from tidemark.declare.flat_map import FlatMap
from tidemark.declare.operators import Process
from tidemark.engine.process.arrow_values import object_reader
from tidemark.engine.process.due_timers import DueKeys
from tidemark.engine.process.process_frame import ProcessFrame, keep_output, run_of
from tidemark.engine.process.process_worker import (
    FIRED,
    FLUSH,
    GROUP,
    RECORD,
    RUN,
    STORED,
    ResultBatches,
    Work,
    positioned,
    record_column,
    run_type,
    stored_type,
    work_through,
)
from tidemark.engine.process.subtasks import (
    group_sql,
    held_keys,
    lookup_parts,
    parallelism,
    partition_by_task,
    shuffle_tasks,
)
from tidemark.engine.read.frames import NO_PATH, access_sql, with_keys
from tidemark.engine.read.several_inputs import input_number_sql
from tidemark.engine.session.python_workers import pickle_by_value
from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.engine.state.resolve_sql import compact_rows
from tidemark.engine.state.state_files import KeyReader, SparkWarehouse, WorkerReader
from tidemark.engine.write.parquet_writer import Observed, RunFolder, RunSize, discard_run, write_rows
from tidemark.errors import ProcessFunctionError
from tidemark.model.checkpoint.emitted import EmittedRecords
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import OperatorState
from tidemark.model.core.ttl import Now
from tidemark.model.core.types import FieldType
from tidemark.model.retention.erasure import BlockedKey
from tidemark.model.schema.key_groups import key_group_sql
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.processing.flat_mapper import FlatMapper
from tidemark.processing.live_operator_state import OperatorStateType
from tidemark.processing.process_records import Output
from tidemark.processing.processor import Processing
from tidemark.processing.shapes import Shape


@dataclass(frozen=True, kw_only=True)
class ProcessTask:
    """One operator in one attempt.

    Attributes:
        warehouse: the warehouse, with the session of the attempt.
        plan: the plan that is executed.
        operator: the declaration.
        record: shape of its records.
        records: decoded records of its inputs with the column `_path`, including those that it cannot apply; None if it
            applies none.
        applied: how many of them it applies.
        broadcast: records of broadcast states by uid and key.
        due: the keys whose timers may fire; None if it has no timers.
        folder: the folder of its run, if the run may be written before the batch is counted.
    """

    warehouse: SparkWarehouse
    plan: CheckpointPlan
    operator: Process
    record: Shape
    records: DataFrame | None
    applied: int
    broadcast: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    due: DueKeys | None = None
    folder: RunFolder | None = None

    @property
    def schema(self) -> OperatorSchema:
        """The stored schema."""
        return self.plan.schemas[self.operator.uid]

    @property
    def needs_one_query(self) -> bool:
        """Whether the query of the function can write the run: a small batch of an operator that has only its state."""
        has_more = self.operator.outputs or self.operator.operator_state or isinstance(self.operator, CoProcess)
        if has_more or self.folder is None or self.applied > _SMALL:
            return False
        handle = self.plan.handles[self.operator.uid]
        return not handle or self.warehouse.reader_of(handle, held_keys(self.operator, self.applied)) is not None

    @cached_property
    def lists(self) -> OperatorStateType | None:
        """The declared lists of operator state, if any."""
        if self.operator.operator_state is None:
            return None
        given = self.plan.operator_states.get(self.operator.uid, OperatorState())
        return OperatorStateType.of(self.operator, given, parallelism(self.warehouse.session, self.schema))


def run_process(task: ProcessTask) -> ProcessFrame:
    """Runs the function over the batch.

    Raises:
        ProcessFunctionError: the function raised; of several failures, the first by position.
        StateOverflowError: a key's state does not fit.
        EngineError: Spark failed.
    """
    if task.folder is not None and task.needs_one_query and (passed := write_process(task, task.folder, Observed())):
        return passed
    with translate_spark_errors():
        rows = _streamed(task)
        # Cut off from the plans of its inputs: Connect cannot return a plan of over a hundred levels.
        rows = rows.localCheckpoint() if isinstance(task.operator, CoProcess) else rows.persist()
    made, left = keep_output(task.operator, rows)
    return made if task.lists is None else replace(made, operator_state=task.lists.join_parts(left))


def write_process(task: ProcessTask, folder: RunFolder, observed: Observed) -> ProcessFrame | None:
    """Runs the function of an operator without outputs over a small batch, in the query that writes its run.

    Args:
        task: the operator; its records may carry observations.
        folder: the folder of the run.
        observed: the observations; they are completed here.

    Returns:
        The output, with the run. None if the function has failed on a record, or if that is not known for sure: then
        the files are deleted, and a query that keeps the output has to follow.

    Raises:
        EngineError, StoreError: Spark failed, or the files differ from Spark's report.
    """
    schema = task.schema
    with translate_spark_errors():
        tag = F.col("_tag")
        fired = F.sum(F.when(tag == FIRED, F.col("why").cast("bigint"))).alias("fired")
        others = F.count_if(~tag.isin(RUN, FIRED)).alias("others")
        returned = _streamed(task)
        rows = run_of(observed.on(returned, RETURNED, F.count_if(tag == RUN).alias("rows"), fired, others))
        size = RunSize(1, RunSize.of(task.applied, task.plan.handles[task.operator.uid]).is_collected)
        # Behind the tasks of the function: fewer of those would have several ranges of keys each.
        apart = rows if size.is_collected and folder.write is not None else rows.repartition(1)
        order = ["_key_group", *(k.name for k in schema.keys)]
        done = write_rows(apart, order, folder, size, schema.bounded_columns, observed)
    told = observed.of(RETURNED)
    if told and not told["others"] and told["rows"] == done.rows:
        counts, count = {RUN: done.rows}, told["fired"] or 0
        return ProcessFrame(operator=task.operator, rows=returned, counts=counts, fired=count, passed=done)
    discard_run(folder)
    return None


_SMALL = 65_536
"""Records of a batch whose run is written by one task."""
RETURNED = "returned"
"""Name of the observation of what workers return."""


def rows_to_send(plan: CheckpointPlan, uid: str, rows: DataFrame) -> DataFrame:
    """Returns the rows that a sink does not have yet; see `SinkTable.covered`."""
    records = EmittedRecords.of(plan, uid)
    for tp, ranges in records.read_before(plan.sinks[uid].coverage(plan.topic_ids)).items():
        of = (F.col("_topic") == tp.topic) & (F.col("_partition") == tp.partition)
        offset = F.col("_offset")
        rows = rows.where(~(of & reduce(Column.__or__, ((offset >= r.start) & (offset < r.end) for r in ranges))))
    if places := sorted(records.redriven_before):
        # Thousands of scattered records: a condition for each would be too deep for Spark.
        there = rows.sparkSession.createDataFrame(
            [(topic, partition, offset, list(path)) for topic, partition, offset, path in places],
            "at_topic STRING, at_partition INT, at_offset BIGINT, at_path ARRAY<BIGINT>",
        )
        same = "_topic = at_topic AND _partition = at_partition AND _offset = at_offset"
        begins = "slice(_path, 1, size(at_path)) = at_path"
        rows = rows.join(F.broadcast(there), F.expr(f"{same} AND {begins}"), "left_anti").select(*rows.columns)
    return rows


def _streamed(task: ProcessTask) -> DataFrame:
    schema, operator = task.schema, task.operator
    keys = [f"_k{n}" for n in range(len(schema.keys))]
    handle = task.plan.handles[operator.uid]
    make = task.warehouse.reader_of(handle, held_keys(operator, task.applied))
    if handle and make is None:
        rows, tasks, parts = *_with_stored_rows(task, keys), 1
    else:
        rows, tasks, parts = _records_alone(task, keys)
    columns = returned_columns(operator, run_type(schema))
    return rows.mapInArrow(partial(work_through, _work(task, _reader(task, make), tasks, parts)), columns)


def _reader(task: ProcessTask, make: WorkerReader | None) -> KeyReader | None:
    if make is None:
        return None
    groups = task.warehouse.groups(task.plan.handles[task.operator.uid])
    return make(task.schema, groups, "" if task.due is None else task.due.condition)


def _with_stored_rows(task: ProcessTask, keys: list[str]) -> tuple[DataFrame, int]:
    """Returns records and the stored rows of their keys in one stream per task, by key, and the number of tasks."""
    rows = _stored(task, keys)
    if task.records is not None:
        rows = _records(task, task.records, keys).unionByName(rows)
    tasks = 0 if task.lists is None else task.lists.tasks
    apart = partition_by_task(rows, task.schema, tasks) if tasks else rows.repartition(*keys)
    return apart.sortWithinPartitions(*_order(task, [*keys, "_tag"])), tasks


def _records_alone(task: ProcessTask, keys: list[str]) -> tuple[DataFrame, int, int]:
    """Returns the records of each task by key, the number of tasks, each with a range of key groups, and of its parts.

    If there are several parts, the records are ordered by key group first.
    """
    session = task.warehouse.session
    tasks = shuffle_tasks(session, task.schema) if task.lists is None else task.lists.tasks
    if task.records is None:
        return session.range(0, tasks, 1, tasks), tasks, 1
    records, order = _records(task, task.records, keys).drop("_tag", "stored"), _order(task, keys)
    parts = lookup_parts(task.operator, task.applied, tasks)
    if parts > 1:
        records, order = records.withColumn(GROUP, F.expr(group_sql(task.schema))), [GROUP, *order]
    return partition_by_task(records, task.schema, tasks).sortWithinPartitions(*order), tasks, parts


def _order(task: ProcessTask, keys: list[str]) -> list[str | Column]:
    operator, order = task.operator, list[str | Column](keys)
    order += ["event_time"] if operator.order == "event_time" else []
    order += [F.expr(input_number_sql(operator))] if isinstance(operator, CoProcess) else []
    return [*order, "topic", "partition", "offset", "_path"]


def _work(task: ProcessTask, reader: KeyReader | None, tasks: int, parts: int) -> bytes:
    plan, schema, operator = task.plan, task.schema, task.operator
    shape = task.record
    rules = None if task.due is None else task.due.rules
    processing = Processing.of(operator, schema, plan.id, task.broadcast, task.lists, shape)
    processing = replace(processing, rules=rules)
    authors = [
        operator.function,
        *([operator.on_timer] if operator.on_timer else []),
        operator.state,
        *(output.emits for output in operator.outputs),
    ]
    shapes = (shape, *processing.state.shapes.values())
    authors += [cls for found in shapes for cls in found.classes]
    authors += [operator.operator_state] if operator.operator_state else []
    authors += [type(next(iter(rows.values()))) for rows in task.broadcast.values() if rows]
    return pickle_by_value(Work(processing=processing, record=shape, reader=reader, tasks=tasks, parts=parts), authors)


def _records(task: ProcessTask, records: DataFrame, keys: list[str]) -> DataFrame:
    place = ("topic", "CAST(`partition` AS INT) AS `partition`", "`offset`", "_path", "event_time")
    at = f"{access_sql(task.schema, task.plan)} AS _at"
    nothing = f"CAST(NULL AS {stored_type(task.schema).sql}) AS stored"
    rows = with_keys(records, task.schema)
    return rows.selectExpr(*keys, f"{RECORD} AS _tag", *place, at, "record", nothing)


def _stored(task: ProcessTask, keys: list[str]) -> DataFrame:
    """Returns the newest stored rows of touched keys, in the form of the stream."""
    schema, plan = task.schema, task.plan
    touched, at_most = _touched(task, keys)
    rows = task.warehouse.stored_of(schema, plan.handles[task.operator.uid], touched, at_most)
    newest = compact_rows(task.warehouse.session, rows, schema, Now(), deepest=False).where("_kind <> 'tombstone'")
    fields = ", ".join(f"`{name}`" for name, _ in stored_type(schema).fields)
    own = [f"`{c.name}` AS {k}" for k, c in zip(keys, schema.keys, strict=True)]
    place = ("'' AS topic", "0 AS `partition`", "0L AS `offset`", f"{NO_PATH} AS _path")
    nothing = (
        "CAST(NULL AS TIMESTAMP) AS event_time",
        "0L AS _at",
        f"CAST(NULL AS {task.record.type.sql}) AS record",
    )
    return newest.selectExpr(*own, f"{STORED} AS _tag", *place, *nothing, f"struct({fields}) AS stored")


def _touched(task: ProcessTask, keys: list[str]) -> tuple[DataFrame, int]:
    """Returns the keys with records or due timers, with `_key_group`, and an upper bound of their number."""
    schema, columns = task.schema, ["_key_group", *(c.name for c in task.schema.keys)]
    found, count = [], task.applied
    if task.records is not None:
        named = [f"{k} AS `{c.name}`" for k, c in zip(keys, schema.keys, strict=True)]
        touched = with_keys(task.records, schema).selectExpr(*named).distinct()
        found.append(touched.selectExpr(f"{key_group_sql(schema, '`')} AS _key_group", "*").select(*columns))
    if task.due is not None and task.due.keys is not None:
        found.append(task.due.keys.select(*columns))
        count += task.due.count
    return reduce(DataFrame.unionAll, found), count


def returned_columns(operator: Process | FlatMap, run: FieldType | None) -> str:
    """Returns the columns of what workers return; see `process_worker.ResultBatches`."""
    own = "" if run is None else f"run {run.sql}, "
    emitted = "".join(f"{record_column(n)} {output.emitted.sql}, " for n, output in enumerate(operator.outputs))
    places = "topic STRING, `partition` INT, `offset` BIGINT, _path ARRAY<BIGINT>, event_time TIMESTAMP, why STRING"
    return f"_tag INT, {own}{emitted}{places}"


# FlatMap: records pass through the function where they are, without a repartition and without a sort.
@dataclass(frozen=True, kw_only=True)
class FlatMapWork:
    """The work of a worker; it travels pickled.

    Attributes:
        mapper: the operator, bound.
        record: shape of its records.
    """

    mapper: FlatMapper
    record: Shape


def run_flat_map(
    operator: FlatMap, record: Shape, records: DataFrame, blocked: Sequence[BlockedKey] = ()
) -> ProcessFrame:
    """Calls the function of a FlatMap for every good record of a batch.

    Args:
        operator: the declaration.
        record: shape of its records.
        records: decoded records of its inputs with the column `_path`, including those that could not be decoded.
        blocked: keys whose rows are not emitted.

    Raises:
        ProcessFunctionError: the function raised; of several failures, the first by position.
        EngineError: Spark failed.
    """
    with translate_spark_errors():
        rows = mapped_rows(operator, record, records, blocked).persist()
    return keep_output(operator, rows)[0]


def mapped_rows(operator: FlatMap, record: Shape, records: DataFrame, blocked: Sequence[BlockedKey] = ()) -> DataFrame:
    """Returns what the workers return, not yet computed; see `run_flat_map`."""
    work = FlatMapWork(mapper=FlatMapper.of(operator, blocked), record=record)
    blob = pickle_by_value(work, [operator.function, *record.classes, *(output.emits for output in operator.outputs)])
    place = ("topic", "CAST(`partition` AS INT) AS `partition`", "`offset`", "_path", "event_time", "0L AS _at")
    good = records.where("_reason IS NULL").selectExpr(*place, "record")
    return good.mapInArrow(partial(map_records, blob), returned_columns(operator, None))


def map_records(blob: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function that Spark calls once per partition.

    Args:
        blob: a pickled `FlatMapWork`.
        batches: topic, partition, offset, `_path`, `event_time`, `_at`, record.
    """
    work: FlatMapWork = cloudpickle.loads(blob)
    sent, out, waiting = ResultBatches(work.mapper.encoder, None), Output(), iter(batches)
    read_record = object_reader(work.record)
    try:
        for batch in waiting:
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            work.mapper.process(positioned(columns, read_record), out)
            yield from sent.flush(out, at_least=FLUSH)
        yield from sent.flush(out, at_least=1)
    except ProcessFunctionError as error:
        yield sent.failure(error)
        for _ in waiting:
            # A batch that is left unread would cost Spark this worker.
            continue
