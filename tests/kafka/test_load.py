"""Loading a topic exactly once: fresh, again, after a crash, and onto something that is not ours."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from devstack.demo.topic_loader import LoadOutcome, TopicLoader, partition_of
from tests.support.kafka import Sent, Topics
from tidemark.errors import BrokerError, ConflictError

pytestmark = pytest.mark.kafka
ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 3


@dataclass(frozen=True)
class Row:
    """One record to load."""

    row: int
    key: bytes | None
    value: bytes
    timestamp_ms: int


def rows(count: int) -> list[Row]:
    """Records with seven keys, every fifth without one."""
    return [
        Row(n, None if n % 5 == 0 else b"k%d" % (n % 7), b'{"n":%d}' % n, 1_356_998_400_000 + n) for n in range(count)
    ]


@pytest.fixture
def loader(topics: Topics) -> TopicLoader:
    """Loads a topic that does not exist yet."""
    return TopicLoader(topics.bootstrap, f"load-{time.monotonic_ns()}", partitions=PARTITIONS)


def send_prefix(topics: Topics, loader: TopicLoader, records: list[Row]) -> None:
    """What a loader that died leaves behind."""
    topics.make(loader.topic, partitions=PARTITIONS)
    topics.produce(
        loader.topic,
        [Sent(r.value, r.key, partition_of(r, PARTITIONS), r.timestamp_ms) for r in records],
    )


def contents(topics: Topics, topic: str) -> dict[int, list[tuple[bytes | None, bytes, int, int]]]:
    """(key, value, timestamp type, timestamp) by partition, in order."""
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": "t", "enable.partition.eof": True})
    found: dict[int, list[tuple[bytes | None, bytes, int, int]]] = {p: [] for p in range(PARTITIONS)}
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            ended += 1
        else:
            partition, value = message.partition(), message.value()
            assert partition is not None and value is not None
            found[partition].append((message.key(), value, *message.timestamp()))
    consumer.close()
    return found


def expected(records: list[Row]) -> dict[int, list[tuple[bytes | None, bytes, int, int]]]:
    """What the topic must hold: CreateTime is timestamp type 1."""
    by_partition: dict[int, list[tuple[bytes | None, bytes, int, int]]] = {p: [] for p in range(PARTITIONS)}
    for r in records:
        by_partition[partition_of(r, PARTITIONS)].append((r.key, r.value, 1, r.timestamp_ms))
    return by_partition


def test_a_fresh_topic_holds_every_record_in_order(topics: Topics, loader: TopicLoader) -> None:
    records, seen = rows(1000), []
    done = loader.load(records, lambda now, total: seen.append((now, total)))
    assert (done.outcome, done.records, done.sent) == (LoadOutcome.LOADED, 1000, 1000)
    assert contents(topics, loader.topic) == expected(records)
    assert seen[-1] == (1000, 1000)


def test_a_second_load_sends_nothing(topics: Topics, loader: TopicLoader) -> None:
    loader.load(rows(100))
    done = loader.load(rows(100))
    assert (done.outcome, done.records, done.sent) == (LoadOutcome.ALREADY_THERE, 100, 0)
    assert contents(topics, loader.topic) == expected(rows(100))


@pytest.mark.parametrize("there", [0, 1, 57, 99])
def test_a_load_that_died_is_completed(topics: Topics, loader: TopicLoader, there: int) -> None:
    records = rows(100)
    send_prefix(topics, loader, records[:there])
    done = loader.load(records)
    assert done.outcome is (LoadOutcome.COMPLETED if there else LoadOutcome.LOADED)
    assert done.sent == 100 - there
    assert contents(topics, loader.topic) == expected(records)


def test_partitions_may_have_died_at_different_places(topics: Topics, loader: TopicLoader) -> None:
    records = rows(100)
    send_prefix(topics, loader, [r for r in records[:80] if partition_of(r, PARTITIONS) == 1 or r.row < 20])
    loader.load(records)
    assert contents(topics, loader.topic) == expected(records)


def test_a_topic_with_another_record_is_refused_and_left_alone(topics: Topics, loader: TopicLoader) -> None:
    send_prefix(topics, loader, rows(10))
    topics.produce(loader.topic, [Sent(b"foreign", partition=2)])
    before = contents(topics, loader.topic)
    with pytest.raises(ConflictError, match="holds another record at offset") as raised:
        loader.load(rows(100))
    assert f"tidemark topic load {loader.topic} --replace --execute" in str(raised.value)
    assert contents(topics, loader.topic) == before


def test_a_topic_with_more_records_is_refused(topics: Topics, loader: TopicLoader) -> None:
    loader.load(rows(100))
    topics.produce(loader.topic, [Sent(b"one more")])
    with pytest.raises(ConflictError, match="more than the"):
        loader.load(rows(100))


def test_a_trimmed_topic_is_refused(topics: Topics, loader: TopicLoader) -> None:
    loader.load(rows(100))
    topics.trim(loader.topic, 5)
    with pytest.raises(ConflictError, match=r"has lost the offsets \[0, 5\) of partition 0"):
        loader.load(rows(100))


def test_another_number_of_partitions_is_refused(topics: Topics, loader: TopicLoader) -> None:
    topics.make(loader.topic, partitions=PARTITIONS + 1)
    with pytest.raises(ConflictError, match="has 4 partitions, not 3"):
        loader.load(rows(10))


def test_a_topic_that_would_lose_old_records_is_refused(topics: Topics, loader: TopicLoader) -> None:
    topics.make(loader.topic, partitions=PARTITIONS, retention_ms="604800000")
    with pytest.raises(ConflictError, match="has retention.ms=604800000, not -1"):
        loader.load(rows(10))


def test_replacing_starts_over(topics: Topics, loader: TopicLoader) -> None:
    topics.make(loader.topic, partitions=1)
    topics.produce(loader.topic, [b"foreign"])
    loader.replace()
    loader.load(rows(50))
    assert contents(topics, loader.topic) == expected(rows(50))


def test_without_a_broker_the_error_says_what_to_do() -> None:
    with pytest.raises(BrokerError, match="did not create the topic flights"):
        TopicLoader("127.0.0.1:1", "flights", timeout=1).load(rows(10))


CHILD = """
import itertools, sys, time
from tests.kafka.test_load import rows, PARTITIONS
from devstack.demo.topic_loader import TopicLoader
told = itertools.count(1)
def held(done, total):
    time.sleep(0.05)
    if next(told) == 8:
        sys.stdin.read()
TopicLoader(sys.argv[1], sys.argv[2], partitions=PARTITIONS).load(rows(60_000), held)
"""
"""Hands over 40,000 records in steps of 5,000, and no more while its parent lives: however slow the broker is."""


def test_a_loader_killed_in_the_middle_is_completed(topics: Topics, loader: TopicLoader) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'include'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", CHILD, topics.bootstrap, loader.topic]
    loader.prepare()
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, cwd=ROOT) as child:
        deadline = time.monotonic() + 60
        while topics.taken(loader.topic, PARTITIONS) < 10_000:
            assert child.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    done = loader.load(rows(60_000))
    assert done.outcome is LoadOutcome.COMPLETED
    assert 20_000 <= done.sent <= 50_000
    assert contents(topics, loader.topic) == expected(rows(60_000))
