"""Sending to Kafka, connected at the first record: an attempt that emits nothing opens no producer."""

from collections.abc import Iterable

from tidemark.model.messages import Message
from tidemark.settings import Settings


class LazySender:
    """The port `Sender` over the broker that the settings name."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def send(self, topic: str, messages: Iterable[Message]) -> int:
        """See `ports.Sender`."""
        from tidemark.adapters.kafka_outbox import KafkaSender

        settings = self._settings
        return KafkaSender(settings.kafka_address, settings.kafka_client_options).send(topic, messages)
