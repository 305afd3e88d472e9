"""Sends emitted records to Kafka: an idempotent producer, everything acknowledged or an error (D9, J2)."""

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, Producer

from tidemark.adapters.kafka_connection import LOGGER
from tidemark.errors import BrokerError
from tidemark.model.messages import Message

STALL = 30.0
"""Seconds without one more acknowledged record after which sending is given up."""
ID_HEADER = "tidemark-id"
"""The header that tells a record which was sent twice."""


class KafkaOutbox:
    """Sends to the topics of one cluster, what waits in outboxes; one producer per call, which lives as long.

    Args:
        bootstrap: `host:port`, several separated by commas.
        options: further librdkafka settings (security); never shown in a message.
    """

    _safe = "the checkpoint is complete; its emitted records stay in the outbox."
    _next = "mend the topic or the broker: the next run of the pipeline sends them first."

    def __init__(self, bootstrap: str, options: Mapping[str, str] | None = None) -> None:
        self._bootstrap = bootstrap
        self._options = dict(options or {})
        self._stall = STALL

    def send(self, topic: str, messages: Iterable[Message]) -> int:
        """Sends messages in order, and waits until every one is acknowledged; returns how many.

        Raises:
            BrokerError: one was refused, or none was acknowledged for half a minute. Some may have arrived.
        """
        failures: list[KafkaError] = []
        producer = self._producer(failures)
        sent = 0
        for message in messages:
            self._enqueue(producer, topic, message, failures)
            sent += 1
            if failures:
                break
        left, since = len(producer), time.monotonic()
        while left and not failures and time.monotonic() - since < self._stall:
            now_left = producer.flush(0.2)
            if now_left < left:
                left, since = now_left, time.monotonic()
        if left or failures:
            producer.purge()
            why = failures[0].str() if failures else f"none was acknowledged for {self._stall:g} s"
            raise BrokerError(
                f"sending to topic {topic} on Kafka at {self._bootstrap} stopped: {why}",
                safe=self._safe,
                next=self._next,
            )
        return sent

    def _producer(self, failures: list[KafkaError]) -> Producer:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self._bootstrap,
            "client.id": "tidemark-outbox",
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 20,
            "delivery.report.only.error": True,
            "message.timeout.ms": int(self._stall * 1000),
            **self._options,
        }
        return Producer(
            settings,
            logger=LOGGER,
            on_delivery=lambda error, _: failures.append(error) if error is not None else None,
            error_cb=lambda error: failures.append(error) if error.fatal() else None,
        )

    def _enqueue(self, producer: Producer, topic: str, message: Message, failures: list[KafkaError]) -> None:
        since = time.monotonic()
        while not failures and time.monotonic() - since < self._stall:
            try:
                producer.produce(topic, message.value, message.key, headers={ID_HEADER: message.id.encode()})
                return
            except BufferError:
                producer.poll(0.1)
        failures.append(KafkaError(KafkaError._TIMED_OUT, "the queue stayed full"))


class KafkaSender(KafkaOutbox):
    """The same for an attempt that is not sealed yet; implements `ports.Sender`."""

    _safe = "every completed checkpoint is intact; this one is not sealed, but some of its records may have arrived."
    _next = "mend the topic or the broker, then run the pipeline again: all of them are sent again, with the same ids."
