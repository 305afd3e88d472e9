"""Under `until="interval_end"`: no timestamp stalls a partition, and no honest record is read before its interval."""

from dataclasses import dataclass, replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.bank import ASK, P0, P1, PIPELINE, at
from tidemark.coordinator.plans.inputs import Parent
from tidemark.coordinator.plans.ranges import PlannedRanges, plan_ranges
from tidemark.model.core.offsets import OffsetRange, TopicPartition
from tidemark.testing.twin.log import MemoryLog

HOUR = 3_600_000
AHEAD = PIPELINE.max_future // timedelta(milliseconds=1)
HOURS = 6

stamps = st.one_of(
    st.integers(0, HOURS * HOUR),
    st.integers(0, HOURS).map(lambda h: h * HOUR),
    st.integers(HOURS * HOUR, HOURS * HOUR + AHEAD),
    st.integers(HOURS * HOUR + 3 * AHEAD, 10**13),
)
hours = st.lists(st.lists(stamps, max_size=6), min_size=HOURS, max_size=HOURS)


@dataclass
class Hourly:
    """Intervals of an hour over one log, each planned where the one before it ended."""

    late_ms: int = 0
    max_records: int | None = None

    def __post_init__(self) -> None:
        self.log = MemoryLog()
        self.log.create("payments", 2)
        self.ends: dict[TopicPartition, int] = {}

    def send(self, stamps: list[int]) -> None:
        for number, stamp in enumerate(stamps):
            self.log.append((P0, P1)[number % 2], b"{}", timestamp_ms=stamp)

    def interval(self, end_ms: int) -> list[PlannedRanges]:
        """The plans of an interval, as many as it takes."""
        asked = replace(ASK, interval_end=at(end_ms), until_interval_end=True, max_records=self.max_records)
        made: list[PlannedRanges] = []
        while not made or not made[-1].covers:
            parent = Parent(id=1, ends=self.ends, topic_ids={"payments": "payments/1"})
            made.append(plan_ranges(PIPELINE, asked, parent, self.log, now_ms=end_ms + self.late_ms))
            self.ends = dict(made[-1].ranges.ends)
            assert len(made) < 100, "an interval that is never covered"
        return made

    def stamps(self, within: dict[TopicPartition, OffsetRange]) -> list[int]:
        return [r.timestamp_ms for tp, each in within.items() for r in self.log.records(tp, each)]


def capped(hourly: Hourly, tp: TopicPartition, end_ms: int, start: int) -> int:
    """The rule for honest timestamps, by looking at every record."""
    whole = OffsetRange(0, hourly.log.partitions("payments", "read_committed")[tp].end)
    first = next((r.offset for r in hourly.log.records(tp, whole) if r.timestamp_ms >= end_ms), whole.end)
    return max(start, first)


@settings(max_examples=150, deadline=None)
@given(hours, st.sampled_from([0, HOUR, 10**12]), st.sampled_from([None, 1, 2]))
def test_no_honest_record_is_read_early_and_none_is_left_behind(
    sent: list[list[int]], late_ms: int, max_records: int | None
) -> None:
    hourly = Hourly(late_ms, max_records)
    for hour, stamps in enumerate(sent, start=1):
        hourly.send(stamps)
        for made in hourly.interval(hour * HOUR):
            future = hour * HOUR + late_ms + AHEAD
            early = [t for t in hourly.stamps(dict(made.ranges)) if hour * HOUR <= t <= future]
            assert not early, (hour, early)
    # Every honest time is over now, and the clock of each producer is as wrong as it was.
    hourly.late_ms = 0
    hourly.interval((HOURS + 1) * HOUR + AHEAD)
    held = hourly.log.partitions("payments", "read_committed")
    assert hourly.ends == {tp: bounds.end for tp, bounds in held.items()}


@settings(max_examples=150, deadline=None)
@given(hours)
def test_what_no_honest_record_delays_is_read_at_once(sent: list[list[int]]) -> None:
    hourly = Hourly()
    for hour, stamps in enumerate(sent, start=1):
        hourly.send(stamps)
        hourly.interval(hour * HOUR)
        for tp, bounds in hourly.log.partitions("payments", "read_committed").items():
            everything = hourly.stamps({tp: OffsetRange(0, bounds.end)})
            if not any(hour * HOUR <= t <= hour * HOUR + AHEAD for t in everything):
                assert hourly.ends[tp] == bounds.end, (hour, tp)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2 * HOURS * HOUR), max_size=6), min_size=HOURS, max_size=HOURS))
def test_honest_timestamps_end_a_range_where_they_always_did(sent: list[list[int]]) -> None:
    hourly = Hourly()
    for hour, stamps in enumerate(sent, start=1):
        hourly.send(stamps)
        before = dict(hourly.ends)
        hourly.interval(hour * HOUR)
        assert hourly.ends == {tp: capped(hourly, tp, hour * HOUR, before.get(tp, 0)) for tp in (P0, P1)}
