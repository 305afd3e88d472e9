"""Drivers for the contract suite of the port `Sender`: they create topics with limits, and read the sent records."""

from typing import Protocol

from confluent_kafka import Consumer, TopicPartition

from tests.support.kafka import Topics
from tidemark.kafka.producer import ID_HEADER, KafkaOutbox
from tidemark.ports import Sender
from tidemark.testing.twin.memory import MemorySender

Arrived = tuple[bytes | None, bytes, str]
"""The key, value and id of a record."""


class SenderDriver(Protocol):
    """A sender under test, and the topics it sends to."""

    sender: Sender

    def make(self, largest: int | None = None, partitions: int = 1) -> str:
        """Creates a topic that refuses records of more than `largest` bytes."""

    def allow(self, topic: str, largest: int) -> None:
        """Raises the size limit of a topic to `largest` bytes."""

    def delete(self, topic: str) -> None:
        """Deletes a topic."""

    def arrived(self, topic: str) -> list[Arrived]:
        """The records in a topic, ordered by partition and offset."""


class MemorySenderDriver:
    """Drives the in-memory twin."""

    def __init__(self) -> None:
        self.twin = MemorySender()
        self.sender: Sender = self.twin
        self._made = 0

    def make(self, largest: int | None = None, partitions: int = 1) -> str:
        self._made += 1
        topic = f"t{self._made}"
        self.twin.arrived[topic] = []
        if largest is not None:
            self.twin.largest[topic] = largest
        return topic

    def allow(self, topic: str, largest: int) -> None:
        self.twin.largest[topic] = largest

    def delete(self, topic: str) -> None:
        self.twin.missing.add(topic)

    def arrived(self, topic: str) -> list[Arrived]:
        return [(m.key, m.value, m.id) for m in self.twin.arrived[topic]]


class KafkaSenderDriver:
    """Drives the producer on a real broker."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.sender: Sender = KafkaOutbox(topics.bootstrap)
        self._partitions: dict[str, int] = {}

    def make(self, largest: int | None = None, partitions: int = 1) -> str:
        limit = {} if largest is None else {"max_message_bytes": str(largest)}
        topic = self.topics.make(partitions=partitions, **limit)
        self._partitions[topic] = partitions
        return topic

    def watch(self, topic: str, partitions: int) -> None:
        """Registers a topic that was created elsewhere, so that `arrived` can read it."""
        self._partitions[topic] = partitions

    def allow(self, topic: str, largest: int) -> None:
        self.topics.configure(topic, max_message_bytes=str(largest))

    def delete(self, topic: str) -> None:
        self.topics.delete(topic)

    def arrived(self, topic: str) -> list[Arrived]:
        consumer = Consumer(
            {"bootstrap.servers": self.topics.bootstrap, "group.id": "test", "enable.auto.commit": False}
        )
        found: list[Arrived] = []
        for number in range(self._partitions[topic]):
            consumer.assign([TopicPartition(topic, number, 0)])
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)
            for _ in range(end):
                message = consumer.poll(10)
                assert message is not None and message.error() is None
                value, headers = message.value(), dict(message.headers() or [])
                assert isinstance(value, bytes)
                record = headers[ID_HEADER]
                assert isinstance(record, bytes)
                found.append((message.key(), value, record.decode()))
        consumer.close()
        return found
