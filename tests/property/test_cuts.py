"""Where a bounded checkpoint ends, against a look at every record of the log."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.coordinator.plans.cut import Bound, cut
from tidemark.model.core.offsets import OffsetRange, TopicPartition
from tidemark.testing.twin.log import MemoryLog

NOW = 1_000
FUTURE = NOW + 100
PARTITIONS = [TopicPartition("events", n) for n in range(3)]
times = st.integers(0, NOW)
holes = st.integers(-30, -1)
"""A negative number is a hole of so many offsets."""
events = st.lists(st.one_of(times, st.integers(0, 3), holes), max_size=12)
wild = st.lists(st.one_of(times, st.just(-0), holes, st.integers(FUTURE + 1, 10**6)), max_size=12)
limits = st.integers(1, 8)


@dataclass
class Backlog:
    """A log that is read in bounded steps from its start to an end that is fixed."""

    log: MemoryLog = field(default_factory=MemoryLog)

    def __post_init__(self) -> None:
        self.log.create("events", len(PARTITIONS))

    def fill(self, per_partition: list[list[int]]) -> None:
        for tp, found in zip(PARTITIONS, per_partition, strict=True):
            for each in found:
                if each < 0:
                    self.log.skip(tp, -each)
                else:
                    self.log.append(tp, b"x", timestamp_ms=each)
        self.ends = {tp: held.end for tp, held in self.log.partitions("events", "read_committed").items()}
        self.starts = dict.fromkeys(PARTITIONS, 0)

    def step(self, limit: int) -> dict[TopicPartition, OffsetRange]:
        """Makes one cut and moves on to it."""
        ranges = {tp: OffsetRange(self.starts[tp], self.ends[tp]) for tp in PARTITIONS}
        bound = Bound(records=limit)
        ends = cut(ranges, bound, self.log, future_ms=FUTURE, isolation="read_committed")
        taken = {tp: OffsetRange(self.starts[tp], ends[tp]) for tp in PARTITIONS}
        self.starts = ends
        return taken

    def times(self, within: dict[TopicPartition, OffsetRange]) -> list[int]:
        return [r.timestamp_ms for tp, each in within.items() for r in self.log.records(tp, each)]

    @property
    def left(self) -> dict[TopicPartition, OffsetRange]:
        return {tp: OffsetRange(self.starts[tp], self.ends[tp]) for tp in PARTITIONS}

    @property
    def is_done(self) -> bool:
        return self.starts == self.ends


def filled(per_partition: list[list[int]]) -> Backlog:
    backlog = Backlog()
    backlog.fill(per_partition)
    return backlog


@settings(max_examples=300, deadline=None)
@given(st.lists(wild, min_size=3, max_size=3), limits)
def test_a_cut_moves_on_and_reads_no_more_than_the_limit_whatever_the_timestamps(
    per_partition: list[list[int]], limit: int
) -> None:
    backlog = filled(per_partition)
    elements = sum(len(found) for found in per_partition)
    steps = 0
    while not backlog.is_done:
        taken = backlog.step(limit)
        assert sum(r.span for r in taken.values()) > 0
        assert all(0 <= r.end <= backlog.ends[tp] for tp, r in taken.items())
        assert len(backlog.times(taken)) <= limit
        steps += 1
        # A hole takes at most two steps of its own, in each partition.
        assert steps <= 3 * elements + 3, "steps without end"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.one_of(times, st.integers(0, 3)), max_size=12).map(sorted), min_size=3, max_size=3), limits)
def test_no_partition_runs_ahead_of_the_others(per_partition: list[list[int]], limit: int) -> None:
    backlog = filled(per_partition)
    while not backlog.is_done:
        taken, left = backlog.times(backlog.step(limit)), backlog.times(backlog.left)
        assert max(taken) <= min(left, default=NOW)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(times, min_size=1, max_size=12).map(sorted), min_size=3, max_size=3), limits)
def test_a_cut_is_as_large_as_whole_milliseconds_allow(per_partition: list[list[int]], limit: int) -> None:
    backlog = filled(per_partition)
    while not backlog.is_done:
        before = sorted(backlog.times(backlog.left))
        taken = backlog.times(backlog.step(limit))
        whole = [t for t in before if len(before) <= limit or t < before[limit]]
        assert len(taken) == (len(whole) if whole else min(limit, len(before)))


@settings(max_examples=300, deadline=None)
@given(st.integers(50, 300), st.integers(50, 300), st.integers(10, 30))
def test_a_partition_behind_a_record_of_the_future_keeps_pace(hidden: int, honest: int, limit: int) -> None:
    backlog = filled([[FUTURE + 5, *range(hidden)], list(range(honest)), []])
    first, second = PARTITIONS[:2]
    while backlog.starts[second] < backlog.ends[second]:
        backlog.step(limit)
        shares = [backlog.starts[tp] / backlog.ends[tp] for tp in (first, second)]
        assert abs(shares[0] - shares[1]) <= 2 * limit / min(hidden + 1, honest), shares


def test_a_partition_without_timestamps_keeps_pace() -> None:
    backlog = Backlog()
    for n in range(100):
        backlog.log.append(PARTITIONS[0], b"x", timestamp_ms=-1)
        backlog.log.append(PARTITIONS[1], b"x", timestamp_ms=n)
    backlog.fill([[], [], []])
    for _ in range(5):
        backlog.step(10)
    assert abs(backlog.starts[PARTITIONS[0]] - backlog.starts[PARTITIONS[1]]) <= 2


def test_no_checkpoint_reads_holes_only() -> None:
    backlog = filled([[each for n in range(100) for each in (n, -5_000)], [], []])
    steps = []
    while not backlog.is_done:
        steps.append(len(backlog.times(backlog.step(1_000))))
    assert min(steps[:-1]) > 0


def test_a_hole_of_a_compacted_topic_is_passed_at_once() -> None:
    backlog = Backlog()
    backlog.fill([[-(10**9), 5, -(10**9), 6, 7], [5, 6, 7], []])
    steps = 0
    while not backlog.is_done:
        backlog.step(2)
        steps += 1
    assert steps <= 6
