"""The port `RecordReader`: bounded reads of ranges, on a real broker and in the in-memory twin."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from tests.contract.test_log import COMMITTED, UNCOMMITTED, driver, open_transaction  # noqa: F401  (fixtures)
from tests.support.log_drivers import LogDriver
from tidemark.errors import NotFoundError
from tidemark.model.core.log_records import BoundedRead, LogRecord, ReadBounds
from tidemark.model.core.offsets import OffsetRange, TopicPartition


def read(
    driver: LogDriver,  # noqa: F811
    ranges: Mapping[tuple[str, int], tuple[int, int]],
    isolation: str = COMMITTED,
    wanted: Any = lambda tp, record: True,
    **bounds: Any,
) -> BoundedRead:
    asked = {TopicPartition(*place): OffsetRange(*within) for place, within in ranges.items()}
    return driver.reader.read(asked, isolation, ReadBounds(**{"matches": 1000, "seconds": 20.0, **bounds}), wanted)


def offsets(found: BoundedRead) -> list[tuple[int, int]]:
    return [(tp.partition, record.offset) for tp, record in found.records]


def test_ranges_are_read_in_order_and_no_further(driver: LogDriver) -> None:  # noqa: F811
    topic = driver.make(partitions=3)
    for partition in range(3):
        driver.send(topic, [1000 + n for n in range(10)], partition=partition)
    found = read(driver, {(topic, 2): (0, 2), (topic, 0): (3, 6), (topic, 1): (4, 4)})
    assert offsets(found) == [(0, 3), (0, 4), (0, 5), (2, 0), (2, 1)]
    assert (found.looked_at, found.stopped_by, found.next) == (5, "end", None)
    _, first = found.records[0]
    assert first == LogRecord(offset=3, timestamp_ms=1003, key=None, value=b"{}")


def test_a_bound_ends_a_read_and_next_goes_on(driver: LogDriver) -> None:  # noqa: F811
    topic = driver.make(partitions=2)
    for partition in range(2):
        driver.send(topic, range(1000, 1005), partition=partition)
    whole = {(topic, 0): (0, 5), (topic, 1): (0, 5)}
    found = read(driver, whole, matches=3)
    assert (offsets(found), found.stopped_by, found.next) == (
        [(0, 0), (0, 1), (0, 2)], "matches", (TopicPartition(topic, 0), 3),
    )  # fmt: skip
    assert offsets(read(driver, {(topic, 0): (3, 5), (topic, 1): (0, 5)})) == [(0, 3), (0, 4)] + [
        (1, n) for n in range(5)
    ]
    found = read(driver, whole, records=7)
    assert (found.looked_at, found.stopped_by, found.next) == (7, "records", (TopicPartition(topic, 1), 2))
    found = read(driver, whole, size=3)
    assert (found.looked_at, found.stopped_by, found.next) == (2, "bytes", (TopicPartition(topic, 0), 2))


def test_only_wanted_records_count_as_found(driver: LogDriver) -> None:  # noqa: F811
    topic = driver.make()
    driver.send(topic, range(1000, 1020))
    found = read(driver, {(topic, 0): (0, 20)}, wanted=lambda tp, record: record.timestamp_ms % 7 == 0, matches=2)
    assert [record.timestamp_ms for _, record in found.records] == [1001, 1008]
    assert (found.looked_at, found.stopped_by) == (9, "matches")


def test_what_was_trimmed_is_left_out(driver: LogDriver) -> None:  # noqa: F811
    topic = driver.make()
    driver.send(topic, range(1000, 1010))
    driver.trim(topic, 6)
    assert offsets(read(driver, {(topic, 0): (2, 8)})) == [(0, 6), (0, 7)]
    assert offsets(read(driver, {(topic, 0): (2, 6)})) == []
    assert offsets(read(driver, {(topic, 0): (8, 50)})) == [(0, 8), (0, 9)]


def test_gaps_end_a_range_at_once_and_aborted_records_are_not_shown(driver: LogDriver) -> None:  # noqa: F811
    topic = driver.make()
    driver.send(topic, [1000])
    driver.transact(topic, 3, end="abort")
    end = driver.log.partitions(topic, COMMITTED)[TopicPartition(topic, 0)].end
    assert end == 5, "a record, three that were aborted, and the marker"
    began = time.monotonic()
    found = read(driver, {(topic, 0): (0, end)})
    assert (offsets(found), found.stopped_by) == ([(0, 0)], "end")
    assert time.monotonic() - began < 10, "it waited for a record that never comes"
    with open_transaction(driver, topic, 2):
        assert offsets(read(driver, {(topic, 0): (end, end + 2)})) == []
        assert offsets(read(driver, {(topic, 0): (end, end + 2)}, UNCOMMITTED)) == [(0, end), (0, end + 1)]


def test_an_unknown_partition_is_named(driver: LogDriver) -> None:  # noqa: F811
    topic = driver.make()
    for place in ((topic, 7), (f"{topic}-gone", 0)):
        with pytest.raises(NotFoundError):
            read(driver, {place: (0, 1)})


def test_a_read_leaves_no_group_behind(driver: LogDriver) -> None:  # noqa: F811
    from tidemark.kafka.record_reader import GROUP

    topic = driver.make()
    driver.send(topic, [1000])
    assert offsets(read(driver, {(topic, 0): (0, 1)})) == [(0, 0)]
    assert driver.log.group_offsets(GROUP, [TopicPartition(topic, 0)]) == {}
