"""A ward whose states are published to topics of a real broker."""

import json
import random
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition

from tests.publications.published_ward import NAME, PublishedWard, place_of, rows_by
from tidemark.answers.publication_facts import PublishedFacts
from tidemark.errors import FencedError
from tidemark.kafka.compacted_topic import CompactedTopic


class TopicWard(PublishedWard):
    """A ward that publishes to topics of its own."""

    kind = "topic"
    fences = (FencedError,)

    def __init__(self, folder: Path, chance: random.Random, broker: str) -> None:
        self.prefix, self.broker = uuid4().hex[:8], broker
        super().__init__(folder, chance, broker)

    def target(self, uid: str) -> str:
        """The declaration of an operator's target."""
        return f'KafkaUpsert("{self.topic(uid)}")'

    def topic(self, uid: str) -> str:
        """The topic of an operator."""
        return f"{self.prefix}.{uid}"

    def progress(self, uid: str) -> Any:
        """The progress of an operator's publication."""
        made = CompactedTopic(bootstrap=self.broker, topic=self.topic(uid), application=f"tidemark/{NAME}/{uid}-topic")
        return made.progress()

    def rows(self, uid: str) -> dict[str, Any]:
        """What a consumer of committed records has, by partition, when it has read the topic from its start."""
        settings = {"bootstrap.servers": self.broker, "group.id": uuid4().hex, "isolation.level": "read_committed"}
        consumer, found = Consumer(settings | {"enable.partition.eof": True}), dict[Any, Any]()
        try:
            left = set(consumer.list_topics(self.topic(uid)).topics[self.topic(uid)].partitions)
            consumer.assign([TopicPartition(self.topic(uid), n, 0) for n in left])
            while left:
                message = consumer.poll(10)
                assert message is not None
                if message.error() is not None:
                    left.discard(message.partition())
                    continue
                key, value = (message.partition(), place_of(json.loads(message.key() or b""))), message.value()
                found.pop(key, None)
                if value is not None:
                    found[key] = json.loads(value)
        finally:
            consumer.close()
        assert len({key for _, key in found}) == len(found), "a key has values in two partitions"
        return {key: value for (_, key), value in found.items()}

    def note(self, uid: str, step: PublishedFacts) -> None:
        """A topic has no versions; `compare` looks at the newest state."""

    def told(self, uid: str) -> tuple[int, int]:
        """The newest step that the target has by its own account, and the checkpoint of that step."""
        found = self.progress(uid)
        return found.step, found.checkpoint

    def keys(self, uid: str) -> set[str]:
        """The sensors of the state that the target has."""
        return set(self.rows(uid))

    def compare(self, uid: str) -> None:
        """The topic has the state of the checkpoint in its progress."""
        expected = rows_by(self.expected(self.told(uid)[1], uid))
        assert self.rows(uid) == json.loads(json.dumps(expected, default=datetime.isoformat))
