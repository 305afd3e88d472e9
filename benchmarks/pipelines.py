"""The pipelines that `make bench` measures: a fold of three fields with a 16-byte key, and an equivalent process."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tidemark import Fold, KafkaSource, Pipeline, Process, state


@dataclass(frozen=True)
class Update:
    """One record: a key, an amount, and a time."""

    key: str
    amount: int
    at: datetime


class Totals(state.Keyed):
    """The totals kept per key."""

    updates: int = state.count()
    amount: int = state.sum("amount")
    last_at: datetime | None = state.max("at")


class Remembered(state.Keyed):
    """The same totals, as a process function keeps them."""

    updates: int = state.value(0)
    amount: int = state.value(0)
    last_at: datetime | None = state.value(None)


def remember(key: str, updates: Iterator[Update], kept: Remembered) -> None:  # noqa: ARG001
    """Computes the same totals as the fold."""
    for update in updates:
        kept.updates += 1
        kept.amount += update.amount
        kept.last_at = update.at if kept.last_at is None else max(kept.last_at, update.at)


def sized(keys: int) -> Pipeline:
    """A pipeline with the fold, over the topic for this number of keys."""
    return Pipeline(
        name=f"bench-{keys}",
        source=KafkaSource(f"bench-{keys}", Update, event_time="at"),
        operators=[Fold("totals", key_by="key", state=Totals)],
    )


def processed(keys: int) -> Pipeline:
    """A pipeline with the process instead, over the same topic as the fold."""
    return Pipeline(
        name=f"bench-process-{keys}",
        source=KafkaSource(f"bench-{keys}", Update, event_time="at"),
        operators=[Process("totals", key_by="key", state=Remembered, function=remember)],
    )


SIZES = (20_000, 500_000, 2_000_000, 8_000_000)
bench_small, bench_half, bench_two, bench_eight = (sized(n) for n in SIZES)
process_half, process_two, process_eight = (processed(n) for n in SIZES[1:])
