"""Requests to Kafka that the log and the loader share: one deadline, one place that translates errors.

The annotations of confluent-kafka stop before `OffsetSpec`; the Protocols below are the parts that Tidemark uses.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Protocol, TypeVar

import confluent_kafka.admin
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition

from tidemark.declare.pipeline import TopicPattern
from tidemark.errors import BrokerError, NotFoundError, TidemarkError
from tidemark.kafka.connection import Client
from tidemark.model.core.offsets import TopicPartition

Answer = TypeVar("Answer")

TIMEOUT = 10.0
GRACE = 1.0
"""How much longer to wait for a future than librdkafka does: it answers by itself, with a better reason."""

ISOLATION = {
    "read_committed": IsolationLevel.READ_COMMITTED,
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
}
_NO_TOPIC = KafkaError.UNKNOWN_TOPIC_OR_PART
_MOVING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
_PAUSE = 0.1


class MovingError(BrokerError):
    """A leader or coordinator is being elected, for example after a topic was created: the request can be retried."""


class Spec(Protocol):
    """The offset to list; opaque."""


class Specs(Protocol):
    """The named constructors of confluent-kafka's `OffsetSpec`."""

    def earliest(self) -> Spec:
        """The first offset that can be read."""

    def latest(self) -> Spec:
        """The end: under read_committed the last stable offset."""

    def for_timestamp(self, timestamp: int) -> Spec:
        """The first offset whose record is not older, in milliseconds."""


class PartitionDescription(Protocol):
    """One partition of a described topic."""

    id: int


class TopicDescription(Protocol):
    """A described topic."""

    topic_id: object
    is_internal: bool
    partitions: Sequence[PartitionDescription]


class ResourceKind(Protocol):
    """Kinds of resources with settings."""

    TOPIC: object


class Resources(Protocol):
    """confluent-kafka's `ConfigResource`."""

    Type: ResourceKind

    def __call__(self, kind: object, name: str) -> Any:  # noqa: ANN401
        """One resource."""


OFFSETS: Specs = vars(confluent_kafka.admin)["OffsetSpec"]
RESOURCES: Resources = vars(confluent_kafka.admin)["ConfigResource"]


class Question:
    """One question to the broker: several requests with one deadline, and translated errors.

    Args:
        admin: a connected client.
        bootstrap: for messages.
        purpose: the purpose, for messages: "read the topic ids".
        timeout: seconds for all requests together.
    """

    def __init__(self, admin: Client, bootstrap: str, purpose: str, timeout: float) -> None:
        admin.forget()
        self.admin = admin
        self.bootstrap = bootstrap
        self.purpose = purpose
        self.timeout = timeout
        self._deadline = time.monotonic() + timeout

    def remaining_seconds(self) -> float:
        """Remaining seconds, at least a short time: librdkafka refuses a timeout of zero."""
        return max(0.1, self._deadline - time.monotonic())

    def answer(self, future: "Future[Any]", missing: int | None = None) -> Any:  # noqa: ANN401
        """Returns the result of a future.

        Args:
            future: the future of an admin request.
            missing: error code that means "there is none"; the result is then None.

        Raises:
            NotFoundError: the topic or partition does not exist.
            BrokerError: any other error.
        """
        try:
            return future.result(self.remaining_seconds() + GRACE)
        except KafkaException as error:
            if missing is not None and error.args[0].code() == missing:
                return None
            raise self.failure(error.args[0]) from error
        except FutureTimeoutError as error:
            raise self._broker_error(f"no answer within {self.timeout:g} s") from error

    def failure(self, error: KafkaError) -> TidemarkError:
        """Translates an error of Kafka."""
        if error.code() == _NO_TOPIC:
            return not_found("topic or partition", [f"({error.str()})"], self.bootstrap)
        kind = MovingError if error.code() in _MOVING else BrokerError
        return self._broker_error(error.str(), kind)

    def patiently(self, request: Callable[[], Answer]) -> Answer:
        """Repeats requests while leaders or coordinators move, until the deadline."""
        while True:
            try:
                return request()
            except MovingError:
                if self._is_over():
                    raise
                time.sleep(_PAUSE)

    def pause(self, pending: str) -> None:
        """Waits a moment before a request is repeated.

        Raises:
            BrokerError: the deadline has passed and this is still pending.
        """
        if self._is_over():
            raise self._broker_error(pending)
        time.sleep(_PAUSE)

    def _is_over(self) -> bool:
        return time.monotonic() + _PAUSE > self._deadline

    def describe(self, topics: Iterable[str], *, internal: bool = True) -> dict[str, TopicDescription]:
        """Returns descriptions of the existing topics, by name; `internal=False` leaves out Kafka's own."""
        names = sorted(set(topics))
        if not names:
            return {}
        futures = self.admin.describe_topics(TopicCollection(names), request_timeout=self.remaining_seconds())
        found = {name: self.answer(future, missing=_NO_TOPIC) for name, future in futures.items()}
        return {n: d for n, d in found.items() if d is not None and (internal or not d.is_internal)}

    def match_topics(self, pattern: TopicPattern) -> list[str]:
        """Returns the names of all topics whose whole name matches a pattern."""
        expression = re.compile(pattern.regex)
        try:
            there = self.admin.list_topics(timeout=self.remaining_seconds()).topics
        except KafkaException as error:
            raise self.failure(error.args[0]) from error
        return sorted(name for name in there if expression.fullmatch(name))

    def offsets(self, wanted: Mapping[TopicPartition, Spec], isolation: str) -> dict[TopicPartition, int]:
        """Returns one offset per partition; -1 if there is none."""
        if not wanted:
            return {}
        named: dict[KafkaPartition, Any] = {KafkaPartition(tp.topic, tp.partition): s for tp, s in wanted.items()}
        level = ISOLATION[isolation]

        def list_them() -> dict[TopicPartition, int]:
            futures = self.admin.list_offsets(named, isolation_level=level, request_timeout=self.remaining_seconds())
            return {TopicPartition(p.topic, p.partition): self.answer(f).offset for p, f in futures.items()}

        return self.patiently(list_them)

    def committed_offsets(self, consumer: Consumer, partitions: list[KafkaPartition]) -> list[KafkaPartition]:
        """Returns a group's committed offsets: for each partition an offset (negative: none) or an error."""
        try:
            return consumer.committed(partitions, timeout=self.remaining_seconds())
        except KafkaException as error:
            raise self.failure(error.args[0]) from error

    def _broker_error(self, reason: str, kind: type[BrokerError] = BrokerError) -> BrokerError:
        refusal = self.admin.refusal()
        if refusal is not None:
            return BrokerError(
                f"Kafka at {self.bootstrap} did not {self.purpose}: {refusal}",
                next="correct TIDEMARK_KAFKA_SECURITY_PROTOCOL, TIDEMARK_KAFKA_SASL_* or TIDEMARK_KAFKA_SSL_CA, "
                "then repeat the command.",
            )
        return kind(
            f"Kafka at {self.bootstrap} did not {self.purpose}: {reason}",
            next="check that the broker runs (tidemark status) and that the address is right "
            "(TIDEMARK_KAFKA_BOOTSTRAP), then repeat the command.",
        )


def not_found(kind: str, names: Sequence[str], bootstrap: str) -> NotFoundError:
    """Returns the error for a missing topic or partition."""
    return NotFoundError(
        f"no {kind} {', '.join(names)} on Kafka at {bootstrap}",
        next="create it, or correct the topics of the pipeline's KafkaSource.",
    )
