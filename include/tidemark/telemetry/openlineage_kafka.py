"""Sends OpenLineage events to a Kafka topic, as OpenLineage's own Kafka transport does: JSON, keyed by the job."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Producer

from tidemark.kafka.connection import LOGGER


@dataclass(frozen=True)
class KafkaLineage:
    """See `ports.observing.LineageSink`.

    Attributes:
        bootstrap: `host:port`.
        topic: the topic that gets the events.
        timeout: seconds to wait for the acknowledgement of an event.
        options: more librdkafka settings, for security.
    """

    bootstrap: str
    topic: str
    timeout: float = 2.0
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def announce(self, event: Mapping[str, object]) -> None:
        """See `ports.observing.LineageSink`. Uses one producer per event, because a process sends only two or three.

        Raises:
            OSError: the event was not acknowledged in time; it may have arrived anyway.
        """
        failures: list[KafkaError] = []
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "client.id": "tidemark-lineage",
                "acks": "all",
                "message.timeout.ms": int(self.timeout * 1000),
                **self.options,
            },
            logger=LOGGER,
            on_delivery=lambda error, _: failures.append(error) if error is not None else None,
        )
        job = event["job"]
        named = f"run:{job['namespace']}/{job['name']}" if isinstance(job, Mapping) else "run"
        producer.produce(self.topic, json.dumps(event, separators=(",", ":")).encode(), named.encode())
        if producer.flush(self.timeout) or failures:
            producer.purge()
            why = failures[0].str() if failures else f"not acknowledged within {self.timeout:g} s"
            raise OSError(f"topic {self.topic} on Kafka at {self.bootstrap}: {why}")
