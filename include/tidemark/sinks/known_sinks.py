"""All sinks, one line each."""

from collections.abc import Mapping

from tidemark.model.checkpoint.sink_traits import SINK_KINDS, traits_of
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.sinks.console import ConsoleSink
from tidemark.sinks.delta import DeltaSink
from tidemark.sinks.kafka import KafkaSink
from tidemark.sinks.sink import Sink

SINKS: Mapping[str, type[Sink]] = {kind: cls for cls in (DeltaSink, KafkaSink, ConsoleSink) for kind in cls.kinds}
"""Sink classes by the kind that manifests store."""
SINK_KINDS.update({kind: cls.kinds[kind] for kind, cls in SINKS.items()})


def stored_sink(table: SinkTable) -> Sink | None:
    """Returns the sink that rows of a table are written to; None for one of 0.1 that nothing is written to.

    Raises:
        UsageError: this release has no such sink.
    """
    traits_of(table.kind)
    return SINKS[table.kind].thaw(table)


def destination_of(table: SinkTable) -> str:
    """Returns where rows end up that leave the warehouse, for messages to people.

    Raises:
        UsageError: this release has no such sink.
    """
    sink = stored_sink(table)
    return f"sink {table.name}" if sink is None else sink.destination
