"""In which order a function sees the records of its key: a rule that a repetition keeps, whatever arrived when (E3)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark import KafkaSource, Pipeline, Process, state
from tidemark.testing import BARRIER, CRASH, replay

DAY = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Step:
    """One record; `n` is its place in the script."""

    who: str
    n: int
    at: datetime


class Walk(state.Keyed):
    """Every record that was seen, in the order of seeing."""

    seen: list[int] = state.list()


def walk(who: str, steps: Iterator[Step], kept: Walk) -> None:
    """Writes down."""
    kept.seen.extend(step.n for step in steps)


def pipeline(*topics: str, **options: Any) -> Pipeline:
    made = Process("walk", key_by="who", state=Walk, function=walk, **options)
    return Pipeline(name="walks", source=KafkaSource(topics, Step, event_time="at"), operators=[made])


def steps(count: int, minutes: Sequence[int] = ()) -> list[Step]:
    return [Step("a", n, DAY + timedelta(minutes=(minutes or range(count))[n])) for n in range(count)]


def test_within_a_checkpoint_the_order_is_topic_partition_offset() -> None:
    done = replay(pipeline("east", "west"), [steps(8), BARRIER], partitions=2)
    # Records go round: east-0, east-1, west-0, west-1, and again.
    assert done.state("walk")["a"].seen == [0, 4, 1, 5, 2, 6, 3, 7]


def test_event_time_goes_first_where_the_operator_asks_for_it_and_ties_go_by_position() -> None:
    done = replay(pipeline("east", "west", order="event_time"), [steps(6, [5, 4, 3, 3, 1, 0]), BARRIER], partitions=2)
    assert done.state("walk")["a"].seen == [5, 4, 2, 3, 1, 0]


CRASHES = st.none() | st.builds(CRASH.at, st.sampled_from(["read", "process.walk", "runs.walk", "seal"]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), CRASHES), min_size=1, max_size=5))
def test_a_key_of_one_partition_is_seen_in_order_of_arrival_however_it_is_cut(cuts: list[tuple[int, Any]]) -> None:
    total = sum(size for size, _ in cuts)
    records, script = iter(steps(total)), list[Any]()
    for size, crash in cuts:
        script += [[next(records) for _ in range(size)], *([crash] if crash else []), BARRIER]
    assert replay(pipeline("east"), script).state("walk")["a"].seen == list(range(total))


def test_a_key_of_two_partitions_is_not_seen_as_it_arrived_and_a_cut_may_show() -> None:
    whole, cut = steps(4), [steps(4)[:2], steps(4)[2:]]
    at_once = replay(pipeline("east"), [whole, BARRIER], partitions=2).state("walk")["a"].seen
    in_two = replay(pipeline("east"), [cut[0], BARRIER, cut[1], BARRIER], partitions=2).state("walk")["a"].seen
    assert (at_once, in_two) == ([0, 2, 1, 3], [0, 1, 2, 3])
