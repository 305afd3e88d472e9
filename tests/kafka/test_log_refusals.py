"""Questions that KafkaLog refuses before it asks anybody; a declared pipeline cannot put them."""

import pytest

from tidemark.errors import UsageError
from tidemark.kafka.log import KafkaLog


@pytest.fixture
def log() -> KafkaLog:
    """A log whose broker does not exist."""
    return KafkaLog("127.0.0.1:1", timeout=1)


def test_an_unknown_isolation_level_is_refused(log: KafkaLog) -> None:
    with pytest.raises(UsageError, match="serializable"):
        log.partitions("t", "serializable")


def test_what_is_no_subscription_is_refused(log: KafkaLog) -> None:
    with pytest.raises(UsageError, match="not a subscription: 7"):
        log.partitions(7, "read_committed")
