"""Where emitted rows go: `Process(..., sink=KafkaSink("alerts", "alerts"))`; `known_sinks` has all kinds of sinks.

A sink answers four questions (`SinkTraits`), says what manifests store of it, and writes rows. From the answers follows
everything else: which table keeps rows, what is written before or after the seal, what a restore takes back, what
retention keeps. The rest of the package asks a `SinkTable` for its sink and never compares kinds. To add one, write its
file, add its line to `known_sinks`, and test it: `tests/unit/sinks` walks the registry.
"""

from tidemark.sinks.console import ConsoleSink
from tidemark.sinks.delta import DeltaSink
from tidemark.sinks.kafka import KafkaSink
from tidemark.sinks.outbox import Outbox
from tidemark.sinks.sink import EmittedRow, Sink, SinkTraits

__all__ = ["ConsoleSink", "DeltaSink", "EmittedRow", "KafkaSink", "Outbox", "Sink", "SinkTraits"]
