"""Coverage is a set of offsets per topic id: what its ranges come to is what plain sets come to."""

from hypothesis import given
from hypothesis import strategies as st

from tidemark.model.checkpoint.codec import from_json, to_json
from tidemark.model.core.offsets import OffsetCoverage, OffsetRange, TopicPartition

IDS = {"payments": "id-2", "refunds": "id-3"}
OLD = {"payments": "id-1", "refunds": "id-3"}
LAST = 12
Ranges = dict[TopicPartition, OffsetRange]
Ids = dict[str, str]
"""Topic ids by topic."""

offsets = st.tuples(st.integers(0, LAST), st.integers(0, LAST)).map(lambda pair: OffsetRange(min(pair), max(pair)))
places = st.builds(TopicPartition, st.sampled_from(sorted(IDS)), st.integers(0, 1))
ranges = st.dictionaries(places, offsets, max_size=4)
parts = st.builds(OffsetCoverage.of, ranges, st.sampled_from([IDS, OLD, {"refunds": "id-3"}]))


@st.composite
def coverages(draw: st.DrawFn) -> OffsetCoverage:
    """Several ranges put together, some taken away."""
    found = OffsetCoverage()
    for part in draw(st.lists(parts, max_size=4)):
        found = found - part if draw(st.booleans()) else found | part
    return found


def plain(of: OffsetCoverage) -> set[tuple[str, int, int]]:
    """The same as a set of (topic id, partition, offset)."""
    return {(tp.topic, tp.partition, n) for tp, found in of.by_id.items() for r in found for n in range(r.start, r.end)}


def is_normal(of: OffsetCoverage) -> bool:
    """Whether equal sets have one form only: no empty range, no two that touch, in order."""
    by_partition = [*of.by_id.values()]
    gaps = [one.end < other.start for found in by_partition for one, other in zip(found, found[1:], strict=False)]
    return all(by_partition) and all(gaps) and not any(r.is_empty for found in by_partition for r in found)


@given(coverages(), coverages())
def test_union_cut_and_difference_are_those_of_sets(one: OffsetCoverage, other: OffsetCoverage) -> None:
    for made, wanted in (
        (one | other, plain(one) | plain(other)),
        (one & other, plain(one) & plain(other)),
        (one - other, plain(one) - plain(other)),
    ):
        assert plain(made) == wanted
        assert is_normal(made)
    assert one.contains(other) == (plain(one) >= plain(other))
    assert one.is_empty == (not plain(one))


@given(coverages(), coverages(), coverages())
def test_neither_order_nor_repetition_changes_a_union(
    one: OffsetCoverage, other: OffsetCoverage, third: OffsetCoverage
) -> None:
    assert (one | other) | third == one | (other | third) == third | other | one | one


@given(ranges, st.sampled_from([IDS, OLD]))
def test_ranges_count_in_the_ids_that_their_topics_have(found: Ranges, ids: Ids) -> None:
    covered = OffsetCoverage.of(found, ids)
    assert plain(covered) == {
        (ids[tp.topic], tp.partition, n) for tp, r in found.items() for n in range(r.start, r.end)
    }
    assert is_normal(covered)
    ends = {tp: r.end for tp, r in found.items()}
    assert OffsetCoverage.below(ends, ids) == OffsetCoverage.of({tp: OffsetRange(0, n) for tp, n in ends.items()}, ids)
    assert OffsetCoverage.of(found, {}).is_empty


@given(coverages(), ranges, st.sampled_from([IDS, OLD]))
def test_names_meet_coverage_by_the_ids_of_the_plan(covered: OffsetCoverage, found: Ranges, ids: Ids) -> None:
    held = plain(covered)
    wanted = {
        (tp, n) for tp, r in found.items() for n in range(r.start, r.end) if (ids[tp.topic], tp.partition, n) in held
    }
    within = covered.within(found, ids)
    assert {(tp, n) for tp, parts in within.items() for r in parts for n in range(r.start, r.end)} == wanted
    assert all(within.values())
    for tp, r in found.items():
        for n in range(r.start, r.end):
            assert covered.covers(tp, n, ids) == ((tp, n) in wanted)


@given(coverages(), st.sampled_from([IDS, OLD]))
def test_ends_are_behind_the_last_offset_that_is_covered(covered: OffsetCoverage, ids: Ids) -> None:
    names = {number: topic for topic, number in ids.items()}
    wanted: dict[TopicPartition, int] = {}
    for number, partition, offset in plain(covered):
        if number in names:
            tp = TopicPartition(names[number], partition)
            wanted[tp] = max(offset + 1, wanted.get(tp, 0))
    assert covered.ends(ids) == wanted


@given(coverages())
def test_it_is_stored_and_read_back(covered: OffsetCoverage) -> None:
    assert from_json(OffsetCoverage, to_json(covered), "here") == covered


def test_a_topic_without_an_id_is_not_covered() -> None:
    place = TopicPartition("payments", 0)
    covered = OffsetCoverage.below({place: 3}, IDS)
    assert not covered.covers(place, 0, {})
    assert covered.within({place: OffsetRange(0, 3)}, {}) == {}
