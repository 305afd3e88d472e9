"""What the contract suite of the port `Log` needs of an implementation: a way to make things happen to the log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.kafka.topics import Sent, Topics
from tidemark.adapters.kafka import KafkaLog
from tidemark.ports import Log


class LogDriver(Protocol):
    """A log under test, and what may happen to it."""

    log: Log

    def make(self, partitions: int = 1) -> str:
        """A fresh topic."""

    def send(self, topic: str, timestamps_ms: Sequence[int], partition: int = 0) -> None:
        """Appends one record per timestamp."""

    def transact(self, topic: str, records: int, *, end: str) -> Callable[[], None]:
        """Appends records in a transaction: `commit`, `abort`, or `open`; the answer ends an open one."""

    def trim(self, topic: str, before: int) -> None:
        """Deletes the records of partition 0 below an offset."""

    def grow(self, topic: str, partitions: int) -> None:
        """Adds partitions up to a total."""

    def delete(self, topic: str) -> None:
        """Deletes a topic."""

    def recreate(self, topic: str) -> None:
        """Deletes a topic and makes another of the same name."""


@dataclass
class KafkaDriver:
    """KafkaLog on a real broker."""

    topics: Topics

    def __post_init__(self) -> None:
        self.log: Log = KafkaLog(self.topics.bootstrap)

    def make(self, partitions: int = 1) -> str:
        return self.topics.make(partitions=partitions)

    def send(self, topic: str, timestamps_ms: Sequence[int], partition: int = 0) -> None:
        self.topics.produce(topic, [Sent(b"{}", timestamp_ms=ms, partition=partition) for ms in timestamps_ms])

    def transact(self, topic: str, records: int, *, end: str) -> Callable[[], None]:
        producer = self.topics.transaction(topic, [b"{}"] * records, end=end)
        return lambda: producer.abort_transaction(30)

    def trim(self, topic: str, before: int) -> None:
        self.topics.trim(topic, before)

    def grow(self, topic: str, partitions: int) -> None:
        self.topics.grow(topic, partitions)

    def delete(self, topic: str) -> None:
        self.topics.delete(topic)

    def recreate(self, topic: str) -> None:
        self.topics.recreate(topic)
