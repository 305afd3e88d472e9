"""The pipelines that `make bench` measures: a fold of three fields with a 16-byte key, and the same as a process."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tidemark import Fold, KafkaSource, Pipeline, Process, state


@dataclass(frozen=True)
class Update:
    """One record: a key, a number, and when."""

    key: str
    amount: int
    at: datetime


class Totals(state.Keyed):
    """What is remembered per key."""

    updates: int = state.count()
    amount: int = state.sum("amount")
    last_at: datetime | None = state.max("at")


class Remembered(state.Keyed):
    """The same, as a process function keeps it."""

    updates: int = state.value(0)
    amount: int = state.value(0)
    last_at: datetime | None = state.value(None)


def remember(key: str, updates: Iterator[Update], kept: Remembered) -> None:  # noqa: ARG001
    """Adds up what the fold adds up."""
    for update in updates:
        kept.updates += 1
        kept.amount += update.amount
        kept.last_at = update.at if kept.last_at is None else max(kept.last_at, update.at)


def sized(keys: int) -> Pipeline:
    """The pipeline over a topic of its own for a number of keys."""
    return Pipeline(
        name=f"bench-{keys}",
        source=KafkaSource(f"bench-{keys}", Update, event_time="at"),
        operators=[Fold("totals", key_by="key", state=Totals)],
    )


def processed(keys: int) -> Pipeline:
    """The pipeline with a process instead, over the topic of the fold."""
    return Pipeline(
        name=f"bench-process-{keys}",
        source=KafkaSource(f"bench-{keys}", Update, event_time="at"),
        operators=[Process("totals", key_by="key", state=Remembered, function=remember)],
    )


SIZES = (20_000, 500_000, 2_000_000, 8_000_000)
bench_small, bench_half, bench_two, bench_eight = (sized(n) for n in SIZES)
process_half, process_two, process_eight = (processed(n) for n in SIZES[1:])
