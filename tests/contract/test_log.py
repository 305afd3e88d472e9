"""The port `Log`: what the planner may rely on, on a real broker and in the in-memory twin."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.log_drivers import KafkaLogDriver, LogDriver, MemoryLogDriver
from tidemark.declare.pipeline import TopicPattern
from tidemark.errors import NotFoundError
from tidemark.model.core.offsets import TopicPartition
from tidemark.ports import PartitionLog

COMMITTED = "read_committed"
UNCOMMITTED = "read_uncommitted"


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def driver(request: pytest.FixtureRequest) -> LogDriver:
    """Each implementation in turn; its services start only when it is asked for."""
    if request.param == "memory":
        return MemoryLogDriver()
    return KafkaLogDriver(request.getfixturevalue("topics"))


def bounds(driver: LogDriver, topic: str, isolation: str = COMMITTED) -> dict[int, tuple[int, int]]:
    """(earliest, end) by partition number."""
    found = driver.log.partitions(topic, isolation)
    return {tp.partition: (log.earliest, log.end) for tp, log in found.items()}


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether something becomes true within ten seconds: group coordinators and metadata lag behind."""
    deadline = time.monotonic() + 10
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.1)
    return holds()


@contextmanager
def open_transaction(driver: LogDriver, topic: str, records: int) -> Iterator[None]:
    """A transaction that stays open for the length of a block."""
    end = driver.transact(topic, records, end="open")
    try:
        yield
    finally:
        end()


def test_every_partition_is_listed_also_where_it_is_empty(driver: LogDriver) -> None:
    topic = driver.make(partitions=3)
    driver.send(topic, [1000, 1001], partition=1)
    assert bounds(driver, topic) == {0: (0, 0), 1: (0, 2), 2: (0, 0)}


def test_several_topics_are_read_as_one_subscription(driver: LogDriver) -> None:
    one, two = driver.make(), driver.make(partitions=2)
    driver.send(two, [1000], partition=1)
    assert driver.log.partitions((one, two), COMMITTED) == {
        TopicPartition(one, 0): PartitionLog(earliest=0, end=0),
        TopicPartition(two, 0): PartitionLog(earliest=0, end=0),
        TopicPartition(two, 1): PartitionLog(earliest=0, end=1),
    }


def test_an_explicit_set_of_partitions_is_exactly_that_set(driver: LogDriver) -> None:
    topic = driver.make(partitions=3)
    wanted = frozenset({TopicPartition(topic, 0), TopicPartition(topic, 2)})
    assert set(driver.log.partitions(wanted, COMMITTED)) == wanted


def test_a_pattern_matches_whole_names(driver: LogDriver) -> None:
    topic = driver.make(partitions=2)
    assert set(bounds_of(driver, TopicPattern(topic[:-1] + "."))) == {topic}
    assert bounds_of(driver, TopicPattern(topic[:-1])) == []


def bounds_of(driver: LogDriver, pattern: TopicPattern) -> list[str]:
    """Topics of a pattern, sorted."""
    return sorted({tp.topic for tp in driver.log.partitions(pattern, COMMITTED)})


def test_a_pattern_leaves_out_the_topics_that_kafka_keeps_for_itself(driver: LogDriver) -> None:
    topic = driver.make()
    driver.send(topic, [1000])
    driver.transact(topic, 1, end="commit")
    assert [name for name in bounds_of(driver, TopicPattern(".*")) if name.startswith("__")] == []


def test_a_missing_named_topic_is_named(driver: LogDriver) -> None:
    there = driver.make()
    with pytest.raises(NotFoundError, match="no-such-topic"):
        driver.log.partitions((there, "no-such-topic"), COMMITTED)


def test_a_missing_partition_is_named(driver: LogDriver) -> None:
    topic = driver.make()
    with pytest.raises(NotFoundError, match=f"{topic}-7"):
        driver.log.partitions(frozenset({TopicPartition(topic, 7)}), COMMITTED)


def test_under_read_committed_the_end_is_the_last_stable_offset(driver: LogDriver) -> None:
    topic = driver.make()
    driver.send(topic, [1000, 1001])
    with open_transaction(driver, topic, 3):
        driver.send(topic, [1002])
        assert bounds(driver, topic) == {0: (0, 2)}
        assert bounds(driver, topic, UNCOMMITTED) == {0: (0, 6)}


