"""The registry of sinks, one line each."""

from collections.abc import Mapping

from tidemark.errors import UsageError
from tidemark.sinks.console import ConsoleSink
from tidemark.sinks.delta import DeltaSink
from tidemark.sinks.kafka import KafkaSink
from tidemark.sinks.sink import Sink, SinkTraits

SINKS: Mapping[str, type[Sink]] = {kind: cls for cls in (DeltaSink, KafkaSink, ConsoleSink) for kind in cls.kinds}
"""Sinks by the kind stored in manifests."""


def sink_class(kind: str) -> type[Sink]:
    """Returns the class for a kind.

    Raises:
        UsageError: this release has no such sink.
    """
    if kind not in SINKS:
        raise UsageError(
            f"this release has no sink of kind {kind!r}; there are {', '.join(sorted(SINKS))}",
            next="use the release of Tidemark that wrote this checkpoint.",
        )
    return SINKS[kind]


def traits_of(kind: str) -> SinkTraits:
    """Returns how rows reach a sink of a kind.

    Raises:
        UsageError: see `sink_class`.
    """
    return sink_class(kind).kinds[kind]
