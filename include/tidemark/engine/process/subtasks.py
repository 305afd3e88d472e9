"""Parallel tasks of an operator with operator state: their number, and the keys of each.

Other operators are distributed by Spark's own hash. Here key groups determine the task, as in Flink, so that the
in-memory twin and any number of executors have the same tasks.
"""

import math
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.declare.operators import Process
from tidemark.engine.session.parallelism import SHUFFLES, parallelism_of
from tidemark.model.schema.key_groups import key_group_sql
from tidemark.model.schema.operator_schema import OperatorSchema

_HELD = 100_000
"""Records, and at most as many keys, that a task holds while it looks up their stored rows."""


def parallelism(session: SparkSession, schema: OperatorSchema) -> int:
    """Returns the number of tasks: the cluster's, however few records there are, at most one per key group."""
    return min(parallelism_of(session), schema.key_groups)


def shuffle_tasks(session: SparkSession, schema: OperatorSchema) -> int:
    """Returns the number of tasks behind a shuffle: few for a small batch, at most one per key group."""
    return min(int(str(session.conf.get(SHUFFLES))), schema.key_groups)


def held_keys(operator: Process, applied: int) -> int:
    """Returns how many keys workers hold at once: with operator state all, because its lists follow the order of keys.

    Args:
        operator: the operator.
        applied: how many records it applies.
    """
    return 0 if operator.operator_state is None else applied


def lookup_parts(operator: Process, applied: int, tasks: int) -> int:
    """Returns the number of parts in which a task looks up its keys, so that it does not hold all of them at once."""
    return 1 if operator.operator_state is not None else max(1, math.ceil(applied / tasks / _HELD))


def group_sql(schema: OperatorSchema) -> str:
    """Returns the Spark SQL expression of the key group over the key columns `_k0`, `_k1`, ..."""
    keys = tuple(replace(k, name=f"_k{n}") for n, k in enumerate(schema.keys))
    return key_group_sql(replace(schema, keys=keys), "`")


def partition_by_task(rows: DataFrame, schema: OperatorSchema, tasks: int) -> DataFrame:
    """Moves each row to the task of its key: Spark partition n is task n.

    Args:
        rows: key columns `_k0`, `_k1`, ..., and others.
        schema: schema of the operator.
        tasks: number of tasks.
    """
    return rows.repartitionById(tasks, F.expr(f"CAST({group_sql(schema)} * {tasks} DIV {schema.key_groups} AS INT)"))