def test_a_committed_transaction_leaves_a_marker_behind_its_records(driver: LogDriver) -> None:
    topic = driver.make()
    driver.transact(topic, 3, end="commit")
    assert eventually(lambda: bounds(driver, topic) == {0: (0, 4)})


def test_aborted_records_keep_their_offsets(driver: LogDriver) -> None:
    topic = driver.make()
    driver.transact(topic, 3, end="abort")
    driver.send(topic, [1000])
    assert eventually(lambda: bounds(driver, topic) == {0: (0, 5)})


def test_trimmed_records_raise_the_earliest_offset(driver: LogDriver) -> None:
    topic = driver.make()
    driver.send(topic, [1000, 1001, 1002])
    driver.trim(topic, 2)
    assert bounds(driver, topic) == {0: (2, 3)}


def test_a_log_trimmed_to_its_end_is_empty_but_does_not_start_over(driver: LogDriver) -> None:
    topic = driver.make()
    driver.send(topic, [1000, 1001, 1002])
    driver.trim(topic, 3)
    assert bounds(driver, topic) == {0: (3, 3)}


def test_a_recreated_topic_has_another_id(driver: LogDriver) -> None:
    topic = driver.make()
    driver.send(topic, [1000])
    before = driver.log.topic_ids([topic])
    assert driver.log.topic_ids([topic]) == before
    driver.recreate(topic)
    assert set(driver.log.topic_ids([topic])) == {topic}
    assert driver.log.topic_ids([topic]) != before
    assert eventually(lambda: bounds(driver, topic) == {0: (0, 0)})


def test_new_partitions_appear(driver: LogDriver) -> None:
    topic = driver.make()
    driver.grow(topic, 3)
    driver.send(topic, [1000], partition=2)
    assert bounds(driver, topic) == {0: (0, 0), 1: (0, 0), 2: (0, 1)}


def test_a_deleted_topic_is_not_found_and_has_no_id(driver: LogDriver) -> None:
    topic, kept = driver.make(), driver.make()
    driver.send(topic, [1000])
    assert bounds(driver, topic) == {0: (0, 1)}
    driver.delete(topic)
    with pytest.raises(NotFoundError, match=topic):
        driver.log.partitions(topic, COMMITTED)
    assert set(driver.log.topic_ids([topic, kept])) == {kept}


def test_the_first_record_at_or_after_a_time_is_found(driver: LogDriver) -> None:
    topic = driver.make(partitions=2)
    driver.send(topic, [1000, 3000, 2000, 4000])
    here, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    at = driver.log.offsets_at
    assert at({here: 0, empty: 0}) == {here: 0, empty: None}
    assert at({here: 1000}) == {here: 0}
    assert at({here: 1001}) == {here: 1}
    assert at({here: 3001}) == {here: 3}
    assert at({here: 4001}) == {here: None}


def test_a_time_before_the_epoch_is_before_every_record(driver: LogDriver) -> None:
    topic = driver.make()
    driver.send(topic, [1000])
    here = TopicPartition(topic, 0)
    assert [driver.log.offsets_at({here: ms}) for ms in (-1, -2, -5000)] == [{here: 0}] * 3


def test_a_time_is_looked_up_among_the_records_that_are_left(driver: LogDriver) -> None:
    topic = driver.make()
    driver.send(topic, [1000, 2000, 3000])
    driver.trim(topic, 1)
    assert driver.log.offsets_at({TopicPartition(topic, 0): 500}) == {TopicPartition(topic, 0): 1}


def test_a_group_without_offsets_has_none(driver: LogDriver) -> None:
    topic = driver.make()
    assert driver.log.group_offsets(f"g-{topic}", [TopicPartition(topic, 0)]) == {}


def test_reported_group_offsets_are_read_back(driver: LogDriver) -> None:
    topic = driver.make(partitions=2)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    driver.send(topic, [1000, 1001])
    driver.log.report_group_offsets(f"g-{topic}", {one: 1})
    assert driver.log.group_offsets(f"g-{topic}", [one, two]) == {one: 1}
    driver.log.report_group_offsets(f"g-{topic}", {one: 2, two: 0})
    assert driver.log.group_offsets(f"g-{topic}", [one, two]) == {one: 2, two: 0}


def test_nothing_asked_is_nothing_answered(driver: LogDriver) -> None:
    driver.log.report_group_offsets("nobody", {})
    assert driver.log.group_offsets("nobody", []) == {}
    assert driver.log.topic_ids([]) == {}
    assert driver.log.offsets_at({}) == {}
