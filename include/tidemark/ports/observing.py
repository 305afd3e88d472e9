"""The ports through which a pipeline is watched. Being down, they must never fail or delay the data path.

Whoever calls them bounds the call in time and survives every error (`tidemark.telemetry.bounded`).
"""

from collections.abc import Mapping
from typing import Protocol


class Metrics(Protocol):
    """Where gauges are told. Called after what changed a pipeline, by any process, with all gauges each time."""

    def tell(self, pipeline: str, gauges: Mapping[str, float]) -> None:
        """Tells the gauges of a pipeline; a later call replaces them.

        Args:
            pipeline: its name; part of each gauge's name, or a tag, or both.
            gauges: by name, as in `tidemark.model.checkpoint.metrics.METRICS`.
        """


class LineageSink(Protocol):
    """Where attempts and checkpoints are announced. A receiver may get an event twice and drops what it knows."""

    def announce(self, event: Mapping[str, object]) -> None:
        """Announces one event.

        Args:
            event: a RunEvent of OpenLineage, JSON values only.

        Raises:
            OSError: the receiver is down, slow, or does not take it.
        """
