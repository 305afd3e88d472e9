"""Parallel tasks of an operator with operator state: how many there are, and which keys each one has (C1).

Other operators are spread by Spark's own hash. Here a task is known by its key groups, as in Flink, so that the
in-memory twin and any number of executors have the same tasks.
"""

from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.model.schema.key_groups import key_group_sql
from tidemark.model.schema.operator_schema import OperatorSchema


def parallelism(session: SparkSession, schema: OperatorSchema) -> int:
    """The number of tasks: that of shuffle partitions, at most one per key group."""
    return min(int(str(session.conf.get("spark.sql.shuffle.partitions"))), schema.key_groups)


def spread(rows: DataFrame, schema: OperatorSchema, tasks: int) -> DataFrame:
    """Rows with each key at its task: Spark partition n is task n.

    Args:
        rows: key columns `_k0`, `_k1`, ..., and others.
        schema: of the operator.
        tasks: how many there are.
    """
    keys = tuple(replace(k, name=f"_k{n}") for n, k in enumerate(schema.keys))
    group = key_group_sql(replace(schema, keys=keys), "`")
    return rows.repartitionById(tasks, F.expr(f"CAST({group} * {tasks} DIV {schema.key_groups} AS INT)"))
