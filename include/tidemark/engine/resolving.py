"""Resolves a state handle through Spark: each segment at its version, cut to its range, merged by key."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.model.dialects import SPARK
from tidemark.model.expressions import quoted, spark
from tidemark.model.layouts import mapped_sql, table_columns
from tidemark.model.resolving import compacted_sql, empty_columns, resolving_sql, single_sql, stored_columns
from tidemark.model.schema import OperatorSchema
from tidemark.model.segments import Segment, StateHandle
from tidemark.model.ttl import Now


def resolved(
    session: SparkSession,
    warehouse: str,
    schema: OperatorSchema,
    handle: StateHandle,
    now: Now,
    bottom: int | None = None,
) -> DataFrame:
    """One row per live key: key columns, state fields, `_changed`.

    Args:
        session: any session that sees the warehouse.
        warehouse: root of all tables.
        schema: the operator's stored schema.
        handle: its state.
        now: the checkpoint's clocks.
        bottom: checkpoint id of the oldest group, by `model.compaction.bottom_of`: its rows are merged only where a
            newer row has their key; None merges everything.

    The session needs `spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration=false`, or
    Delta refuses versions older than a week although all their files exist.
    """
    if not handle:
        columns = ", ".join(f"{quoted(name)} {sql}" for name, sql in empty_columns(schema))
        return session.createDataFrame([], spark(columns))
    rows = stored(session, warehouse, schema, handle)
    return finished(session, rows, schema, now) if bottom is None else _split(session, rows, schema, now, bottom)


def union_of(
    session: SparkSession, warehouse: str, handle: StateHandle, columns: Sequence[tuple[str, str]]
) -> DataFrame:
    """The rows of a handle's segments as they are, with `_checkpoint`: a sink as of a manifest.

    Args:
        session: any session that sees the warehouse.
        warehouse: root of all tables.
        handle: the sink's.
        columns: (column, SQL type) of its table.
    """
    names = [*(name for name, _ in columns), "_checkpoint"]
    if not handle:
        empty = ", ".join(f"{quoted(name)} {sql}" for name, sql in (*columns, ("_checkpoint", "BIGINT")))
        return session.createDataFrame([], spark(empty))
    parts = [_segment(session, warehouse, s).selectExpr(*(spark(quoted(n)) for n in names)) for s in handle]
    return reduce(DataFrame.unionAll, parts)


def _split(session: SparkSession, rows: DataFrame, schema: OperatorSchema, now: Now, bottom: int) -> DataFrame:
    """Two readings of the bottom, without a shuffle of it: rows that stand alone, and those that are merged.

    Keys are told apart by a hash, whose look-up costs a fraction of that of texts. Two keys of one hash go the long way
    together, where they are merged by what they are.
    """
    mark = f"xxhash64({', '.join(spark(quoted(k.name)) for k in schema.keys)}) AS _mark"
    below, newer = rows.where(f"_checkpoint <= {bottom}"), rows.where(f"_checkpoint > {bottom}")
    touched, marked = F.broadcast(newer.selectExpr(mark).distinct()), below.selectExpr("*", mark)
    alone = marked.join(touched, "_mark", "left_anti").select(*rows.columns)
    beneath = marked.join(touched, "_mark", "left_semi").select(*rows.columns)
    single = session.sql(single_sql(schema, "{rows}", now, dialect=SPARK), rows=alone)
    return single.unionAll(finished(session, newer.unionAll(beneath), schema, now))


def compacted(session: SparkSession, rows: DataFrame, schema: OperatorSchema, now: Now, *, deepest: bool) -> DataFrame:
    """The rows that a compaction writes."""
    return session.sql(compacted_sql(schema, "{rows}", now, deepest=deepest, dialect=SPARK), rows=rows)


def finished(session: SparkSession, rows: DataFrame, schema: OperatorSchema, now: Now) -> DataFrame:
    """One row per key of the given stored rows: key columns, state fields, `_changed`."""
    return session.sql(resolving_sql(schema, "{rows}", now, dialect=SPARK), rows=rows)


def stored(session: SparkSession, warehouse: str, schema: OperatorSchema, handle: StateHandle) -> DataFrame:
    """The stored rows of a handle that has segments, with the `_checkpoint` that each lies under."""
    parts = [_mapped(session, _segment(session, warehouse, s), schema, s.path, "_checkpoint") for s in handle]
    return reduce(DataFrame.unionAll, parts)


def stored_files(session: SparkSession, paths: Sequence[str], schema: OperatorSchema, table: str = "") -> DataFrame:
    """The stored rows of files of ours, read as the plain Parquet that they are, without Delta's replay of the log.

    Args:
        session: any session that sees the files.
        paths: of the files.
        schema: the stored schema.
        table: the table of the files, as a segment names it; without it they have the schema's own columns.
    """
    columns = ", ".join(f"{quoted(name)} {sql}" for name, sql in table_columns(schema, table))
    return _mapped(session, session.read.schema(spark(columns)).parquet(*paths), schema, table)


def _mapped(session: SparkSession, rows: DataFrame, schema: OperatorSchema, table: str, *more: str) -> DataFrame:
    """Rows of a table in the columns of the schema."""
    if schema.layout(table) is None:
        return rows.selectExpr(*(spark(quoted(name)) for name in (*stored_columns(schema), *more)))
    return session.sql(mapped_sql(schema, table, "{rows}", SPARK, more=more), rows=rows)


def _segment(session: SparkSession, warehouse: str, segment: Segment) -> DataFrame:
    table = session.read.format("delta").option("versionAsOf", str(segment.version))
    rows: DataFrame = table.load(f"{warehouse}/{segment.path}")
    return rows.where(f"_checkpoint > {segment.after} AND _checkpoint <= {segment.through}")
