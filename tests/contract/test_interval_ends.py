"""The end of an interval among wrong timestamps, on a real broker and in the in-memory twin."""

from types import SimpleNamespace

from tests.contract.test_log import COMMITTED, driver  # noqa: F401  (a fixture)
from tests.support.log_drivers import LogDriver
from tidemark.coordinator.plans.ranges import IntervalEnd
from tidemark.model.core.offsets import OffsetRange, TopicPartition

FUTURE = 900_000


def ends(driver: LogDriver, topic: str, at_ms: int, *starts: int) -> tuple[list[int], bool]:  # noqa: F811
    held = driver.log.partitions(topic, COMMITTED)
    ranges = {tp: OffsetRange(start, held[tp].end) for tp, start in zip(sorted(held), starts, strict=True)}
    both = SimpleNamespace(offsets_at=driver.log.offsets_at, read=driver.reader.read)
    interval = IntervalEnd(at_ms=at_ms, future_ms=100_000, isolation=COMMITTED)
    found, whole = interval.interval_ends(ranges, both)
    return [found[tp] for tp in sorted(found)], whole


def test_a_record_from_the_future_hides_nothing(driver: LogDriver) -> None:  # noqa: F811
    topic = driver.make(partitions=3)
    driver.send(topic, [1000, FUTURE, 2000, 6000, 3000], partition=0)
    driver.send(topic, [1000, 6000, FUTURE, 2000], partition=1)
    assert ends(driver, topic, 5000, 0, 0, 0) == ([3, 1, 0], True)
    assert ends(driver, topic, 7000, 3, 1, 0) == ([5, 4, 0], True)
    driver.send(topic, [8000], partition=0)
    assert ends(driver, topic, 8000, 5, 4, 0) == ([5, 4, 0], True), "it was read, and is met again at every look-up"


def test_what_was_aborted_is_behind_a_record_from_the_future_as_well(driver: LogDriver) -> None:  # noqa: F811
    topic = driver.make()
    driver.send(topic, [FUTURE])
    driver.transact(topic, 3, end="abort")
    end = driver.log.partitions(topic, COMMITTED)[TopicPartition(topic, 0)].end
    assert ends(driver, topic, 5000, 0) == ([end], True)
    driver.send(topic, [1000, 6000])
    assert ends(driver, topic, 5000, end) == ([end + 1], True)


def test_a_log_that_lost_the_record_from_the_future_answers_by_itself(driver: LogDriver) -> None:  # noqa: F811
    topic = driver.make()
    driver.send(topic, [FUTURE, 1000, 6000])
    driver.trim(topic, 1)
    assert ends(driver, topic, 5000, 1) == ([2], True)
