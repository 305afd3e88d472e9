"""Nexmark in tests: events in batches, and the answers of a pipeline in the form of the oracle."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.nexmark.events import events
from benchmarks.nexmark.oracle import Read
from benchmarks.nexmark.queries import QUERIES
from tidemark import Pipeline
from tidemark.testing import Record

COLUMNS = {
    "q0": ("auction", "bidder", "price", "channel", "url", "date_time"),
    "q1": ("auction", "bidder", "price", "channel", "url", "date_time"),
    "q2": ("auction", "price"),
    "q3": ("name", "city", "state", "auction"),
    "q4": ("category", "price"),
    "q5": ("auction", "bids", "until"),
    "q6": ("seller", "price"),
    "q7": ("auction", "bidder", "price", "until"),
    "q8": ("id", "name", "since"),
    "q11": ("bidder", "window_start", "window_end", "bids"),
    "q12": ("bidder", "window_start", "window_end", "bids"),
    "q13": ("auction", "bidder", "price", "value"),
}
STATE_ONLY = ("q4",)
"""Queries whose answer is a state that changes, and not a sink that grows."""


def batches(count: int, seed: int, parts: int) -> list[list[Read]]:
    """The events in so many batches of one size, each on one of two partitions of its topic."""
    found = [(topic, n % 2, event) for n, (topic, event) in enumerate(events(count, seed))]
    size = -(-count // parts)
    return [found[at : at + size] for at in range(0, count, size)]


def records(name: str, batch: Iterable[Read]) -> list[Record]:
    """The records of a batch that a query reads."""
    return [
        Record(value=event, partition=partition, timestamp=event.date_time)
        for topic, partition, event in batch
        if topic in topics(QUERIES[name])
    ]


def topics(pipeline: Pipeline) -> set[str]:
    """The topics that a pipeline reads."""
    return {topic for source in pipeline.inputs.values() for topic in source.names}


def rows(name: str, found: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows of a sink or a state in the form of the oracle."""
    return sorted(tuple(row[column] for column in COLUMNS[name]) for row in found)


def agrees(name: str, mine: Sequence[tuple[Any, ...]], its: Sequence[tuple[Any, ...]]) -> None:
    """Compares with the oracle; means may differ in the last digit."""
    if name in ("q4", "q6"):
        assert [row[0] for row in mine] == [row[0] for row in its]
        assert all(abs(a[1] - b[1]) < 1e-6 * max(1, abs(b[1])) for a, b in zip(mine, its, strict=True))
    else:
        assert mine == its
