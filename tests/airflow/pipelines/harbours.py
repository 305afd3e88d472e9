"""Pipelines for schedules: by ships that wait, behind the checkpoints of the first, and every few seconds."""

from dataclasses import dataclass
from datetime import timedelta

from tidemark import Fold, KafkaSource, Pipeline, state


@dataclass(frozen=True)
class Ship:
    """One ship."""

    harbour: str


class Harbour(state.Keyed):
    """What is remembered about one harbour."""

    ships: int = state.count()


arrivals = Pipeline(
    name="arrivals",
    source=KafkaSource("ships", Ship),
    operators=[Fold("harbours", key_by="harbour", state=Harbour)],
    min_pause=timedelta(milliseconds=500),
)
berths = Pipeline(
    name="berths",
    source=KafkaSource("ships", Ship),
    operators=[Fold("harbours", key_by="harbour", state=Harbour)],
    min_pause=timedelta(seconds=30),
)
tides = Pipeline(
    name="tides",
    source=KafkaSource("tides", Ship),
    operators=[Fold("harbours", key_by="harbour", state=Harbour)],
)
