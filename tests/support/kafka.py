"""Creates, fills, trims and deletes topics of a test broker. Each call waits until the broker shows its effect."""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

T = TypeVar("T")
QUIET = {"log_level": 0}
STABLE, WRITTEN = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
ELECTING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


@dataclass(frozen=True, slots=True)
class Sent:
    """A record to produce; a `value` of None is a tombstone."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()


class Topics:
    """The topics of a test broker."""

    def __init__(self, bootstrap: str, client: Mapping[str, str] | None = None) -> None:
        self.bootstrap = bootstrap
        self._client: dict[str, Any] = {"bootstrap.servers": bootstrap, **QUIET, **(client or {})}
        self.admin = AdminClient(self._client)

    def make(self, name: str = "", *, partitions: int = 1, **config: str) -> str:
        """Creates a topic. Write dots in configuration names as underscores: `retention_ms="-1"`."""
        name = name or f"t-{uuid.uuid4().hex[:12]}"
        settings = {"retention.ms": "-1", **{k.replace("_", "."): v for k, v in config.items()}}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        self.admin.create_topics([topic])[name].result(30)
        _until(lambda: len(self._partitions(name)) == partitions)
        return name

    def configure(self, topic: str, **config: str) -> None:
        """Sets the configuration of a topic. Write dots in names as underscores."""
        entries = [
            ConfigEntry(k.replace("_", "."), v, incremental_operation=AlterConfigOpType.SET) for k, v in config.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def produce(self, topic: str, records: Iterable[Sent | bytes]) -> None:
        """Sends records in order and waits until the broker acknowledges them."""
        producer = Producer({**self._client, "enable.idempotence": True})
        _send(producer, topic, records)
        assert producer.flush(30) == 0

    def transaction(self, topic: str, records: Iterable[Sent | bytes], *, end: str) -> Producer:
        """Sends records in a transaction. `end` is `commit`, `abort` or `open`, which leaves it to the test to end it.

        The transaction coordinator replies before the partition leaders have written the markers, so this waits for
        them too.
        """
        alone = self._ends(topic, STABLE) == self._ends(topic, WRITTEN)
        producer = Producer({**self._client, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(30)
        producer.begin_transaction()
        _send(producer, topic, records)
        assert producer.flush(30) == 0
        sent = self._ends(topic, WRITTEN)
        if end == "open":
            return producer
        {"commit": producer.commit_transaction, "abort": producer.abort_transaction}[end](30)
        _until(lambda: self._ends(topic, WRITTEN) != sent)
        _until(lambda: not alone or self._ends(topic, STABLE) == self._ends(topic, WRITTEN))
        return producer

    def _ends(self, topic: str, isolation: IsolationLevel) -> list[int]:
        partitions = len(self._partitions(topic))
        return _until(lambda: self._listed(topic, partitions, isolation))

    def taken(self, topic: str, partitions: int = 1) -> int:
        """The sum of the end offsets of the first partitions of a topic; 0 while leaders are being elected."""
        return sum(self._listed(topic, partitions, WRITTEN) or [])

    def _listed(self, topic: str, partitions: int, isolation: IsolationLevel) -> list[int] | None:
        """The end offsets of the first partitions of a topic; None while leaders are being elected."""
        latest = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)}
        answers = self.admin.list_offsets(latest, isolation_level=isolation)
        try:
            return [future.result(30).offset for future in answers.values()]
        except KafkaException as error:
            if error.args[0].code() not in ELECTING:
                raise
            return None

    def trim(self, topic: str, before: int, partition: int = 0) -> None:
        """Deletes the records of a partition below an offset."""
        where = TopicPartition(topic, partition, before)
        self.admin.delete_records([where])[where].result(30)

    def grow(self, topic: str, partitions: int) -> None:
        """Adds partitions until the topic has `partitions` of them."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        _until(lambda: len(self._partitions(topic)) == partitions)

    def delete(self, topic: str) -> None:
        """Deletes a topic."""
        self.admin.delete_topics([topic])[topic].result(30)
        _until(lambda: not self._partitions(topic))

    def recreate(self, topic: str, *, partitions: int = 1) -> None:
        """Deletes a topic and creates another with the same name."""
        self.delete(topic)
        self.make(topic, partitions=partitions)

    def _partitions(self, topic: str) -> list[object]:
        described = self.admin.describe_topics(TopicCollection([topic]))[topic]
        error = described.exception(30)
        return [] if error is not None else list(described.result().partitions)


def _send(producer: Producer, topic: str, records: Iterable[Sent | bytes]) -> None:
    for record in records:
        sent = record if isinstance(record, Sent) else Sent(record)
        producer.produce(
            topic,
            value=sent.value,
            key=sent.key,
            partition=sent.partition,
            timestamp=sent.timestamp_ms,
            headers=list(sent.headers),
        )
        producer.poll(0)


def _until(holds: Callable[[], T | None]) -> T:
    """Calls `holds` until its result is true, and returns that result."""
    deadline = time.monotonic() + 30
    while not (answer := holds()):
        assert time.monotonic() < deadline, "the broker did not show the change within 30 s"
        time.sleep(0.05)
    return answer
