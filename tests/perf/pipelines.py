"""The pipelines that `make bench` measures: one operator, three accumulators, a 16-byte key."""

from dataclasses import dataclass
from datetime import datetime

from tidemark import Fold, KafkaSource, Pipeline, state


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


def sized(keys: int) -> Pipeline:
    """The pipeline over a topic of its own for a number of keys."""
    return Pipeline(
        name=f"bench-{keys}",
        source=KafkaSource(f"bench-{keys}", Update, event_time="at"),
        operators=[Fold("totals", key_by="key", state=Totals)],
    )


SIZES = (20_000, 500_000, 2_000_000, 8_000_000)
bench_small, bench_half, bench_two, bench_eight = (sized(n) for n in SIZES)
