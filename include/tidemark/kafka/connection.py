"""Connections to Kafka: clients that are quiet, know why they were refused, and say which setting does not fit."""

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tidemark.errors import UsageError

LOGGER = logging.getLogger("tidemark.kafka")
# Where nobody has configured logging, Python prints warnings of unhandled loggers on stderr: not ours.
LOGGER.addHandler(logging.NullHandler())

_REMEMBERED = 100
_REFUSALS = {
    KafkaError._AUTHENTICATION: "the broker refused the name, the password or the mechanism",
    KafkaError._SSL: "no TLS connection came about",
}
"""What librdkafka says beside a request, which itself only times out."""


class Client(AdminClient):
    """An AdminClient that knows why brokers refuse it.

    Args:
        settings: librdkafka's.
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
        """Forgets what was refused before: it may be mended."""
        self.poll(0)
        self._refused.clear()


def connect(bootstrap: str, options: Mapping[str, str] | None = None) -> Client:
    """A client whose own log goes to the logger `tidemark.kafka`, never to stderr.

    Args:
        bootstrap: `host:port`, several separated by commas.
        options: further librdkafka settings.

    Raises:
        UsageError: a setting that librdkafka does not know.
    """
    with fitting_settings():
        return Client(_settings(bootstrap, options))


@contextmanager
def group_reader(bootstrap: str, group: str, options: Mapping[str, str] | None = None) -> Iterator[Consumer]:
    """A consumer that asks for its group's offsets: it subscribes to nothing, so it neither joins nor makes a group.

    Raises:
        UsageError: a setting that librdkafka does not know.
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
    """Around the making of a client.

    Raises:
        UsageError: a setting that librdkafka does not know, or one that does not fit the others.
    """
    try:
        yield
    except KafkaException as error:
        raise UsageError(
            f"Kafka settings do not fit: {error.args[0].str()}", next="correct the TIDEMARK_KAFKA_* settings."
        ) from error
