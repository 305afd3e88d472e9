"""The test broker itself: what every other Kafka test stands on."""

import pytest

from tests.kafka.topics import Sent, Topics

pytestmark = pytest.mark.kafka


def test_a_record_sent_is_counted_by_the_broker(topics: Topics, topic: str) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    topics.produce(topic, [b"one", Sent(b"two", key=b"k", timestamp_ms=1_356_998_400_000)])
    where = TopicPartition(topic, 0)
    assert topics.admin.list_offsets({where: OffsetSpec.latest()})[where].result(30).offset == 2
