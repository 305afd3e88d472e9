"""Sinks for emitted rows: `Process(..., sink=KafkaSink("alerts", "alerts"))`; `known_sinks` lists all kinds.

A sink declares four traits (`SinkTraits`) and what manifests store of it, and writes rows. The traits decide everything
else: which table keeps rows, which rows are written before or after the seal, what a restore takes back, and what
retention keeps. The rest of the package asks a `SinkTable` for its sink and never compares kinds.

To add a sink, write its file, add a line to `known_sinks`, and test it: `tests/unit/sinks` walks the registry.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.model.checkpoint.messages import EmittedRow
    from tidemark.model.checkpoint.sink_traits import AHEAD, COMMITTED, OUTBOX, SinkTraits
    from tidemark.sinks.console import ConsoleSink
    from tidemark.sinks.delta import DeltaSink
    from tidemark.sinks.kafka import KafkaSink
    from tidemark.sinks.outbox import Outbox
    from tidemark.sinks.sink import Services, Sink

__all__ = [
    "AHEAD",
    "COMMITTED",
    "OUTBOX",
    "ConsoleSink",
    "DeltaSink",
    "EmittedRow",
    "KafkaSink",
    "Outbox",
    "Services",
    "Sink",
    "SinkTraits",
]

_TRAITS = "tidemark.model.checkpoint.sink_traits"
_HOMES = {
    "AHEAD": _TRAITS,
    "COMMITTED": _TRAITS,
    "OUTBOX": _TRAITS,
    "ConsoleSink": "tidemark.sinks.console",
    "DeltaSink": "tidemark.sinks.delta",
    "EmittedRow": "tidemark.model.checkpoint.messages",
    "KafkaSink": "tidemark.sinks.kafka",
    "Outbox": "tidemark.sinks.outbox",
    "Services": "tidemark.sinks.sink",
    "Sink": "tidemark.sinks.sink",
    "SinkTraits": _TRAITS,
}


def __getattr__(name: str) -> Any:
    """Imports a sink when it is first used: a pipeline pays only for the sinks that it declares."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tidemark.sinks' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
