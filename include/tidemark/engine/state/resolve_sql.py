"""Resolves a state handle with Spark: reads the rows of its files and merges them by key."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.engine.write.parquet_writer import RunSize, write_rows
from tidemark.model.checkpoint.manifest import WrittenRun
from tidemark.model.checkpoint.row_tables import ROW_CHECKPOINT
from tidemark.model.checkpoint.segments import Segment, StateHandle, is_base, is_first_form
from tidemark.model.checkpoint.sinks import FIRST_PATH, PATH, ROW_ID, SinkTable
from tidemark.model.core.ttl import Now
from tidemark.model.core.types import FieldType, column_type
from tidemark.model.kinds.base.sql import quote, spark
from tidemark.model.portable_sql.dialects import SPARK
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.closed_files import open_groups
from tidemark.model.state.compaction import Group, LevelMerge, is_top_light
from tidemark.model.state.key_choice import KeyChoice
from tidemark.model.state.sink_evolution import sources_of
from tidemark.sql.resolve import compacted_sql, empty_columns, resolving_sql, single_sql
from tidemark.sql.type_conversion import converted_sql

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def resolve_state(
    warehouse: SparkWarehouse, schema: OperatorSchema, handle: StateHandle, now: Now, *, whole: bool = False
) -> DataFrame:
    """Returns one row per live key: key columns, state fields, `_changed`.

    Args:
        warehouse: the warehouse of the handle, with the session.
        schema: the operator's stored schema.
        handle: the state.
        now: the clocks of the checkpoint.
        whole: merge every row, even rows of the oldest group without newer rows; the result is the same.

    Raises:
        StoreError: a version of the handle does not exist any more.
    """
    session = warehouse.session
    if not handle:
        columns = ", ".join(f"{quote(name)} {sql}" for name, sql in empty_columns(schema))
        return session.createDataFrame([], spark(columns))
    groups = open_groups(schema, warehouse.groups(handle), now.frontiers.get(schema.uid))
    if whole or not is_top_light(schema, groups):
        return finish_rows(session, warehouse.rows_of(schema, groups), schema, now)
    return _split(warehouse, schema, groups, now)


def of_keys(frame: DataFrame, schema: OperatorSchema, choice: KeyChoice) -> DataFrame:
    """Returns the rows of some keys; Spark moves the condition below the merge, to the files.

    Args:
        frame: rows with the key columns.
        schema: the stored schema.
        choice: the keys.
    """
    types = {k.name: k.type for k in schema.keys}
    for name, values in choice.items():
        wanted = [_literal(types[name], value) for value in values]
        column = F.col(spark(quote(name)))
        frame = frame.where(column.isin(*wanted) if len(wanted) != 1 else column == wanted[0])
    return frame


def _literal(of: FieldType, value: object) -> Column:
    """Returns a key's value in the type of its column, without Spark's reading of texts, zones and calendars."""
    if isinstance(value, datetime):
        return F.timestamp_micros(F.lit((value - _EPOCH) // timedelta(microseconds=1)).cast("BIGINT"))
    if isinstance(value, date):
        return F.date_from_unix_date(F.lit((value - _EPOCH.date()).days))
    return F.lit(value).cast(of.sql)


def union_of(warehouse: SparkWarehouse, table: SinkTable) -> DataFrame:
    """Returns the rows of a sink as of a manifest, with `_checkpoint`; rows of every declaration get its columns.

    Args:
        warehouse: the warehouse of the sink. Its session needs
            `spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration=false`, or Delta refuses
            versions older than a week although all their files exist.
        table: the sink.

    Raises:
        StoreError: a version of the sink is missing, or has other files than were committed.
    """
    session = warehouse.session
    if not table.handle:
        empty = ", ".join(f"{quote(name)} {sql}" for name, sql in (*table.stored, ("_checkpoint", "BIGINT")))
        return session.createDataFrame([], spark(empty))
    warehouse.groups(table.handle)  # Spark does not compare a version with the manifest
    parts = [_segment(session, warehouse.root, s).selectExpr(*_sunk(table, s.path)) for s in table.handle]
    return reduce(DataFrame.unionAll, parts).where(f"_checkpoint > {table.handle.expired}")


def _sunk(table: SinkTable, path: str) -> list[str]:
    there = sources_of(table, path)
    fields = []
    for name, sql in table.columns:
        if name in there:
            held = converted_sql(quote(name), column_type(there[name]), column_type(sql), SPARK)
            fields.append(held if there[name] == sql else f"{held} AS {quote(name)}")
        else:
            fields.append(f"CAST(NULL AS {sql}) AS {quote(name)}")
    checkpoint = f"{quote(ROW_CHECKPOINT)} AS {quote('_checkpoint')}" if is_base(path) else quote("_checkpoint")
    ids = [quote(name) for name, _ in ROW_ID]
    if is_first_form(path):
        ids[-1] = f"array({quote(FIRST_PATH)}) AS {quote(PATH)}"
    return [spark(text) for text in (*fields, *ids, checkpoint)]


def _split(warehouse: SparkWarehouse, schema: OperatorSchema, groups: Sequence[Group], now: Now) -> DataFrame:
    """Reads the oldest group twice without a shuffle: the rows without newer ones, and those to be merged.

    A hash distinguishes keys, because looking it up costs a fraction of looking up texts. Two keys with the same hash
    are both merged, by their full values.
    """
    session = warehouse.session
    below, newer = warehouse.rows_of(schema, groups[:1]), warehouse.rows_of(schema, groups[1:])
    mark = f"xxhash64({', '.join(spark(quote(k.name)) for k in schema.keys)}) AS _mark"
    touched, marked = F.broadcast(newer.selectExpr(mark)), below.selectExpr("*", mark)
    alone = marked.join(touched, "_mark", "left_anti").select(*below.columns)
    beneath = marked.join(touched, "_mark", "left_semi").select(*below.columns)
    single = session.sql(single_sql(schema, "{rows}", now, dialect=SPARK), rows=alone)
    return single.unionAll(finish_rows(session, newer.unionAll(beneath), schema, now))


def compact_rows(
    session: SparkSession, rows: DataFrame, schema: OperatorSchema, now: Now, *, deepest: bool
) -> DataFrame:
    """Returns the rows that a compaction writes."""
    return session.sql(compacted_sql(schema, "{rows}", now, deepest=deepest, dialect=SPARK), rows=rows)


def merge_levels(warehouse: SparkWarehouse, merge: LevelMerge) -> WrittenRun:
    """Writes the rows of a compaction with Spark's SQL.

    Raises:
        StateOverflowError: merged state does not fit; the message names the key.
        StoreError, EngineError: Spark cannot read or write them.
    """
    schema = merge.schema
    with translate_spark_errors():
        rows = warehouse.rows_of(schema, merge.groups)
        shaped = compact_rows(warehouse.session, rows, schema, merge.now, deepest=merge.deepest)
        order = ["_key_group", *(k.name for k in schema.keys)]
        size = RunSize(merge.files)
        return write_rows(shaped, order, warehouse.folder(merge.folder), size, schema.bounded_columns)


def finish_rows(session: SparkSession, rows: DataFrame, schema: OperatorSchema, now: Now) -> DataFrame:
    """Merges stored rows to one row per key: key columns, state fields, `_changed`."""
    return session.sql(resolving_sql(schema, "{rows}", now, dialect=SPARK), rows=rows)


def _segment(session: SparkSession, warehouse: str, segment: Segment) -> DataFrame:
    table = session.read.format("delta").option("versionAsOf", str(segment.version))
    rows: DataFrame = table.load(f"{warehouse}/{segment.path}")
    return rows.where(f"_checkpoint > {segment.after} AND _checkpoint <= {segment.through}")
