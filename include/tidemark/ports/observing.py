"""The ports for monitoring a pipeline. If they are down, they must never fail or delay the data path.

Callers limit the time of each call and survive every error (`tidemark.telemetry.bounded`).
"""

from collections.abc import Mapping
from typing import Protocol


class Metrics(Protocol):
    """A receiver of gauges. Any process calls it after a change of a pipeline, with all gauges each time."""

    def tell(self, pipeline: str, gauges: Mapping[str, float]) -> None:
        """Sends the gauges of a pipeline; a later call replaces them.

        Args:
            pipeline: its name; part of each gauge's name, or a tag, or both.
            gauges: values by name, as in `tidemark.model.checkpoint.metrics.METRICS`.
        """


class LineageSink(Protocol):
    """A receiver of events about attempts and checkpoints. It may get an event twice and drops duplicates."""

    def announce(self, event: Mapping[str, object]) -> None:
        """Sends one event.

        Args:
            event: a RunEvent of OpenLineage, JSON values only.

        Raises:
            OSError: the receiver is down, slow, or refuses it.
        """
