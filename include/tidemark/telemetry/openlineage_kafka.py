"""Sends OpenLineage events to a Kafka topic, with the keys and values of OpenLineage's own transport."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Producer
from openlineage.client.client import Event
from openlineage.client.event_v2 import RunEvent
from openlineage.client.serde import Serde
from openlineage.client.transport import Transport

from tidemark.kafka.connection import LOGGER


@dataclass
class AcknowledgedKafka(Transport):
    """A transport that raises an error if an event does not arrive; that of OpenLineage only logs it (adr/0077).

    Attributes:
        bootstrap: `host:port`.
        topic: the topic that gets the events.
        timeout: seconds to wait for the acknowledgement of an event.
        options: more librdkafka settings, for security.
    """

    bootstrap: str
    topic: str
    timeout: float
    options: Mapping[str, str] = field(repr=False)

    def emit(self, event: Event) -> None:
        """Sends the event of a run.

        Raises:
            OSError: it was not acknowledged in time; it may have arrived anyway.
        """
        failures: list[str] = []
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "client.id": "tidemark-lineage",
                "acks": "all",
                "message.timeout.ms": int(self.timeout * 1000),
                **self.options,
            },
            logger=LOGGER,
            on_delivery=lambda error, _: failures.append(error.str()) if error is not None else None,
        )
        key = f"run:{event.job.namespace}/{event.job.name}" if isinstance(event, RunEvent) else None
        producer.produce(self.topic, Serde.to_json(event).encode(), key)
        if producer.flush(self.timeout) or failures:
            producer.purge()
            why = failures[0] if failures else f"not acknowledged within {self.timeout:g} s"
            raise OSError(f"topic {self.topic} on Kafka at {self.bootstrap}: {why}")
