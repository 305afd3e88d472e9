"""Metrics and lineage for tests: what was told is remembered."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class MemoryMetrics:
    """See `ports.observing.Metrics`: the newest gauges of every pipeline."""

    told: dict[str, dict[str, float]] = field(default_factory=dict)

    def tell(self, pipeline: str, gauges: Mapping[str, float]) -> None:
        """See `ports.observing.Metrics`."""
        self.told.setdefault(pipeline, {}).update(gauges)


@dataclass
class MemoryLineage:
    """See `ports.observing.LineageSink`: every event, in order."""

    events: list[dict[str, object]] = field(default_factory=list)

    def announce(self, event: Mapping[str, object]) -> None:
        """See `ports.observing.LineageSink`."""
        self.events.append(dict(event))
