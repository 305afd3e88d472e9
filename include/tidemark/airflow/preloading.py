"""Imports the modules of a checkpoint's tasks once, in the scheduler, from which the tasks are forked.

The `airflow_local_settings.py` that the stack writes calls this module. It imports no pipeline and no DAG file, because
every task reads those again. It opens no connection either, because a gRPC channel does not survive a fork.
"""

import os
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec

from tidemark.environment import names_receiver

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
    "tidemark.telemetry.statsd",
    "tidemark.storage.parquet_folder",
    "tidemark.airflow.checkpoint_dags",
    "tidemark.engine.compute",
    "tidemark.coordinator.checkpoints.coordinator",
    "tidemark.coordinator.checkpoints.fault_injection",
    "tidemark.coordinator.checkpoints.job",
    "tidemark.coordinator.plans.planner",
    "tidemark.coordinator.records.schema_book",
    "tidemark.declare.recorded_columns",
    "tidemark.engine.session.session",
    "tidemark.engine.session.job_result",
    "tidemark.model.kinds.registry",
    "tidemark.operations.checkpoints",
    "tidemark.operations.observability",
    "tidemark.readers.candidate_state",
    "tidemark.readers.state_reader",
)
"""The modules of this package that the four tasks import; `tests/airflow/test_preloading.py` finds missing ones."""


def preload(modules: Iterable[str] = (*LIBRARIES, *OURS)) -> None:
    """Imports the modules, and those for lineage events if variables ask for these; called before workers are forked.

    Raises:
        ImportError: a module is missing, so the scheduler does not start.
    """
    for module in (*modules, *_observing()):
        import_module(module)


def _observing() -> Iterator[str]:
    """Yields the module for lineage events, if they are sent."""
    asks = os.environ.get("TIDEMARK_OPENLINEAGE") or names_receiver(os.environ)
    if asks and find_spec("openlineage") is not None:
        yield "tidemark.telemetry.openlineage"
