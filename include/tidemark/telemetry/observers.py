"""The receivers of metrics and lineage events named by the settings."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.settings import Settings
from tidemark.telemetry.bounded import Bounded

if TYPE_CHECKING:
    from tidemark.ports.observing import LineageSink, Metrics

SECONDS = 2.0
"""How long a run waits for a receiver, in seconds."""


class Observers:
    """The receivers of one context. After its first failure, a receiver is not called again.

    Args:
        settings: the settings that name the receivers.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def metrics(self) -> "list[Metrics]":
        """The StatsD server from the settings; None if there is none."""
        from tidemark.telemetry.statsd import StatsdMetrics

        return [StatsdMetrics(self._settings.statsd)] if self._settings.statsd else []

    @cached_property
    def metrics_calls(self) -> Bounded:
        """Calls the receivers of metrics."""
        return Bounded("metrics", SECONDS)

    @cached_property
    def lineage(self) -> "LineageSink | None":
        """The receiver of lineage events; None if events are not sent."""
        from tidemark.telemetry.openlineage import FileLineage, HttpLineage

        settings = self._settings
        address, key = settings.openlineage, settings.openlineage_api_key
        if address is None:
            return None
        if address.startswith("file:"):
            return FileLineage(settings.root / Path(address.removeprefix("file:")))
        if address.startswith("kafka://"):
            from tidemark.telemetry.openlineage_kafka import KafkaLineage

            bootstrap, _, topic = address.removeprefix("kafka://").rpartition("/")
            # The credentials are for the Kafka in the settings; another Kafka must not get them.
            is_ours = bootstrap == settings.kafka_bootstrap
            return KafkaLineage(bootstrap, topic, SECONDS, settings.kafka_client_options if is_ours else {})
        return HttpLineage(address, None if key is None else key.get_secret_value(), SECONDS)

    @cached_property
    def lineage_calls(self) -> Bounded:
        """Calls the receiver of lineage events."""
        return Bounded("lineage", SECONDS)
