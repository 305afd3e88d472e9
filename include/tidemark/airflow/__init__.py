"""Pipelines as Airflow DAGs: one function for each kind of DAG, with the restart strategies and schedules it can take.

Parsing a DAG file imports only the kinds of DAG that it names. Spark, Great Expectations, the Kafka and storage clients
and the coordinator are imported inside tasks.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.airflow.assets import checkpoints_of
    from tidemark.airflow.backfill_dags import backfill_dag
    from tidemark.airflow.checkpoint_dags import checkpoint_dag
    from tidemark.airflow.compaction_dags import compaction_dag
    from tidemark.airflow.deadline_dags import watch_dag
    from tidemark.airflow.erase_dags import erase_dag
    from tidemark.airflow.fork_dags import fork_dag
    from tidemark.airflow.hold_dags import hold_dag
    from tidemark.airflow.kafka_lag import KafkaLag
    from tidemark.airflow.patch_dags import patch_dag
    from tidemark.airflow.publication_dags import publication_dag
    from tidemark.airflow.redrive_dags import redrive_dag
    from tidemark.airflow.restore_dags import restore_dag
    from tidemark.airflow.retention_dags import retention_dag
    from tidemark.airflow.savepoint_dags import savepoint_dag
    from tidemark.airflow.stop_dags import resume_dag, stop_dag
    from tidemark.airflow.timeline_dags import close_dag, promote_dag
    from tidemark.airflow.transform_dags import transform_dag
    from tidemark.coordinator.checkpoints.restart import ExponentialDelay, FailureRate, FixedDelay, NoRestart

__all__ = [
    "ExponentialDelay",
    "FailureRate",
    "FixedDelay",
    "KafkaLag",
    "NoRestart",
    "backfill_dag",
    "checkpoint_dag",
    "checkpoints_of",
    "close_dag",
    "compaction_dag",
    "erase_dag",
    "fork_dag",
    "hold_dag",
    "patch_dag",
    "promote_dag",
    "publication_dag",
    "redrive_dag",
    "restore_dag",
    "resume_dag",
    "retention_dag",
    "savepoint_dag",
    "stop_dag",
    "transform_dag",
    "watch_dag",
]

_HOMES = {
    "ExponentialDelay": "tidemark.coordinator.checkpoints.restart",
    "FailureRate": "tidemark.coordinator.checkpoints.restart",
    "FixedDelay": "tidemark.coordinator.checkpoints.restart",
    "KafkaLag": "tidemark.airflow.kafka_lag",
    "NoRestart": "tidemark.coordinator.checkpoints.restart",
    "backfill_dag": "tidemark.airflow.backfill_dags",
    "checkpoint_dag": "tidemark.airflow.checkpoint_dags",
    "checkpoints_of": "tidemark.airflow.assets",
    "close_dag": "tidemark.airflow.timeline_dags",
    "compaction_dag": "tidemark.airflow.compaction_dags",
    "erase_dag": "tidemark.airflow.erase_dags",
    "fork_dag": "tidemark.airflow.fork_dags",
    "hold_dag": "tidemark.airflow.hold_dags",
    "patch_dag": "tidemark.airflow.patch_dags",
    "promote_dag": "tidemark.airflow.timeline_dags",
    "publication_dag": "tidemark.airflow.publication_dags",
    "redrive_dag": "tidemark.airflow.redrive_dags",
    "restore_dag": "tidemark.airflow.restore_dags",
    "resume_dag": "tidemark.airflow.stop_dags",
    "retention_dag": "tidemark.airflow.retention_dags",
    "savepoint_dag": "tidemark.airflow.savepoint_dags",
    "stop_dag": "tidemark.airflow.stop_dags",
    "transform_dag": "tidemark.airflow.transform_dags",
    "watch_dag": "tidemark.airflow.deadline_dags",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tidemark.airflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
