"""The test broker itself: what every other Kafka test stands on."""

import pytest

from tests.support.kafka import Sent, Topics

pytestmark = pytest.mark.kafka


def test_a_record_sent_is_counted_by_the_broker(topics: Topics, topic: str) -> None:
    topics.produce(topic, [b"one", Sent(b"two", key=b"k", timestamp_ms=1_356_998_400_000)])
    assert topics.taken(topic) == 2
