"""A pipeline for backfills by the real scheduler: crossings of ferries; sums tell doubles, the latest harbour order."""

from dataclasses import dataclass
from datetime import datetime

from tidemark import Fold, KafkaSource, Pipeline, state


@dataclass(frozen=True)
class Crossing:
    """One crossing."""

    ferry: str
    cars: int
    harbour: str
    ended_at: datetime


class Ferry(state.Keyed):
    """What is remembered about one ferry."""

    crossings: int = state.count()
    cars: int = state.sum("cars")
    harbour: str = state.latest("harbour")


ferries = Pipeline(
    name="ferries",
    source=KafkaSource("ferries", Crossing, event_time="ended_at"),
    operators=[Fold("ferries", key_by="ferry", state=Ferry)],
    tolerable_failed_checkpoints=9,
)
