"""Sends emitted records to Kafka with idempotent producers: every record is acknowledged, or there is an error."""

import time
import zlib
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import chain

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Report

from tidemark.errors import BrokerError
from tidemark.kafka.connection import LOGGER, fitting_settings
from tidemark.model.checkpoint.messages import Message, record_refused

STALL = 30.0
"""Seconds without a further acknowledged record after which sending is abandoned."""
MISSING = 10.0
"""Seconds that a topic may be missing: another broker may not know it yet."""
LARGEST = 100_000_000
"""Up to this size of a record the topic decides whether it is too large; brokers refuse larger requests unread."""
ID_HEADER = "tidemark-id"
"""The header by which consumers recognize a record that was sent twice."""
_LOGGER = LOGGER.getChild("outbox")
# The guarantee against gaps: every producer that has it logs these, and again whenever a batch is sent once more.
_LOGGER.addFilter(lambda said: not any(word in said.getMessage() for word in ("CONFWARN", "Gap-less")))
_ONE_BY_ONE = {"batch.num.messages": 1}
_REFUSALS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
    }
)
"""Errors of a broker or the client that concern a record, not the topic, the user or the network."""
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL})

Numbered = tuple[int, Message]
Unsent = tuple[int, Message, KafkaError]
"""A message that was not acknowledged: its number, the message, and the reason."""


class KafkaOutbox:
    """Sends the rows of outboxes to the topics of one cluster; implements `ports.Sender`.

    Args:
        bootstrap: `host:port`, several separated by commas.
        options: further librdkafka settings (security); never shown in a message.
    """

    _safe = "the checkpoint is complete; its emitted records stay in the outbox."
    _next = "repair the topic or the broker: the next run of the pipeline sends them first."

    def __init__(self, bootstrap: str, options: Mapping[str, str] | None = None) -> None:
        self._bootstrap = bootstrap
        self._options = dict(options or {})
        self._stall = STALL

    def send(self, topic: str, messages: Iterable[Message]) -> int:
        """Sends messages in order and waits until all are acknowledged; returns their number.

        A broker refuses a whole batch because of one record, or because the batch is too large for the topic. So
        refused messages, and all later ones, are sent again in batches of one record.

        Raises:
            RecordRefusedError: Kafka refuses one record; it has acknowledged all records before it.
            BrokerError: not all were acknowledged, or none for half a minute. Some may have arrived.
            UsageError: an option is invalid.
        """
        numbered = iter(enumerate(messages))
        try:
            first = self._produced(topic, numbered, {})
            last = first
            if _refused(first.unsent):
                last = self._produced(topic, chain(_to_resend(first.unsent), numbered), _ONE_BY_ONE)
            self._raise_for(topic, last)
        except KafkaException as error:
            raise self._stopped(topic, error.args[0].str()) from error
        return max(first.taken, last.taken)

    def _raise_for(self, topic: str, done: "_Sending") -> None:
        """Raises if a message was not acknowledged; it names a record once all records before it have arrived."""
        culprits = _refused(done.unsent)
        while culprits:
            number, message, error = culprits[0]
            ahead = [held for held in done.unsent if held[0] < number]
            if not ahead:
                raise record_refused(message, topic, error.str(), self._safe)
            # It belongs to another partition: a producer stops as a whole.
            done = self._produced(topic, _to_resend(ahead), _ONE_BY_ONE)
            culprits = _refused(done.unsent) or ([] if done.has_failed else culprits[:1])
        if done.has_failed:
            raise self._stopped(topic, done.why)

    def _produced(self, topic: str, numbered: Iterable[Numbered], more: Mapping[str, int]) -> "_Sending":
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self._bootstrap,
            "client.id": "tidemark-outbox",
            "enable.idempotence": True,
            # Messages after a refused batch must not arrive before that batch is sent again, so the producer stops.
            "enable.gapless.guarantee": True,
            "acks": "all",
            "linger.ms": 20,
            "delivery.report.only.error": True,
            "message.max.bytes": LARGEST,
            "message.timeout.ms": int(self._stall * 1000),
            "topic.metadata.propagation.max.ms": int(min(MISSING, self._stall) * 1000),
            **more,
            **self._options,
        }
        sending = _Sending(settings, self._stall)
        sending.send(topic, numbered)
        return sending

    def _stopped(self, topic: str, why: str) -> BrokerError:
        return BrokerError(
            f"sending to topic {topic} on Kafka at {self._bootstrap} stopped: {why}", safe=self._safe, next=self._next
        )


class KafkaSender(KafkaOutbox):
    """Sends for an attempt that is not sealed yet."""

    _safe = "every completed checkpoint is intact; this one is not sealed, but some of its records may have arrived."
    _next = "repair the topic or the broker, then run the pipeline again: it sends all of them with the same ids."


