"""A compacted topic that one publication writes: transactions that carry its progress as an offset of a group.

The transactional id is the fence: `init_transactions` ends the transaction of an earlier producer with the same id,
whose every later call fails. Progress is read after that, and moves in the same transaction as the last rows of a step.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic, TopicMetadata

from tidemark.errors import BrokerError, FencedError, TidemarkError, UsageError
from tidemark.kafka.client import RESOURCES
from tidemark.kafka.connection import LOGGER, Client, connect, fitting_settings, group_reader

STALL = 30.0
"""Seconds without an answer of the broker after which a step is given up; the next publication repeats it."""
_ABORT = 5.0
"""Seconds that the end of a failed transaction may take; after that, the broker ends it when it times out."""
_NEW = 10.0
"""Seconds that a new topic may be unknown to a broker."""
_PER_TRANSACTION = 100_000
"""Rows of a transaction; readers of committed records wait for its end."""
_TRANSACTION_MS = 120_000
"""Milliseconds after which the broker ends a transaction; librdkafka may wait as long if the broker dies meanwhile."""
_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
_SAFE = "every checkpoint is intact; a step that was not finished is repeated."
Report = Callable[[KafkaError | None, Message], None]
Row = tuple[bytes, bytes | None]
"""Key and value; None deletes the key."""
Place = tuple[int, bytes]
"""Partition and key. A record of others may lie in another partition than this writer chooses for its key."""
_BY_KEY = -1
"""The partition that librdkafka replaces with that of the key."""


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """The newest step that a topic has.

    Attributes:
        step: its number.
        lineage: id of the rebuild that its rows come from.
        checkpoint: id of its checkpoint.
        partitions: number of partitions at that time; 0 if it was not recorded.
    """

    step: int
    lineage: str
    checkpoint: int
    partitions: int = 0


@dataclass(frozen=True, kw_only=True)
class CompactedTopic:
    """One topic of one cluster.

    Attributes:
        bootstrap: `host:port`, several separated by commas.
        topic: the topic.
        application: names transactions and the group that holds the progress.
        options: further librdkafka settings (security); never shown in a message.
    """

    bootstrap: str
    topic: str
    application: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def create(self) -> None:
        """Creates the topic, compacted, unless it exists.

        Raises:
            UsageError: it exists and is not compacted, so that old values of a key would be lost or kept for ever.
            BrokerError: Kafka did not answer.
        """
        admin = connect(self.bootstrap, self.options)
        with self._translated("create the topic"):
            new = NewTopic(self.topic, num_partitions=-1, replication_factor=-1, config={"cleanup.policy": "compact"})
            try:
                admin.create_topics([new], request_timeout=STALL)[self.topic].result(STALL)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            policy = self._policy(admin)
        if "compact" not in policy.split(","):
            raise UsageError(
                f"topic {self.topic} has cleanup.policy={policy}, and published state requires compact",
                safe="the topic was left alone.",
                next="set cleanup.policy=compact with kafka-configs, or name another topic in the pipeline file.",
            )

    def _policy(self, admin: Client) -> str:
        """The topic's cleanup policy; a broker may learn of a new topic only after a while."""
        resource, until = RESOURCES(RESOURCES.Type.TOPIC, self.topic), time.monotonic() + _NEW
        while True:
            try:
                settings = admin.describe_configs([resource], request_timeout=STALL)[resource].result(STALL)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > until:
                    raise
                time.sleep(0.2)
            else:
                return str(settings["cleanup.policy"].value)

    def progress(self) -> TopicProgress | None:
        """The newest step; None if there is none, or if the group's offset has expired.

        Raises:
            BrokerError: Kafka did not answer.
        """
        with (
            self._translated("read the progress"),
            group_reader(self.bootstrap, self.application, self.options) as reader,
        ):
            (found,) = reader.committed([TopicPartition(self.topic, 0)], timeout=STALL)
        if found.error is not None:
            raise self._failure("read the progress", found.error)
        if found.offset < 0:
            return None
        told = json.loads(found.metadata or "{}")
        numbers = (int(told.get(name, 0)) for name in ("checkpoint", "partitions"))
        return TopicProgress(found.offset, str(told.get("lineage", "")), *numbers)

    @contextmanager
    def writer(self) -> "Iterator[TopicWriter]":
        """Opens the only writer: others with this id are fenced from here on.

        Raises:
            FencedError: a later writer has fenced this one.
            BrokerError: Kafka did not answer.
        """
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": "tidemark",
            "transactional.id": self.application,
            "transaction.timeout.ms": _TRANSACTION_MS,
            # As Java's producers do it, so that streams of both are partitioned alike.
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "compression.type": "lz4",
            **self.options,
        }
        with fitting_settings():
            producer = Producer(settings, logger=LOGGER)
        with self._translated("open a transaction"):
            producer.init_transactions(STALL)
        yield TopicWriter(topic=self, producer=producer)

    def records(self) -> Iterator[tuple[Place, bytes | None]]:
        """Yields places and values of all committed records from the start of each partition to its end, in order.

        Raises:
            BrokerError: Kafka did not answer.
        """
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": "tidemark",
            "group.id": f"{self.application}/reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            **self.options,
        }
        with fitting_settings():
            consumer = Consumer(settings, logger=LOGGER)
        try:
            with self._translated("read the topic"):
                found = self._described(consumer)
                consumer.assign([TopicPartition(self.topic, n, 0) for n in found.partitions])
                yield from self._read(consumer, set(found.partitions))
        finally:
            consumer.close()

    def _described(self, client: Consumer | Producer) -> TopicMetadata:
        until = time.monotonic() + _NEW
        while True:
            found: TopicMetadata = client.list_topics(self.topic, timeout=STALL).topics[self.topic]
            if found.error is None:
                return found
            if time.monotonic() > until:
                raise KafkaException(found.error)
            time.sleep(0.2)

    def _read(self, consumer: Consumer, left: set[int]) -> Iterator[tuple[Place, bytes | None]]:
        since = time.monotonic()
        while left:
            for message in consumer.consume(1000, timeout=1.0):
                since, error = time.monotonic(), message.error()
                if error is None:
                    key = message.key()
                    if isinstance(key, bytes):
                        yield (message.partition() or 0, key), message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
            if time.monotonic() - since > STALL:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"nothing was read for {STALL:g} s"))

    @contextmanager
    def _translated(self, purpose: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._failure(purpose, error.args[0]) from error

    def _failure(self, purpose: str, error: KafkaError) -> TidemarkError:
        if error.code() in _FENCED:
            return FencedError(
                f"another publisher of {self.application} has begun since", safe=_SAFE, next="it finishes the step."
            )
        return BrokerError(
            f"could not {purpose} of topic {self.topic} on Kafka at {self.bootstrap}: {error.str()}",
            safe=_SAFE,
            next="repair the topic or the broker; the next publication continues.",
        )


@dataclass(kw_only=True)
class TopicWriter:
    """Writes the rows of one step.

    Attributes:
        topic: the topic.
        producer: with an open transactional id.
    """

    topic: CompactedTopic
    producer: Producer

    def partitions(self) -> int:
        """The number of partitions, by which keys are distributed.

        Raises:
            BrokerError: Kafka did not answer.
        """
        with self.topic._translated("count the partitions"):
            return len(self.topic._described(self.producer).partitions)

    def write(self, rows: Iterable[Row], progress: TopicProgress, stale: MutableSet[Place] | None = None) -> int:
        """Writes rows, and with the last of them the progress; returns their bytes.

        Args:
            rows: in the order in which they are written.
            progress: the step that these rows finish.
            stale: places with values of earlier steps, or of others. Those that get no row get a tombstone, and stay
                in the set.

        Raises:
            FencedError: a later writer has begun; it repeats the step.
            BrokerError: Kafka did not take all of them.
        """
        sent, size, failed = 0, 0, list[KafkaError]()
        left: MutableSet[Place] = set() if stale is None else stale

        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)
            elif isinstance(key := message.key(), bytes) and message.value() is not None:
                left.discard((message.partition() or 0, key))

        def flush() -> None:
            # This finds a broker that is away: where offsets are sent, librdkafka exceeds the timeout it is given.
            if self.producer.flush(STALL) or failed:
                raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT, "rows were not taken"))

        def everything() -> Iterator[tuple[bytes, bytes | None, int]]:
            yield from ((key, value, _BY_KEY) for key, value in rows)
            flush()  # from here on, the places of all rows are known
            yield from ((key, None, partition) for partition, key in sorted(left))

        with self.topic._translated("write rows"), self._aborting():
            self.producer.begin_transaction()
            for key, value, partition in everything():
                self._produce(key, value, partition, report)
                sent, size = sent + 1, size + len(key) + len(value or b"")
                if failed:
                    raise KafkaException(failed[0])
                if sent % _PER_TRANSACTION == 0:
                    self.producer.commit_transaction(STALL)
                    self.producer.begin_transaction()
            flush()
            with group_reader(self.topic.bootstrap, self.topic.application, self.topic.options) as reader:
                reader.committed([TopicPartition(self.topic.topic, 0)], timeout=STALL)
                told = {name: getattr(progress, name) for name in ("lineage", "checkpoint", "partitions")}
                place = TopicPartition(self.topic.topic, 0, progress.step, json.dumps(told))
                self.producer.send_offsets_to_transaction([place], reader.consumer_group_metadata(), STALL)
            self.producer.commit_transaction(STALL)
        return size

    @contextmanager
    def _aborting(self) -> Iterator[None]:
        """Ends an open transaction that fails, so that readers of committed records need not wait for its timeout."""
        try:
            yield
        except BaseException:
            with suppress(KafkaException):  # fenced, or the broker is away; the error under way says so
                self.producer.abort_transaction(_ABORT)
            raise

    def _produce(self, key: bytes, value: bytes | None, partition: int, report: Report) -> None:
        since = time.monotonic()
        while True:
            try:
                self.producer.produce(self.topic.topic, value, key, partition, on_delivery=report)
            except BufferError:
                self.producer.poll(0.1)
                if time.monotonic() - since > STALL:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the queue stayed full")) from None
            else:
                self.producer.poll(0)
                return
