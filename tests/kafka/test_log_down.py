"""A broker that does not answer: a clear error in time, and nothing on stderr."""

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.kafka_broker import running_broker
from tidemark.declare.pipeline import TopicPattern
from tidemark.errors import BrokerError, UsageError
from tidemark.kafka.log import KafkaLog
from tidemark.model.core.offsets import TopicPartition

pytestmark = pytest.mark.kafka
HERE = TopicPartition("t", 0)
QUESTIONS: dict[str, Callable[[KafkaLog], object]] = {
    "named": lambda log: log.partitions("t", "read_committed"),
    "pattern": lambda log: log.partitions(TopicPattern("t.*"), "read_committed"),
    "ids": lambda log: log.topic_ids(["t"]),
    "times": lambda log: log.offsets_at({HERE: 1}),
    "group": lambda log: log.group_offsets("g", [HERE]),
    "report": lambda log: log.report_group_offsets("g", {HERE: 1}),
}


@pytest.fixture
def silent() -> Iterator[str]:
    """An address where connections are taken and never answered."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def refused() -> str:
    """An address where nobody listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("question", QUESTIONS)
def test_nobody_listening_is_an_error_in_time(question: str, refused: str, capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with pytest.raises(BrokerError) as raised:
        QUESTIONS[question](KafkaLog(refused, timeout=1.5))
    assert time.monotonic() - began < 4
    what, safe, following = str(raised.value).splitlines()
    assert refused in what
    assert safe == "Safe: nothing was written."
    assert "TIDEMARK_KAFKA_BOOTSTRAP" in following
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("question", ["named", "pattern"])
def test_a_broker_that_never_answers_is_an_error_in_time(question: str, silent: str) -> None:
    began = time.monotonic()
    with pytest.raises(BrokerError):
        QUESTIONS[question](KafkaLog(silent, timeout=1.5))
    assert time.monotonic() - began < 4


@pytest.mark.slow
def test_by_default_the_error_comes_within_fifteen_seconds(refused: str) -> None:
    began = time.monotonic()
    with pytest.raises(BrokerError):
        KafkaLog(refused).partitions("t", "read_committed")
    assert time.monotonic() - began < 15


@pytest.mark.slow
def test_a_broker_that_dies_and_returns_is_found_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running_broker(tmp_path_factory.mktemp("dying")) as process:
        log = KafkaLog(process.address, timeout=3)
        assert log.topic_ids(["t"]) == {}
        process.kill()
        with pytest.raises(BrokerError):
            log.topic_ids(["t"])
        process.start()
        assert KafkaLog(process.address).topic_ids(["t"]) == {}


def test_an_unknown_setting_is_refused_without_its_value() -> None:
    with pytest.raises(UsageError) as raised:
        KafkaLog("localhost:1", options={"sasl.pasword": "hunter2"}).topic_ids(["t"])
    assert "sasl.pasword" in str(raised.value)
    assert "hunter2" not in str(raised.value)
