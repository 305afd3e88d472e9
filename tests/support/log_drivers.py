"""Drivers for the contract suite of the port `Log`: they change the log of an implementation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.support.kafka import Sent, Topics
from tidemark.kafka.log import KafkaLog
from tidemark.kafka.record_reader import KafkaRecords
from tidemark.model.core.offsets import TopicPartition
from tidemark.ports import Log, RecordReader
from tidemark.testing.twin.log import MemoryLog


class LogDriver(Protocol):
    """A log under test, and the changes that a test can make to it."""

    log: Log
    reader: RecordReader

    def make(self, partitions: int = 1) -> str:
        """Creates a topic."""

    def send(self, topic: str, timestamps_ms: Sequence[int], partition: int = 0) -> None:
        """Appends one record per timestamp."""

    def transact(self, topic: str, records: int, *, end: str) -> Callable[[], None]:
        """Appends records in a transaction that ends as `commit`, `abort` or `open`. The result ends an open one."""

    def trim(self, topic: str, before: int) -> None:
        """Deletes the records of partition 0 below an offset."""

    def grow(self, topic: str, partitions: int) -> None:
        """Adds partitions until the topic has `partitions` of them."""

    def delete(self, topic: str) -> None:
        """Deletes a topic."""

    def recreate(self, topic: str) -> None:
        """Deletes a topic and creates another with the same name."""


@dataclass
class KafkaLogDriver:
    """Drives a `KafkaLog` on a real broker."""

    topics: Topics

    def __post_init__(self) -> None:
        self.log: Log = KafkaLog(self.topics.bootstrap)
        self.reader: RecordReader = KafkaRecords(self.topics.bootstrap)

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


class MemoryLogDriver:
    """Drives the in-memory twin, and imitates the transaction markers and last stable offsets of a broker."""

    def __init__(self) -> None:
        self._memory = MemoryLog()
        self._made = 0
        self.log: Log = self._memory
        self.reader: RecordReader = self._memory

    def make(self, partitions: int = 1) -> str:
        self._made += 1
        self._memory.create(f"topic-{self._made:04}", partitions)
        return f"topic-{self._made:04}"

    def send(self, topic: str, timestamps_ms: Sequence[int], partition: int = 0) -> None:
        for ms in timestamps_ms:
            self._memory.append(TopicPartition(topic, partition), b"{}", timestamp_ms=ms)

    def transact(self, topic: str, records: int, *, end: str) -> Callable[[], None]:
        here = TopicPartition(topic, 0)
        began = self._memory.partitions(topic, "read_uncommitted")[here].end
        if end == "abort":
            self._memory.skip(here, records)
        else:
            self.send(topic, [0] * records)
        if end == "open":
            self._memory.hold_stable_end(here, began)
            return lambda: self._memory.hold_stable_end(here, None)
        self._memory.skip(here)
        return lambda: None

    def trim(self, topic: str, before: int) -> None:
        self._memory.trim(TopicPartition(topic, 0), before)

    def grow(self, topic: str, partitions: int) -> None:
        there = len(self._memory.partitions(topic, "read_committed"))
        self._memory.add_partitions(topic, partitions - there)

    def delete(self, topic: str) -> None:
        self._memory.delete(topic)

    def recreate(self, topic: str) -> None:
        self._memory.create(topic)
