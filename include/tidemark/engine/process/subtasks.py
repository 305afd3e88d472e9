"""Parallel tasks of an operator with operator state: their number, and the keys of each.

Other operators are distributed by Spark's own hash. Here key groups determine the task, as in Flink, so that the
in-memory twin and any number of executors have the same tasks.
"""

from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.engine.session.parallelism import SHUFFLES, parallelism_of
from tidemark.model.schema.key_groups import key_group_sql
from tidemark.model.schema.operator_schema import OperatorSchema


def parallelism(session: SparkSession, schema: OperatorSchema) -> int:
    """Returns the number of tasks: the cluster's, however few records there are, at most one per key group."""
    return min(parallelism_of(session), schema.key_groups)


def shuffle_tasks(session: SparkSession, schema: OperatorSchema) -> int:
    """Returns the number of tasks behind a shuffle: few for a small batch, at most one per key group."""
    return min(int(str(session.conf.get(SHUFFLES))), schema.key_groups)


def partition_by_task(rows: DataFrame, schema: OperatorSchema, tasks: int) -> DataFrame:
    """Moves each row to the task of its key: Spark partition n is task n.

    Args:
        rows: key columns `_k0`, `_k1`, ..., and others.
        schema: schema of the operator.
        tasks: number of tasks.
    """
    keys = tuple(replace(k, name=f"_k{n}") for n, k in enumerate(schema.keys))
    group = key_group_sql(replace(schema, keys=keys), "`")
    return rows.repartitionById(tasks, F.expr(f"CAST({group} * {tasks} DIV {schema.key_groups} AS INT)"))
