"""Pipelines as Airflow DAGs: a function for each kind of DAG, and nothing else that a DAG file needs.

A DAG file loads the kinds that it names and what those declare; Spark, Great Expectations, the clients and the
coordinator are loaded inside tasks.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.airflow.backfill import backfill_dag
    from tidemark.airflow.compaction import compaction_dag
    from tidemark.airflow.factory import checkpoint_dag
    from tidemark.airflow.forking import fork_dag
    from tidemark.airflow.patching import patch_dag
    from tidemark.airflow.restoring import restore_dag
    from tidemark.airflow.retention import retention_dag
    from tidemark.airflow.savepoints import savepoint_dag
    from tidemark.airflow.watching import watch_dag

__all__ = [
    "backfill_dag",
    "checkpoint_dag",
    "compaction_dag",
    "fork_dag",
    "patch_dag",
    "restore_dag",
    "retention_dag",
    "savepoint_dag",
    "watch_dag",
]

_HOMES = {
    "backfill_dag": "tidemark.airflow.backfill",
    "checkpoint_dag": "tidemark.airflow.factory",
    "compaction_dag": "tidemark.airflow.compaction",
    "fork_dag": "tidemark.airflow.forking",
    "patch_dag": "tidemark.airflow.patching",
    "restore_dag": "tidemark.airflow.restoring",
    "retention_dag": "tidemark.airflow.retention",
    "savepoint_dag": "tidemark.airflow.savepoints",
    "watch_dag": "tidemark.airflow.watching",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tidemark.airflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
