"""The number of tasks of a query: the cluster's, fewer for little data; adaptive execution for much.

The limit is the session's `PARALLELISM`: `TIDEMARK_SPARK_PARALLELISM`, or else the server's own
`spark.sql.shuffle.partitions`. Spark's default of that is 200, and starting a task takes time however little it does,
so a small checkpoint would consist of the start of its tasks.
"""

import math
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

PARALLELISM = "spark.tidemark.parallelism"
"""Session option: the largest number of tasks behind a shuffle. Operator state has as many subtasks, as in Flink."""
SHUFFLES = "spark.sql.shuffle.partitions"
FEWEST, MANY = 5_000, 1_000_000
"""Rows per task below which another task does not pay; rows from which Spark plans again between stages."""
READ_TASK = 250_000
"""Records per task of a read: larger ranges of a Kafka partition are split, also to bound a task's memory."""


def parallelism_of(session: SparkSession) -> int:
    """Returns the largest number of tasks behind a shuffle."""
    return int(str(session.conf.get(PARALLELISM, None) or session.conf.get(SHUFFLES)))


def task_conf(parallelism: int, rows: int | None) -> Mapping[str, str]:
    """Returns the options of a session for one job.

    Args:
        parallelism: the largest number of tasks.
        rows: upper bound of the rows that the job reads; None = unknown.
    """
    tasks = parallelism if rows is None else max(1, min(parallelism, math.ceil(rows / FEWEST)))
    return {PARALLELISM: str(parallelism), SHUFFLES: str(tasks), **_adaptive(rows)}


def server_parallelism(session: SparkSession, *, is_remote: bool) -> int:
    """Returns the number of tasks that the server is configured for.

    A driver of this process has one session for many jobs, which change its option: its context knows the setting, or
    how many cores there are.
    """
    if is_remote:
        return parallelism_of(session)
    context: Any = session.sparkContext
    return int(context.getConf().get(SHUFFLES, None) or context.defaultParallelism)


def _adaptive(rows: int | None) -> Mapping[str, str]:
    """Returns whether Spark plans again between stages: it costs a small batch more than it saves."""
    return {"spark.sql.adaptive.enabled": "true"} if rows is not None and rows >= MANY else {}
