"""Tidemark: Flink's periodic, incremental, restorable checkpoints for batch pipelines, scheduled by Airflow.

The names below are the whole public interface. Importing the package imports neither Spark nor Airflow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark import formats, state, targets, testing
    from tidemark.api import Warehouse, open
    from tidemark.declare.co_process import CoProcess
    from tidemark.declare.flat_map import FlatMap
    from tidemark.declare.interval_join import IntervalJoin
    from tidemark.declare.operators import Fold, Process
    from tidemark.declare.pipeline import Pipeline
    from tidemark.declare.retention import Retention
    from tidemark.declare.sources import Broadcast, DeltaTable, KafkaSource, TopicPattern
    from tidemark.declare.watermark import Watermark
    from tidemark.declare.windows import Session, Sliding, Tumbling
    from tidemark.errors import TidemarkError
    from tidemark.reading import read_sink, read_state
    from tidemark.sinks import ConsoleSink, DeltaSink, KafkaSink

__all__ = [
    "Broadcast",
    "CoProcess",
    "ConsoleSink",
    "DeltaSink",
    "DeltaTable",
    "FlatMap",
    "Fold",
    "IntervalJoin",
    "KafkaSink",
    "KafkaSource",
    "Pipeline",
    "Process",
    "Retention",
    "Session",
    "Sliding",
    "TidemarkError",
    "TopicPattern",
    "Tumbling",
    "Warehouse",
    "Watermark",
    "formats",
    "open",
    "read_sink",
    "read_state",
    "state",
    "targets",
    "testing",
]

_HOMES = {
    "Broadcast": "tidemark.declare.sources",
    "CoProcess": "tidemark.declare.co_process",
    "ConsoleSink": "tidemark.sinks.console",
    "DeltaSink": "tidemark.sinks.delta",
    "DeltaTable": "tidemark.declare.sources",
    "FlatMap": "tidemark.declare.flat_map",
    "Fold": "tidemark.declare.operators",
    "IntervalJoin": "tidemark.declare.interval_join",
    "KafkaSink": "tidemark.sinks.kafka",
    "KafkaSource": "tidemark.declare.sources",
    "Pipeline": "tidemark.declare.pipeline",
    "Process": "tidemark.declare.operators",
    "Retention": "tidemark.declare.retention",
    "Session": "tidemark.declare.windows",
    "Sliding": "tidemark.declare.windows",
    "TidemarkError": "tidemark.errors",
    "TopicPattern": "tidemark.declare.sources",
    "Tumbling": "tidemark.declare.windows",
    "Warehouse": "tidemark.api",
    "Watermark": "tidemark.declare.watermark",
    "open": "tidemark.api",
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
