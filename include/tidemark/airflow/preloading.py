"""Imports what every task of a checkpoint would import again: once, in the scheduler, from which its tasks fork.

Called by the `airflow_local_settings.py` that the stack writes. No pipeline and no DAG file is imported here: those are
read anew by every task. Nothing here connects to anything either, because a channel of gRPC does not survive a fork.
"""

from collections.abc import Iterable
from importlib import import_module

LIBRARIES = (
    "confluent_kafka.admin",
    "deltalake",
    "great_expectations.expectations",
    "pandas",
    "pyarrow.parquet",
    "pyspark.sql.connect.session",
)
OURS = (
    "tidemark.tables.delta_tables",
    "tidemark.kafka.record_reader",
    "tidemark.storage.object_cache",
    "tidemark.storage.local_store",
    "tidemark.telemetry.openlineage",
    "tidemark.telemetry.statsd",
    "tidemark.storage.timeline_lock",
    "tidemark.airflow.checkpoint_dag",
    "tidemark.engine.compute",
    "tidemark.coordinator.checkpoints.job",
    "tidemark.engine.session.session",
    "tidemark.engine.session.job_result",
    "tidemark.model.kinds.registry",
    "tidemark.operations.checkpoints",
    "tidemark.operations.metrics",
)
"""What the four tasks import of this package; `tests/airflow/test_preloading.py` finds what is missing."""


def preload(modules: Iterable[str] = (*LIBRARIES, *OURS)) -> None:
    """Imports modules; called before the executor forks its workers.

    Raises:
        ImportError: one is not there, so that the scheduler does not start.
    """
    for module in modules:
        import_module(module)
