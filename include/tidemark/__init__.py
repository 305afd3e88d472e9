"""Tidemark: Flink's periodic, incremental, restorable checkpoints for batch pipelines, scheduled by Airflow.

The names below are the whole public interface. Importing the package loads neither Spark nor Airflow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark import state, testing
    from tidemark.errors import TidemarkError
    from tidemark.pipeline import Fold, KafkaSource, Pipeline, TopicPattern
    from tidemark.reading import read_state

__all__ = [
    "Fold",
    "KafkaSource",
    "Pipeline",
    "TidemarkError",
    "TopicPattern",
    "read_state",
    "state",
    "testing",
]

_HOMES = {
    "Fold": "tidemark.pipeline",
    "KafkaSource": "tidemark.pipeline",
    "Pipeline": "tidemark.pipeline",
    "TidemarkError": "tidemark.errors",
    "TopicPattern": "tidemark.pipeline",
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
