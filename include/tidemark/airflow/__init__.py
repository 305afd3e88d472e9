"""Pipelines as Airflow DAGs: a function for each kind of DAG, and the restart strategies that a DAG may take.

A DAG file loads the kinds that it names and what those declare; Spark, Great Expectations, the clients and the
coordinator are loaded inside tasks.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.airflow.backfill_dag import backfill_dag
    from tidemark.airflow.checkpoint_dag import checkpoint_dag
    from tidemark.airflow.compaction_dag import compaction_dag
    from tidemark.airflow.deadline_dag import watch_dag
    from tidemark.airflow.fork_dag import fork_dag
    from tidemark.airflow.patch_dag import patch_dag
    from tidemark.airflow.restore_dag import restore_dag
    from tidemark.airflow.retention_dag import retention_dag
    from tidemark.airflow.savepoint_dag import savepoint_dag
    from tidemark.coordinator.checkpoints.restart import ExponentialDelay, FailureRate, FixedDelay, NoRestart

__all__ = [
    "ExponentialDelay",
    "FailureRate",
    "FixedDelay",
    "NoRestart",
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
    "ExponentialDelay": "tidemark.coordinator.checkpoints.restart",
    "FailureRate": "tidemark.coordinator.checkpoints.restart",
    "FixedDelay": "tidemark.coordinator.checkpoints.restart",
    "NoRestart": "tidemark.coordinator.checkpoints.restart",
    "backfill_dag": "tidemark.airflow.backfill_dag",
    "checkpoint_dag": "tidemark.airflow.checkpoint_dag",
    "compaction_dag": "tidemark.airflow.compaction_dag",
    "fork_dag": "tidemark.airflow.fork_dag",
    "patch_dag": "tidemark.airflow.patch_dag",
    "restore_dag": "tidemark.airflow.restore_dag",
    "retention_dag": "tidemark.airflow.retention_dag",
    "savepoint_dag": "tidemark.airflow.savepoint_dag",
    "watch_dag": "tidemark.airflow.deadline_dag",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tidemark.airflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
