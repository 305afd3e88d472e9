"""Pipelines as Airflow DAGs: `checkpoint_dag()` and `compaction_dag()`, and nothing else that a DAG file needs.

Importing it costs what Airflow's own import costs: Spark, Great Expectations and the clients are loaded inside tasks.
"""

from tidemark.airflow.compaction import compaction_dag
from tidemark.airflow.factory import checkpoint_dag

__all__ = ["checkpoint_dag", "compaction_dag"]
