"""Sinks for emitted rows: `Process(..., sink=KafkaSink("alerts", "alerts"))`; `known_sinks` lists all kinds.

A sink declares four traits (`SinkTraits`) and what manifests store of it, and writes rows. The traits decide everything
else: which table keeps rows, which rows are written before or after the seal, what a restore takes back, and what
retention keeps. The rest of the package asks a `SinkTable` for its sink and never compares kinds.

To add a sink, write its file, add a line to `known_sinks`, and test it: `tests/unit/sinks` walks the registry.
"""

from tidemark.sinks.console import ConsoleSink
from tidemark.sinks.delta import DeltaSink
from tidemark.sinks.kafka import KafkaSink
from tidemark.sinks.outbox import Outbox
from tidemark.sinks.sink import EmittedRow, Sink, SinkTraits

__all__ = ["ConsoleSink", "DeltaSink", "EmittedRow", "KafkaSink", "Outbox", "Sink", "SinkTraits"]
