"""The log for the planner, on a real Kafka: bounds, topic ids, timestamps and group offsets.

It is not a consumer: it requests metadata only, reads no record and leaves no group behind. The requests of a public
method share one deadline, so a broker that is down causes an error within that time, never a hang.
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
    """The port `Log` over confluent-kafka's AdminClient. It connects at the first request, in the calling process.

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
        """Returns every partition of the subscription, with its bounds; none for a pattern without matches.

        Args:
            topics: a value of `KafkaSource.topics`.
            isolation: `read_committed` (ends are last stable offsets) or `read_uncommitted` (high watermarks).

        Raises:
            NotFoundError: a named topic or partition does not exist.
            BrokerError: Kafka did not answer.
            UsageError: a pattern is not a regular expression, or the isolation level is unknown.
        """
        if isolation not in ISOLATION:
            raise UsageError(f"unknown isolation level {isolation!r}", next=f"use one of {', '.join(ISOLATION)}.")
        ask = self._question("read the ends of the log")
        wanted = self._subscribed(topics, ask)
        earliest = ask.offsets(dict.fromkeys(wanted, OFFSETS.earliest()), isolation)
        ends = ask.offsets(dict.fromkeys(wanted, OFFSETS.latest()), isolation)
        return {tp: PartitionLog(earliest=earliest[tp], end=ends[tp]) for tp in wanted}

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        """Returns Kafka's topic id per topic; a topic that does not exist is left out.

        Raises:
            BrokerError: Kafka did not answer.
        """
        described = self._question("read the topic ids").describe(topics)
        return {name: str(found.topic_id) for name, found in described.items()}

    def offsets_at(self, when_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """Returns the first offset with a timestamp >= the given time, per partition; None = there is none.

        It may be at or beyond the last stable offset: the caller caps it at the end of the partition.

        Raises:
            NotFoundError: a partition does not exist.
            BrokerError: Kafka did not answer.
        """
        # Negative timestamps are protocol codes (-1 latest, -2 earliest); no record is older than 0.
        wanted = {tp: OFFSETS.for_timestamp(max(0, ms)) for tp, ms in when_ms.items()}
        found = self._question("look up offsets by time").offsets(wanted, "read_uncommitted")
        return {tp: offset if offset >= 0 else None for tp, offset in found.items()}

    def group_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Returns the committed offsets of a consumer group, if there are any.

        Raises:
            BrokerError: Kafka did not answer.
        """
        asked = [KafkaPartition(tp.topic, tp.partition) for tp in sorted(partitions)]
        if not asked:
            return {}
        ask = self._question(f"read the offsets of group {group}")
        # Not through the AdminClient: it has no group, and librdkafka dereferences the group when the coordinator
        # moves, as on a fresh broker. A consumer that never subscribes joins no group and leaves none behind.
        with group_reader(self._bootstrap, group, self._options) as consumer:
            found = ask.patiently(lambda: ask.committed_offsets(consumer, asked))
        # A partition or topic that no longer exists has an error here and no offset, so it has no committed offset
        # either.
        return {TopicPartition(p.topic, p.partition): p.offset for p in found if p.error is None and p.offset >= 0}

    def report_group_offsets(self, group: str, ends: Mapping[TopicPartition, int]) -> None:
        """Sets the group's offsets, for lag monitoring; the manifest decides, never the group.

        Raises:
            BrokerError: Kafka did not answer, or refused (the group has active members). The next report repairs this.
        """
        if not ends:
            return
        ask = self._question(f"set the offsets of group {group}")
        wanted = [KafkaPartition(tp.topic, tp.partition, end) for tp, end in sorted(ends.items())]
        groups = [ConsumerGroupTopicPartitions(group, wanted)]

        def report() -> None:
            answers = ask.admin.alter_consumer_group_offsets(groups, request_timeout=ask.remaining_seconds())
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
            return _all_partitions(ask.describe(ask.match_topics(topics), internal=False))
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
