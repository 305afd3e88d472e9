"""The log as the planner sees it, on a real Kafka: bounds, topic ids, timestamps and group offsets.

Not a consumer: it asks for metadata only, reads no record and leaves no group behind. Every public method shares one
deadline among its requests, so that a broker that is down is an error within that time, never a hang.
"""

from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as KafkaPartition

from tidemark.declare.pipeline import TopicPattern
from tidemark.errors import UsageError
from tidemark.kafka.client import (
    ISOLATION,
    OFFSETS,
    TIMEOUT,
    Question,
    TopicDescription,
    not_found,
)
from tidemark.kafka.connection import Client, connect, group_reader
from tidemark.model.core.offsets import TopicPartition
from tidemark.ports import PartitionLog


class KafkaLog:
    """The port `Log` over confluent-kafka's AdminClient. Connects at the first question, in the process that asks.

    Args:
        bootstrap: `host:port`, several separated by commas.
        timeout: seconds within which each method answers or raises.
        options: further librdkafka settings (security, `client.rack`); never shown in a message.
    """

    def __init__(self, bootstrap: str, *, timeout: float = TIMEOUT, options: Mapping[str, str] | None = None) -> None:
        self._bootstrap = bootstrap
        self._timeout = timeout
        self._options = dict(options or {})
        self._connected: Client | None = None

    def partitions(self, topics: object, isolation: str) -> Mapping[TopicPartition, PartitionLog]:
        """Every partition of the subscription, with its bounds; a pattern that matches nothing has none.

        Args:
            topics: a value of `KafkaSource.topics`.
            isolation: `read_committed` (ends are last stable offsets) or `read_uncommitted` (high watermarks).

        Raises:
            NotFoundError: a named topic or partition does not exist.
            BrokerError: no answer.
            UsageError: a pattern that is no regular expression, or an unknown isolation level.
        """
        if isolation not in ISOLATION:
            raise UsageError(f"no isolation level {isolation!r}", next=f"use one of {', '.join(ISOLATION)}.")
        ask = self._question("read the ends of the log")
        wanted = self._subscribed(topics, ask)
        earliest = ask.offsets(dict.fromkeys(wanted, OFFSETS.earliest()), isolation)
        ends = ask.offsets(dict.fromkeys(wanted, OFFSETS.latest()), isolation)
        return {tp: PartitionLog(earliest=earliest[tp], end=ends[tp]) for tp in wanted}

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        """Kafka's topic id per topic; a topic that does not exist is left out.

        Raises:
            BrokerError: no answer.
        """
        described = self._question("read the topic ids").describe(topics)
        return {name: str(found.topic_id) for name, found in described.items()}

    def offsets_at(self, when_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """First offset whose record's timestamp is >= the given time, per partition; None = no such record.

        It may lie at or beyond the last stable offset: the caller caps it by the partition's end.

        Raises:
            NotFoundError: a partition does not exist.
            BrokerError: no answer.
        """
        # Negative timestamps are codes of the protocol (-1 latest, -2 earliest); no record is older than 0.
        wanted = {tp: OFFSETS.for_timestamp(max(0, ms)) for tp, ms in when_ms.items()}
        found = self._question("look up offsets by time").offsets(wanted, "read_uncommitted")
        return {tp: offset if offset >= 0 else None for tp, offset in found.items()}

    def group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Committed offsets of a consumer group, where there are any.

        Raises:
            BrokerError: no answer.
        """
        asked = [KafkaPartition(tp.topic, tp.partition) for tp in sorted(partitions)]
        if not asked:
            return {}
        ask = self._question(f"read the offsets of group {group}")
        # Not through the AdminClient: it has no group, and librdkafka dereferences that one when the coordinator moves,
        # as it does on a fresh broker. A consumer that never subscribes joins nothing and leaves nothing behind.
        with group_reader(self._bootstrap, group, self._options) as consumer:
            found = ask.patiently(lambda: ask.committed(consumer, asked))
        # A partition or topic that is gone has an error here and no offset: no committed offset either.
        return {TopicPartition(p.topic, p.partition): p.offset for p in found if p.error is None and p.offset >= 0}

    def report_group_offsets(self, group: str, ends: Mapping[TopicPartition, int]) -> None:
        """Sets the group's offsets, for lag monitoring (J10); the manifest decides, never the group.

        Raises:
            BrokerError: no answer, or refused (the group has active members). Harmless: the next one repairs it.
        """
        if not ends:
            return
        ask = self._question(f"set the offsets of group {group}")
        wanted = [KafkaPartition(tp.topic, tp.partition, end) for tp, end in sorted(ends.items())]
        groups = [ConsumerGroupTopicPartitions(group, wanted)]

        def report() -> None:
            answers = ask.admin.alter_consumer_group_offsets(groups, request_timeout=ask.left())
            for each in ask.answer(answers[group]).topic_partitions:
                if each.error is not None:
                    raise ask.failure(each.error)

        ask.patiently(report)

    def _question(self, purpose: str) -> Question:
        if self._connected is None:
            self._connected = connect(self._bootstrap, self._options)
        return Question(self._connected, self._bootstrap, purpose, self._timeout)

    def _subscribed(self, topics: object, ask: Question) -> list[TopicPartition]:
        if isinstance(topics, TopicPattern):
            return _all_partitions(ask.describe(ask.matching(topics), internal=False))
        if isinstance(topics, frozenset):
            wanted = sorted(topics)
            there = _all_partitions(self._named(sorted({tp.topic for tp in wanted}), ask))
            absent = [str(tp) for tp in wanted if tp not in there]
            if absent:
                raise not_found("partition", absent, self._bootstrap)
            return wanted
        names = [topics] if isinstance(topics, str) else topics
        if not isinstance(names, Sequence):
            raise UsageError(f"not a subscription: {topics!r}", next="give topics, a pattern or partitions.")
        return _all_partitions(self._named(names, ask))

    def _named(self, names: Iterable[str], ask: Question) -> dict[str, TopicDescription]:
        names = list(names)
        described = ask.describe(names)
        absent = sorted(set(names) - set(described))
        if absent:
            raise not_found("topic", absent, self._bootstrap)
        return described


def _all_partitions(described: Mapping[str, TopicDescription]) -> list[TopicPartition]:
    return [TopicPartition(name, p.id) for name in sorted(described) for p in described[name].partitions]
