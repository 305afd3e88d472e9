"""Connections to Kafka: clients that log quietly, know why they were refused, and name an invalid setting."""

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tidemark.errors import UsageError

LOGGER = logging.getLogger("tidemark.kafka")
# If logging is not configured, Python prints warnings of unhandled loggers on stderr; Tidemark's stay off.
LOGGER.addHandler(logging.NullHandler())

_REMEMBERED = 100
_REFUSALS = {
    KafkaError._AUTHENTICATION: "the broker refused the name, the password or the mechanism",
    KafkaError._SSL: "no TLS connection was established",
}
"""Messages of librdkafka next to a request, which itself only times out."""


class Client(AdminClient):
    """An AdminClient that knows why brokers refuse it.

    Args:
        settings: settings of librdkafka.
    """

    def __init__(self, settings: Mapping[str, str | int | float | bool]) -> None:
        self._refused: deque[KafkaError] = deque(maxlen=_REMEMBERED)
        told: dict[str, Any] = {**settings, "error_cb": self._refused.append}
        super().__init__(told, logger=LOGGER)

    def refusal(self) -> str | None:
        """Why brokers have refused this client since `forget`, if they have."""
        self.poll(0)
        for error in reversed(self._refused):
            if error.code() in _REFUSALS:
                return f"{_REFUSALS[error.code()]} ({error.str()})"
        return None

    def forget(self) -> None:
        """Forgets earlier refusals: their cause may be fixed."""
        self.poll(0)
        self._refused.clear()


def connect(bootstrap: str, options: Mapping[str, str] | None = None) -> Client:
    """Returns a client whose own log goes to the logger `tidemark.kafka`, never to stderr.

    Args:
        bootstrap: `host:port`, several separated by commas.
        options: further librdkafka settings.

    Raises:
        UsageError: librdkafka does not know a setting.
    """
    with fitting_settings():
        return Client(_settings(bootstrap, options))


@contextmanager
def group_reader(bootstrap: str, group: str, options: Mapping[str, str] | None = None) -> Iterator[Consumer]:
    """Returns a consumer that reads its group's offsets: it never subscribes, so it neither joins nor creates a group.

    Raises:
        UsageError: librdkafka does not know a setting.
    """
    with fitting_settings():
        settings = _settings(bootstrap, options) | {"group.id": group, "enable.auto.commit": False}
        consumer = Consumer(settings, logger=LOGGER)
    try:
        yield consumer
    finally:
        consumer.close()


def _settings(bootstrap: str, options: Mapping[str, str] | None) -> dict[str, str | int | float | bool]:
    own: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "client.id": "tidemark"}
    return own | {"reconnect.backoff.max.ms": 1000, **(options or {})}


@contextmanager
def fitting_settings() -> Iterator[None]:
    """Translates errors of creating a client.

    Raises:
        UsageError: librdkafka does not know a setting, or one contradicts the others.
    """
    try:
        yield
    except KafkaException as error:
        raise UsageError(
            f"invalid Kafka settings: {error.args[0].str()}", next="correct the TIDEMARK_KAFKA_* settings."
        ) from error
