"""The topic that a load fills: creates it with the right settings, and finds how much of the load it already holds.

It refuses a topic whose partitions are not prefixes of the load, because the load would duplicate records.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.cimpl import NewTopic

from tidemark.errors import ConflictError
from tidemark.kafka.client import OFFSETS, RESOURCES, Question
from tidemark.kafka.connection import LOGGER, connect
from tidemark.model.core.offsets import TopicPartition

TOPIC_CONFIG = {
    # Kafka applies retention to the record's time: by default it would delete the year 2013 at once.
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
}


class Record(Protocol):
    """A record to load."""

    @property
    def row(self) -> int:
        """The record's number in the data set; distributes records without a key."""

    @property
    def key(self) -> bytes | None:
        """The record's key, which may be None."""

    @property
    def value(self) -> bytes:
        """The record's value."""

    @property
    def timestamp_ms(self) -> int:
        """The record's time."""


class TargetTopic:
    """One topic on a real broker.

    Args:
        bootstrap: `host:port`, several separated by commas.
        topic: the topic's name.
        timeout: seconds to wait for each answer.
        options: more librdkafka settings, for security.
    """

    def __init__(self, bootstrap: str, topic: str, timeout: float, options: Mapping[str, str]) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._timeout = timeout
        self._options = options
        self._admin = connect(bootstrap, options)

    def make(self, partitions: int) -> None:
        """Creates the topic unless it exists, and waits until the broker shows it.

        Raises:
            ConflictError: the topic exists with another number of partitions, or settings that lose or restamp records.
        """
        ask = self._question("create the topic")
        if not ask.describe([self._topic]):
            self._create(ask, partitions)
        while not (described := ask.describe([self._topic])):
            ask.pause("the new topic did not appear")
        found = len(described[self._topic].partitions)
        if found != partitions:
            raise self.refused(f"has {found} partitions, not {partitions}")
        resource = RESOURCES(RESOURCES.Type.TOPIC, self._topic)
        settings = ask.answer(ask.admin.describe_configs([resource], request_timeout=ask.remaining_seconds())[resource])
        for name, wanted in TOPIC_CONFIG.items():
            if settings[name].value != wanted:
                raise self.refused(f"has {name}={settings[name].value}, not {wanted}")

    def delete(self) -> None:
        """Deletes the topic if it exists, and waits until the broker has forgotten it."""
        ask = self._question("delete the topic")
        if ask.describe([self._topic]):
            ask.answer(ask.admin.delete_topics([self._topic], request_timeout=ask.remaining_seconds())[self._topic])
        while ask.describe([self._topic]):
            ask.pause("the topic did not disappear")

    def prefix_lengths(self, wanted: Sequence[Sequence[Record]]) -> list[int]:
        """Returns how many of the wanted records each partition holds.

        Args:
            wanted: the wanted records per partition, in order.

        Raises:
            ConflictError: the records of a partition are not a prefix of the wanted ones.
        """
        partitions = [TopicPartition(self._topic, p) for p in range(len(wanted))]
        ask = self._question("read the ends of the topic")
        first = ask.offsets(dict.fromkeys(partitions, OFFSETS.earliest()), "read_committed")
        ends = ask.offsets(dict.fromkeys(partitions, OFFSETS.latest()), "read_uncommitted")
        for tp, records in zip(partitions, wanted, strict=True):
            if first[tp] != 0:
                raise self.refused(f"has lost the offsets [0, {first[tp]}) of partition {tp.partition}")
            if ends[tp] > len(records):
                raise self.refused(
                    f"holds {ends[tp]:,} records in partition {tp.partition}, more than the {len(records):,} to load"
                )
        for tp, message in self._last_records(ends).items():
            if not _is_record(message, wanted[tp.partition][ends[tp] - 1]):
                raise self.refused(f"holds another record at offset {ends[tp] - 1} of partition {tp.partition}")
        return [ends[tp] for tp in partitions]

    def refused(self, what: str) -> ConflictError:
        """Returns the error for a topic that a load may not fill."""
        return ConflictError(
            f"topic {self._topic} on Kafka at {self._bootstrap} {what}",
            safe="this check wrote nothing.",
            next=f"tidemark topic load {self._topic} --replace --execute    (deletes the topic and loads it again; "
            "pipelines that have read it must start over).",
        )

    def _create(self, ask: Question, partitions: int) -> None:
        topic = NewTopic(self._topic, num_partitions=partitions, config=TOPIC_CONFIG)
        try:
            ask.admin.create_topics([topic], request_timeout=ask.remaining_seconds())[self._topic].result(
                ask.remaining_seconds()
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise ask.failure(error.args[0]) from error

    def _last_records(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, Message]:
        """Returns the last record of every partition that is not empty."""
        wanted = [KafkaPartition(tp.topic, tp.partition, end - 1) for tp, end in ends.items() if end]
        ask = self._question("read the last records of the topic")
        settings: dict[str, Any] = {"bootstrap.servers": self._bootstrap, "group.id": "tidemark-load"}
        settings |= {"enable.auto.commit": False, "isolation.level": "read_uncommitted", **self._options}
        consumer = Consumer(settings, logger=LOGGER)
        try:
            consumer.assign(wanted)
            found: dict[TopicPartition, Message] = {}
            while len(found) < len(wanted):
                message = consumer.poll(0.2)
                if message is None:
                    ask.pause("a record could not be read")
                elif (error := message.error()) is not None:
                    raise ask.failure(error)
                else:
                    at = TopicPartition(message.topic() or "", message.partition() or 0)
                    found.setdefault(at, message)
                    consumer.pause([KafkaPartition(at.topic, at.partition)])
            return found
        finally:
            consumer.close()

    def _question(self, purpose: str) -> Question:
        return Question(self._admin, self._bootstrap, f"{purpose} {self._topic}", self._timeout)


def _is_record(message: Message, record: Record) -> bool:
    found = (message.key(), message.value(), message.timestamp()[1])
    return found == (record.key, record.value, record.timestamp_ms)
