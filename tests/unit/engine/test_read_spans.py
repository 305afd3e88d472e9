"""Spans that workers report show whether a record was read twice, and add up to what a query would count."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.readings import ByDay, Reading, plan_of
from tidemark import Fold, KafkaSource, Pipeline
from tidemark.engine.read.observed_batch_stats import ObservedBatchStats
from tidemark.engine.read.read_spans import EventTimes, are_exact, span_column, spans_in
from tidemark.formats import Json
from tidemark.model.core.offsets import OffsetRange, OffsetRanges, TopicPartition

Read = tuple[str, int, int]
"""Topic, partition and offset of a record."""
RANGES = OffsetRanges({TopicPartition(t, p): OffsetRange(2, 9) for t in ("a", "b") for p in (0, 1)})
START = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT = timedelta(seconds=5)
places = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 1), st.integers(1, 9))
within = places.filter(lambda at: at[0] != "c" and 2 <= at[2] < 9)


def batch(reads: list[Read]) -> pa.RecordBatch:
    """What Kafka's source returns for records, whose keys and timestamps come from their offsets."""
    return pa.RecordBatch.from_pydict(
        {
            "topic": [t for t, _, _ in reads],
            "partition": pa.array([p for _, p, _ in reads], pa.int32()),
            "offset": [o for _, _, o in reads],
            "timestamp": pa.array([START + timedelta(seconds=o, microseconds=1500) for _, _, o in reads]),
            "key": pa.array([b"k" * o if o % 2 else None for _, _, o in reads], pa.binary()),
            "value": pa.array([b"vv"] * len(reads), pa.binary()),
        }
    )


def records(reads: list[Read]) -> pa.StructArray:
    """The decoded records; every third offset was refused."""
    fields = [{"at": START + timedelta(seconds=o)} if o % 3 else None for _, _, o in reads]
    return pa.array(fields, pa.struct([("at", pa.timestamp("us", tz="UTC"))]))


def reported(batches: list[list[Read]], path: tuple[str, ...] = ()) -> list[Any]:
    times = EventTimes(path, int((START + LIMIT).timestamp()) * 10**6)
    texts = (span_column(batch(reads), times.of(batch(reads), records(reads))).to_pylist() for reads in batches)
    told = list(texts)
    assert all(text is None for column in told for text in column[1:])
    return spans_in(column[0] for column in told if column)


@settings(max_examples=500, deadline=None)
@given(batches=st.lists(st.lists(places, max_size=6), max_size=5))
def test_spans_are_exact_only_if_each_record_was_read_once_and_within_the_ranges(batches: list[list[Read]]) -> None:
    spans, every = reported(batches), [read for reads in batches for read in reads]
    assert sum(span.records for span in spans) == len(every)
    if are_exact(spans, RANGES):
        assert len(set(every)) == len(every)
        assert all((tp := TopicPartition(t, p)) in RANGES and o in range(*_bounds(tp)) for t, p, o in every)


def _bounds(tp: TopicPartition) -> tuple[int, int]:
    return RANGES[tp].start, RANGES[tp].end


@settings(max_examples=200, deadline=None)
@given(chosen=st.sets(within), size=st.integers(1, 4), data=st.data())
def test_a_read_with_gaps_in_any_order_of_tasks_is_exact(chosen: set[Read], size: int, data: st.DataObject) -> None:
    ordered = sorted(chosen)
    batches = data.draw(st.permutations([ordered[n : n + size] for n in range(0, len(ordered), size)]))
    assert are_exact(reported(batches), RANGES)


@pytest.mark.parametrize("path", [(), ("at",)])
@settings(max_examples=100, deadline=None)
@given(reads=st.lists(places, min_size=1, max_size=8))
def test_spans_have_the_bytes_and_the_greatest_event_time_of_their_records(
    path: tuple[str, ...], reads: list[Read]
) -> None:
    spans = reported([reads], path)
    assert sum(span.bytes for span in spans) == sum(2 + (o if o % 2 else 0) for _, _, o in reads)
    moments = [START + timedelta(seconds=o, microseconds=0 if path else 1500) for _, _, o in reads if o % 3]
    good = [at for at in moments if at <= START + LIMIT]
    expected = max((int(at.timestamp() * 1000) for at in good), default=None)
    assert max((s.greatest_ms for s in spans if s.greatest_ms is not None), default=None) == expected


@pytest.mark.parametrize(
    ("partitions", "offsets", "small"),
    [(2, 10, True), (16, 100, True), (17, 10, False), (2, 2**15, True), (2, 2**15 + 1, False)],
)
def test_few_partitions_with_few_offsets_are_small(partitions: int, offsets: int, small: bool) -> None:
    made = Pipeline(
        name="readings",
        source=KafkaSource("t", Reading, event_time="at"),
        operators=[Fold("days", key_by=("group", "ok"), state=ByDay)],
    )
    plan = plan_of(made, 1, {TopicPartition("t", p): (5, 5 + offsets) for p in range(partitions)})
    stats = ObservedBatchStats(made, plan, "records")
    assert stats.is_small is small
    assert stats.is_reported is (stats.at_most >= (Json.workers_from or 0) and not small)
