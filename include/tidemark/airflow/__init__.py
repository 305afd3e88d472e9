"""Pipelines as Airflow DAGs: one function for each kind of DAG, and the restart strategies that a DAG can take.

Parsing a DAG file imports only the kinds of DAG that it names. Spark, Great Expectations, the Kafka and storage clients
and the coordinator are imported inside tasks.
"""

import sys
from importlib import import_module
from types import ModuleType
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


class _Package(ModuleType):
    """This package, in which a function takes precedence over the module of the same name that defines it."""

    def __setattr__(self, name: str, value: object) -> None:
        # Python sets this attribute to the module when it has imported one.
        if isinstance(value, ModuleType) and _HOMES.get(name) == value.__name__:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tidemark.airflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
