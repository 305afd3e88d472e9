"""A pipeline for DAG tests: trips of buses."""

from dataclasses import dataclass
from datetime import datetime

from tidemark import Fold, KafkaSource, Pipeline, state


@dataclass(frozen=True)
class Trip:
    """One trip."""

    bus: str | None
    miles: int
    ended_at: datetime


class Bus(state.Keyed):
    """What is remembered about one bus."""

    trips: int = state.count()
    miles: int = state.sum("miles")


trips = Pipeline(
    name="trips",
    source=KafkaSource("trips", Trip, event_time="ended_at"),
    operators=[Fold("buses", key_by="bus", state=Bus)],
    max_dead_letters=0.5,
    tolerable_failed_checkpoints=2,
)
