"""Loads a fixed list of records into a topic exactly once, even after crashes: by position, without transactions.

The records of each partition are known in advance, and one idempotent producer sends them in order, so a crash leaves a
prefix of each partition. The next load finds its length, checks its last record, and sends the rest.
"""

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from confluent_kafka import KafkaError, Producer

from devstack.demo.target_topic import Record, TargetTopic
from tidemark.errors import BrokerError
from tidemark.kafka.client import TIMEOUT
from tidemark.kafka.connection import LOGGER

STALL = 30.0
"""A load gives up after this many seconds without an acknowledged record."""

Progress = Callable[[int, int], None]
"""Called with the number of records in the topic, and the number when the load is complete."""


class LoadOutcome(Enum):
    """The outcome of a load."""

    LOADED = "loaded"
    COMPLETED = "completed"
    ALREADY_THERE = "already there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A successful load: the topic holds exactly `records` records, of which this load sent `sent`."""

    outcome: LoadOutcome
    records: int
    sent: int


def partition_of(record: Record, partitions: int) -> int:
    """Returns a record's partition: by CRC-32 of the key (librdkafka's `consistent`), else by row number."""
    return (record.row if record.key is None else zlib.crc32(record.key)) % partitions


class TopicLoader:
    """Loads one topic.

    Args:
        bootstrap: `host:port`, several separated by commas.
        topic: the topic's name; the topic is created if it does not exist.
        partitions: the topic's number of partitions.
        timeout: seconds to wait for each of the broker's answers.
        options: more librdkafka settings, for security; no message shows them.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int = 4,
        timeout: float = TIMEOUT,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        self._bootstrap = bootstrap
        self._timeout = timeout
        self._options = dict(options or {})

    def load(self, records: Sequence[Record], progress: Progress = lambda done, total: None) -> Load:
        """Loads the topic so that it holds exactly `records`, in their order per partition.

        Raises:
            ConflictError: the topic holds other records; nothing was sent.
            BrokerError: the broker did not answer, or rejected a record; repeating the load completes it.
        """
        placed: list[list[Record]] = [[] for _ in range(self.partitions)]
        for record in records:
            placed[partition_of(record, self.partitions)].append(record)
        there = self.prepare()
        found = there.prefix_lengths(placed)
        before = sum(found)
        if before < len(records):
            self._send(_missing(records, found), before, len(records), progress)
            found = there.prefix_lengths(placed)
        if sum(found) != len(records):
            raise there.refused(f"holds {sum(found):,} records after the load, not {len(records):,}")
        return Load(outcome=_outcome(before, len(records)), records=len(records), sent=len(records) - before)

    def prepare(self) -> TargetTopic:
        """Creates the topic unless it exists, so that an unreachable broker is found before the data are read.

        Raises:
            ConflictError: the topic exists with other settings.
            BrokerError: the broker did not answer.
        """
        there = TargetTopic(self._bootstrap, self.topic, self._timeout, self._options)
        there.make(self.partitions)
        return there

    def replace(self) -> None:
        """Deletes the topic and its records; pipelines that have read it must start over."""
        TargetTopic(self._bootstrap, self.topic, self._timeout, self._options).delete()

    def _send(self, missing: Iterator[tuple[int, Record]], before: int, total: int, progress: Progress) -> None:
        failures: list[KafkaError] = []
        producer = self._producer(failures)
        sent = 0
        for partition, record in missing:
            _enqueue(producer, self.topic, partition, record, failures)
            sent += 1
            if sent % 5_000 == 0:
                producer.poll(0)
                progress(before + sent - len(producer), total)
            if failures:
                break
        self._await_acknowledgements(producer, failures, lambda left: progress(before + sent - left, total))

    def _producer(self, failures: list[KafkaError]) -> Producer:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self._bootstrap,
            "client.id": "tidemark-load",
            "enable.idempotence": True,
            # Otherwise a batch that times out leaves a gap, and the records are no longer a prefix.
            "enable.gapless.guarantee": True,
            "acks": "all",
            "compression.type": "lz4",
            "linger.ms": 50,
            "delivery.report.only.error": True,
            **self._options,
        }
        return Producer(
            settings,
            logger=LOGGER,
            on_delivery=lambda error, _: failures.append(error) if error is not None else None,
            error_cb=lambda error: failures.append(error) if error.fatal() else None,
        )

    def _await_acknowledgements(
        self, producer: Producer, failures: list[KafkaError], progress: Callable[[int], None]
    ) -> None:
        """Returns when every record is acknowledged; gives up after `STALL` seconds without an acknowledgement."""
        left, since = len(producer), time.monotonic()
        while left and not failures and time.monotonic() - since < STALL:
            now_left = producer.flush(0.2)
            if now_left < left:
                left, since = now_left, time.monotonic()
                progress(left)
        if left or failures:
            producer.purge()
            producer.flush(1)
            why = failures[0].str() if failures else f"none was acknowledged for {STALL:g} s"
            raise BrokerError(
                f"loading topic {self.topic} on Kafka at {self._bootstrap} stopped: {why}",
                safe="each partition holds a prefix of its records.",
                next=f"tidemark status; then tidemark topic load {self.topic}, which sends the rest.",
            )


def _enqueue(producer: Producer, topic: str, partition: int, record: Record, failures: list[KafkaError]) -> None:
    since = time.monotonic()
    while not failures and time.monotonic() - since < STALL:
        try:
            producer.produce(topic, record.value, record.key, partition=partition, timestamp=record.timestamp_ms)
            return
        except BufferError:
            # The queue is full: wait for the broker, which also reports delivery failures.
            producer.poll(0.1)
    failures.append(KafkaError(KafkaError._TIMED_OUT, "the queue stayed full"))


def _missing(records: Sequence[Record], found: Sequence[int]) -> Iterator[tuple[int, Record]]:
    """Yields the records after the prefix of each partition, in their order."""
    seen = [0] * len(found)
    for record in records:
        partition = partition_of(record, len(found))
        seen[partition] += 1
        if seen[partition] > found[partition]:
            yield partition, record


def _outcome(before: int, total: int) -> LoadOutcome:
    if before == total:
        return LoadOutcome.ALREADY_THERE
    return LoadOutcome.COMPLETED if before else LoadOutcome.LOADED
