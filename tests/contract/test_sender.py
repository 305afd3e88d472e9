"""The port `Sender`: the real producer and its twin send in order, or name the record that cannot be sent."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.support.kafka import Topics
from tests.support.sender_drivers import KafkaSenderDriver, MemorySenderDriver, SenderDriver
from tidemark.errors import BrokerError, RecordRefusedError, UsageError
from tidemark.kafka.producer import ID_HEADER, KafkaOutbox, KafkaSender
from tidemark.model.checkpoint.messages import Message


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def driver(request: pytest.FixtureRequest) -> Iterator[SenderDriver]:
    if request.param == "memory":
        yield MemorySenderDriver()
        return
    yield KafkaSenderDriver(request.getfixturevalue("topics"))


def message(number: int, size: int = 20, key: bytes | None = None) -> Message:
    """A record of about so many bytes."""
    value = b'{"n":%d,"pad":"%s"}' % (number, b"x" * size)
    return Message(key=key, value=value, id=f"p/t1/chk-1/u/in-0-{number}-0", sink="out")


def test_messages_arrive_in_order_with_key_value_and_id(driver: SenderDriver) -> None:
    topic, messages = driver.make(), [message(n, key=b"k" if n % 2 else None) for n in range(300)]
    assert driver.sender.send(topic, iter(messages)) == 300
    assert driver.arrived(topic) == [(m.key, m.value, m.id) for m in messages]
    assert driver.sender.send(topic, iter(())) == 0


@pytest.mark.parametrize("place", [0, 7, 199])
def test_a_record_that_is_too_large_is_named_and_all_ahead_of_it_arrive(driver: SenderDriver, place: int) -> None:
    """They fit into one batch, which a broker refuses as a whole."""
    topic = driver.make(largest=20_000)
    messages = [message(n, 30_000 if n == place else 20) for n in range(200)]
    with pytest.raises(RecordRefusedError) as caught:
        driver.sender.send(topic, iter(messages))
    error = caught.value
    assert (error.record, error.size, error.sink) == (messages[place].id, messages[place].size, "out")
    assert error.record in error.what and f"{error.size:,} bytes" in error.what and "xxx" not in str(error)
    assert f"tidemark sink skip p out {error.record}" in error.next
    assert [record for *_, record in driver.arrived(topic)] == [m.id for m in messages[:place]]
    driver.sender.send(topic, iter(messages[place + 1 :]))
    ahead_and_behind = [m.id for m in messages if m.size < 20_000]
    assert [record for *_, record in driver.arrived(topic)] == ahead_and_behind, "once, in order"


def test_the_first_of_several_is_named(driver: SenderDriver) -> None:
    topic = driver.make(largest=20_000)
    messages = [message(n, 30_000 if n in (5, 3, 8) else 20) for n in range(10)]
    with pytest.raises(RecordRefusedError, match="in-0-3-0"):
        driver.sender.send(topic, iter(messages))


def test_all_ahead_arrive_in_whatever_partition(driver: SenderDriver) -> None:
    topic = driver.make(largest=20_000, partitions=4)
    messages = [message(n, 30_000 if n == 60 else 20, key=b"%d" % n) for n in range(120)]
    with pytest.raises(RecordRefusedError, match="in-0-60-0"):
        driver.sender.send(topic, iter(messages))
    arrived = [record for *_, record in driver.arrived(topic)]
    assert {m.id for m in messages[:60]} <= set(arrived)
    assert len(arrived) == len(set(arrived))


def test_1_1_mb_is_too_large_for_a_topic_as_it_is_made_and_fits_once_the_topic_allows_it(driver: SenderDriver) -> None:
    """The topic decides, not the producer's own default of a million bytes."""
    topic = driver.make(largest=1_048_588)
    messages = [message(0), message(1, 1_100_000), message(2)]
    with pytest.raises(RecordRefusedError, match="in-0-1-0"):
        driver.sender.send(topic, iter(messages))
    driver.allow(topic, 2_000_000)
    driver.sender.send(topic, iter(messages[1:]))
    assert [record for *_, record in driver.arrived(topic)] == [m.id for m in messages]


def test_a_batch_that_is_too_large_is_sent_in_smaller_ones(driver: SenderDriver) -> None:
    topic = driver.make(largest=5_000)
    messages = [message(n) for n in range(3_000)]
    assert driver.sender.send(topic, iter(messages)) == 3_000
    assert [record for *_, record in driver.arrived(topic)] == [m.id for m in messages]


def test_a_topic_that_is_gone_is_an_error_of_the_broker(driver: SenderDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.kafka.producer.MISSING", 1.0)
    topic = driver.make()
    driver.delete(topic)
    with pytest.raises(BrokerError, match=f"topic {topic}") as caught:
        driver.sender.send(topic, iter([message(0), message(1)]))
    assert not isinstance(caught.value, RecordRefusedError)


@pytest.mark.kafka
def test_a_compacted_topic_refuses_a_record_without_a_key_and_it_is_named(topics: Topics) -> None:
    topic = topics.make(cleanup_policy="compact")
    messages = [message(n, key=None if n == 5 else b"k") for n in range(10)]
    with pytest.raises(RecordRefusedError, match="in-0-5-0"):
        KafkaOutbox(topics.bootstrap).send(topic, iter(messages))


@pytest.mark.kafka
def test_what_the_client_itself_refuses_is_named_too(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.kafka.producer.LARGEST", 1_000_000)
    driver = KafkaSenderDriver(topics)
    topic = driver.make(largest=2_000_000)
    with pytest.raises(RecordRefusedError, match="in-0-1-0"):
        driver.sender.send(topic, iter([message(0), message(1, 1_100_000), message(2)]))
    assert [record for *_, record in driver.arrived(topic)] == [message(0).id]


@pytest.mark.kafka
def test_records_of_a_key_go_where_other_producers_send_them(topics: Topics) -> None:
    driver = KafkaSenderDriver(topics)
    ours, theirs = driver.make(partitions=5), topics.make(partitions=5)
    keys = [b"%d" % n for n in range(60)]
    driver.sender.send(ours, iter([message(n, key=key) for n, key in enumerate(keys)]))
    driver.watch(theirs, partitions=5)
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    for key in keys:
        producer.produce(theirs, b"{}", key, headers={ID_HEADER: b""})
    assert producer.flush(30) == 0
    assert [key for key, *_ in driver.arrived(ours)] == [key for key, *_ in driver.arrived(theirs)]


@pytest.mark.parametrize("options", [{"nonsense": "1"}, {"linger.ms": "soon"}, {"acks": "1"}])
def test_an_option_that_does_not_fit_is_named(options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="invalid Kafka settings"):
        KafkaSender("127.0.0.1:1", options).send("out", iter([message(0)]))


def test_a_broker_that_is_away_is_an_error_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.kafka.producer.STALL", 1.0)
    with pytest.raises(BrokerError, match="sending to topic out"):
        KafkaOutbox("127.0.0.1:1").send("out", iter([message(0), message(1, 1_100_000)]))
