"""The algebra of ranges: contiguity, overlap, barriers (I2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.errors import UsageError
from tidemark.model.core.offsets import BarrierOffsets, OffsetRange, OffsetRanges, TopicPartition

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)
partitions = st.builds(TopicPartition, names, st.integers(0, 1000))
ranges = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda ab: OffsetRange(min(ab), max(ab)))
vectors = st.dictionaries(partitions, ranges, max_size=6).map(OffsetRanges)


@given(partitions)
def test_a_partition_reads_back_from_its_text(tp: TopicPartition) -> None:
    assert TopicPartition.parse(str(tp)) == tp


@pytest.mark.parametrize("text", ["", "topic", "-1", "topic-", "topic-x", "topic-1.5"])
def test_what_is_no_partition_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a topic-partition"):
        TopicPartition.parse(text)


@given(st.integers(-5, 5), st.integers(-5, 5))
def test_a_range_never_runs_backwards_or_below_zero(start: int, end: int) -> None:
    if 0 <= start <= end:
        assert OffsetRange(start, end).span == end - start
    else:
        with pytest.raises(UsageError, match="not an offset range"):
            OffsetRange(start, end)


@given(ranges, ranges)
def test_overlap_and_succession_mean_what_sets_of_offsets_mean(a: OffsetRange, b: OffsetRange) -> None:
    of_a, of_b = set(range(a.start, a.end)), set(range(b.start, b.end))
    assert a.overlaps(b) == bool(of_a & of_b)
    assert a.overlaps(b) == b.overlaps(a)
    assert a.is_empty == (not of_a)
    if b.follows(a):
        assert not a.overlaps(b)
        assert sorted(of_a | of_b) == list(range(a.start, b.end))


@given(vectors, st.dictionaries(partitions, st.integers(0, 20), max_size=3), st.data())
def test_the_ranges_between_an_end_and_a_barrier_follow_without_a_break(
    parent: OffsetRanges, added: dict[TopicPartition, int], data: st.DataObject
) -> None:
    starts = added | parent.ends
    ends = {tp: start + data.draw(st.integers(0, 9)) for tp, start in starts.items()}
    child = OffsetRanges.between(starts, BarrierOffsets(ends))
    assert child.breaks_from(parent) == []
    assert child.breaks_from(None) == []
    assert child.ends == ends
    assert child.span == sum(ends[tp] - starts[tp] for tp in starts)
    assert child.is_empty == (child.span == 0)
    assert list(child) == sorted(starts)


@given(vectors.filter(len), st.data())
def test_every_break_is_named(parent: OffsetRanges, data: st.DataObject) -> None:
    broken = data.draw(st.sampled_from(sorted(parent)))
    follow = {tp: OffsetRange(end, end) for tp, end in parent.ends.items()}
    shifted = OffsetRanges({**follow, broken: OffsetRange(parent[broken].end + 1, parent[broken].end + 1)})
    assert shifted.breaks_from(parent) == [
        f"{broken} starts at {parent[broken].end + 1}, the parent ends at {parent[broken].end}"
    ]
    missing = OffsetRanges({tp: r for tp, r in follow.items() if tp != broken})
    assert missing.breaks_from(parent) == [f"{broken} of the parent is missing"]


def test_a_barrier_over_other_partitions_is_refused() -> None:
    with pytest.raises(UsageError, match="differ in b-0"):
        OffsetRanges.between(
            {TopicPartition("a", 0): 0}, BarrierOffsets({TopicPartition("a", 0): 0, TopicPartition("b", 0): 1})
        )
