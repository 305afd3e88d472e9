"""Flights: what every aircraft and every route has done, folded from the flights topic."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemark import Fold, KafkaSource, Pipeline, state


@dataclass(frozen=True)
class Flight:
    """One record of the flights topic (JSON value): one flight out of New York in 2013.

    Delays and times are minutes; they are null where the flight was cancelled or diverted.
    """

    tail_number: str | None
    carrier: str
    flight: int
    origin: str
    destination: str
    distance: int
    scheduled_at: datetime
    departure_delay: float | None = None
    arrival_delay: float | None = None
    air_time: float | None = None


class Aircraft(state.Keyed):
    """What is remembered about one aircraft."""

    flights: int = state.count()
    distance: int = state.sum("distance")
    worst_delay: float | None = state.max("arrival_delay")
    first_seen_at: datetime = state.min("scheduled_at")
    last_seen_at: datetime = state.max("scheduled_at")
    last_airport: str = state.latest("destination")
    carriers: list[str] = state.distinct("carrier")


class Route(state.Keyed):
    """What is remembered about one route. A mean of floats depends on where barriers cut: it is not exact."""

    flights: int = state.count()
    distance: int = state.sum("distance")
    worst_delay: float | None = state.max("arrival_delay")
    shortest_air_time: float | None = state.min("air_time")
    mean_arrival_delay: float | None = state.mean("arrival_delay")
    carriers: list[str] = state.distinct("carrier")
    first_carrier: str = state.first("carrier")
    last_tail_number: str | None = state.latest("tail_number", ignore_nulls=True)


def expectations() -> dict[str, Any]:
    """What must hold before a checkpoint is published. Great Expectations is imported when it is asked, not before."""
    import great_expectations.expectations as gxe

    return {
        "records": [
            gxe.ExpectColumnValuesToBeBetween(column="distance", min_value=1),
            gxe.ExpectColumnValuesToBeInSet(column="origin", value_set=["EWR", "JFK", "LGA"]),
        ],
        "changes": {"aircraft": [gxe.ExpectColumnValuesToNotBeNull(column="tail_number")]},
    }


flights = Pipeline(
    name="flights",
    source=KafkaSource("flights", Flight, event_time="scheduled_at"),
    operators=[
        Fold("aircraft", key_by="tail_number", state=Aircraft),
        Fold("routes", key_by=("origin", "destination"), state=Route),
    ],
    gate=expectations,
    max_dead_letters=0.05,
)
