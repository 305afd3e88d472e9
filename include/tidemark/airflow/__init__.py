"""Pipelines as Airflow DAGs: a function for each kind of DAG, and nothing else that a DAG file needs.

Importing it costs what Airflow's own import costs: Spark, Great Expectations and the clients are loaded inside tasks.
"""

from tidemark.airflow.backfill import backfill_dag
from tidemark.airflow.compaction import compaction_dag
from tidemark.airflow.factory import checkpoint_dag
from tidemark.airflow.restoring import restore_dag
from tidemark.airflow.savepoints import savepoint_dag

__all__ = ["backfill_dag", "checkpoint_dag", "compaction_dag", "restore_dag", "savepoint_dag"]
