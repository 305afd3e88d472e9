"""Tidemark: Flink's periodic, incremental, restorable checkpoints for batch pipelines, scheduled by Airflow.

The names below are the whole public interface. Importing the package loads neither Spark nor Airflow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark import formats, state, testing
    from tidemark.errors import TidemarkError
    from tidemark.operators import Fold, Process
    from tidemark.pipeline import Pipeline
    from tidemark.reading import read_sink, read_state
    from tidemark.retention import Retention
    from tidemark.sinks import ConsoleSink, DeltaSink, KafkaSink
    from tidemark.sources import Broadcast, DeltaTable, KafkaSource, TopicPattern

__all__ = [
    "Broadcast",
    "ConsoleSink",
    "DeltaSink",
    "DeltaTable",
    "Fold",
    "KafkaSink",
    "KafkaSource",
    "Pipeline",
    "Process",
    "Retention",
    "TidemarkError",
    "TopicPattern",
    "formats",
    "read_sink",
    "read_state",
    "state",
    "testing",
]

_HOMES = {
    "Broadcast": "tidemark.sources",
    "ConsoleSink": "tidemark.sinks",
    "DeltaSink": "tidemark.sinks",
    "DeltaTable": "tidemark.sources",
    "Fold": "tidemark.operators",
    "KafkaSink": "tidemark.sinks",
    "KafkaSource": "tidemark.sources",
    "Pipeline": "tidemark.pipeline",
    "Process": "tidemark.operators",
    "Retention": "tidemark.retention",
    "TidemarkError": "tidemark.errors",
    "TopicPattern": "tidemark.sources",
    "read_sink": "tidemark.reading",
    "read_state": "tidemark.reading",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"tidemark.{name}")
    raise AttributeError(f"module 'tidemark' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