class _Sending:
    """One producer, and the messages that it could not send. It stops at the first failure.

    A broker refuses a batch without its predecessor, but only if it knows an earlier batch of this producer in the
    partition. So the producer waits for the first message to each partition before it sends the second one.
    """

    def __init__(self, settings: Mapping[str, str | int | float | bool], stall: float) -> None:
        self.taken = 0
        self._partitions = 0
        self._known: set[int] = set()
        self._awaited: set[int] = set()
        self._stall = stall
        self._unsent: list[Unsent] = []
        self._broken: list[KafkaError] = []
        with fitting_settings():
            self._producer = Producer(
                dict(settings),
                logger=_LOGGER,
                error_cb=lambda error: self._broken.append(error) if error.fatal() else None,
            )

    @property
    def unsent(self) -> list[Unsent]:
        """The messages that were not acknowledged, in order."""
        return sorted(self._unsent, key=lambda held: held[0])

    @property
    def has_failed(self) -> bool:
        """Whether a message was not acknowledged."""
        return bool(self._unsent or self._broken)

    @property
    def why(self) -> str:
        """The first failure, as reported by Kafka."""
        said = [error for *_, error in self.unsent if error.code() not in _PURGED]
        return (said or self._broken or [self._unsent[0][2]])[0].str()

    def send(self, topic: str, numbered: Iterable[Numbered]) -> None:
        """Sends messages in order until the first failure, and waits for their acknowledgement."""
        for number, message in numbered:
            self._partitions = self._partitions or self._count_partitions(topic)
            self._hand_over(topic, number, message)
            self.taken = number + 1
            if self.has_failed:
                break
        self._settle()

    def _hand_over(self, topic: str, number: int, message: Message) -> None:
        partition = 0 if self.has_failed else self._partition_of(number, message)
        since = time.monotonic()
        report = partial(self._reported, number, message.key, message.id, message.sink)
        headers: dict[str, str | bytes | None] = {ID_HEADER: message.id.encode()}
        while not self.has_failed and time.monotonic() - since < self._stall:
            try:
                self._producer.produce(
                    topic, message.value, message.key, partition=partition, on_delivery=report, headers=headers
                )
            except BufferError:
                self._poll(0.1)
            except KafkaException as error:
                self._unsent.append((number, message, error.args[0]))
            else:
                self._poll(0)
                return
        if not any(held[0] == number for held in self._unsent):
            full = KafkaError(KafkaError._TIMED_OUT, "the queue stayed full")
            self._unsent.append((number, message, KafkaError(KafkaError._FATAL) if self.has_failed else full))

    def _count_partitions(self, topic: str) -> int:
        """Returns the number of partitions of a topic; 0 after a failure."""
        since = time.monotonic()
        while not self.has_failed:
            try:
                found = self._producer.list_topics(topic, timeout=self._stall).topics[topic]
            except KafkaException as error:
                self._broken.append(error.args[0])
                break
            if found.error is None and found.partitions:
                return len(found.partitions)
            if time.monotonic() - since > min(MISSING, self._stall):
                self._broken.append(found.error or KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            self._poll(0.2)
        return 0

    def _partition_of(self, number: int, message: Message) -> int:
        """Returns the partition of a message, as librdkafka's own partitioner does; without a key in turn."""
        partition = (zlib.crc32(message.key) if message.key else number) % self._partitions
        if partition in self._awaited:
            self._settle()
            self._known |= self._awaited
            self._awaited.clear()
        elif partition not in self._known:
            self._awaited.add(partition)
        return partition

    def _settle(self) -> None:
        """Waits for messages in flight; after a failure, the others stay here."""
        left, since = len(self._producer), time.monotonic()
        while left and time.monotonic() - since < self._stall:
            if self.has_failed:
                self._producer.purge(in_flight=False)  # repeatedly, because it misses messages that change queues
            self._poll(0.1)
            if len(self._producer) < left:
                left, since = len(self._producer), time.monotonic()
        if left:
            self._broken.append(KafkaError(KafkaError._TIMED_OUT, f"none was acknowledged for {self._stall:g} s"))
            self._producer.purge()
            self._poll(1)

    def _poll(self, seconds: float) -> None:
        try:
            self._producer.poll(seconds)
        except KafkaException as error:
            # The producer is permanently broken; it still has to report the result for each message.
            self._broken.append(error.args[0])

    def _reported(
        self, number: int, key: bytes | None, record: str, sink: str, error: KafkaError | None, report: Report
    ) -> None:
        # Only the client library holds messages in flight, so this rebuilds the refused one.
        if error is not None:
            value = report.value()
            assert value is not None  # noqa: S101  (JSON)
            self._unsent.append((number, Message(key=key, value=value, id=record, sink=sink), error))


def _to_resend(unsent: Iterable[Unsent]) -> list[Numbered]:
    return [(number, message) for number, message, _ in unsent]


def _refused(unsent: Iterable[Unsent]) -> list[Unsent]:
    return [held for held in unsent if held[2].code() in _REFUSALS]
