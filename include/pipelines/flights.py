"""Flights: the history of every aircraft and route, and alerts for departures that are late due to a late arrival."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tidemark import Broadcast, DeltaSink, Fold, KafkaSource, Pipeline, Process, state

LATE = 30
"""Minutes."""


@dataclass(frozen=True)
class Flight:
    """One record of the flights topic (JSON value): one flight out of New York in 2013.

    Delays and times are in minutes; they are null if the flight was cancelled or diverted.
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
    """The state of one aircraft."""

    flights: int = state.count()
    distance: int = state.sum("distance")
    worst_delay: float | None = state.max("arrival_delay")
    first_seen_at: datetime = state.min("scheduled_at")
    last_seen_at: datetime = state.max("scheduled_at")
    last_airport: str = state.latest("destination")
    carriers: list[str] = state.distinct("carrier")


class Route(state.Keyed):
    """The state of one route. A mean of floats is not exact: it depends on the positions of the barriers."""

    flights: int = state.count()
    distance: int = state.sum("distance")
    worst_delay: float | None = state.max("arrival_delay")
    shortest_air_time: float | None = state.min("air_time")
    mean_arrival_delay: float | None = state.mean("arrival_delay")
    carriers: list[str] = state.distinct("carrier")
    first_carrier: str = state.first("carrier")
    last_tail_number: str | None = state.latest("tail_number", ignore_nulls=True)


@dataclass(frozen=True)
class Plane:
    """One record of the planes topic: how an aircraft was built."""

    tail_number: str
    manufacturer: str
    model: str
    engines: int
    seats: int
    year: int | None = None


@dataclass(frozen=True)
class Airline:
    """One record of the airlines topic."""

    carrier: str
    name: str


@dataclass(frozen=True)
class Leg:
    """The previous flight of an aircraft."""

    flight: int
    scheduled_at: datetime
    arrival_delay: float | None


class Rotation(state.Keyed):
    """The state that decides about an aircraft's next departure; `late` has the late departures of the last week."""

    inbound: Leg | None = state.value(None, ttl=timedelta(hours=24))
    late: list[datetime] = state.list(ttl=timedelta(days=7))
    destinations: dict[str, int] = state.map()


@dataclass(frozen=True)
class KnockOnDelay:
    """An alert: the aircraft left late after a late arrival within the 24 hours before. Delays are in minutes."""

    tail_number: str
    flight: int
    origin: str
    scheduled_at: datetime
    departure_delay: float
    inbound_flight: int
    inbound_delay: float
    late_this_week: int
    airline: str | None
    model: str | None


def knock_on_delays(
    key: str, flights: Iterable[Flight], remembered: Rotation, broadcast: Mapping[str, Mapping[Any, Any]]
) -> Iterator[KnockOnDelay]:
    """Remembers each flight of an aircraft, and emits an alert when a delay carries over to the next departure."""
    plane = broadcast["planes"].get(key)
    for flight in flights:
        inbound, delay = remembered.inbound, flight.departure_delay or 0.0
        if delay >= LATE:
            remembered.late.append(flight.scheduled_at)
        if delay >= LATE and inbound is not None and (inbound.arrival_delay or 0.0) >= LATE:
            airline = broadcast["airlines"].get(flight.carrier)
            yield KnockOnDelay(
                tail_number=key,
                flight=flight.flight,
                origin=flight.origin,
                scheduled_at=flight.scheduled_at,
                departure_delay=delay,
                inbound_flight=inbound.flight,
                inbound_delay=inbound.arrival_delay or 0.0,
                late_this_week=len(remembered.late),
                airline=airline.name if airline else None,
                model=plane.model if plane else None,
            )
        remembered.destinations[flight.destination] = remembered.destinations.get(flight.destination, 0) + 1
        remembered.inbound = Leg(flight.flight, flight.scheduled_at, flight.arrival_delay)


def expectations() -> dict[str, Any]:
    """Returns the expectations that must hold before a checkpoint is published; imports Great Expectations only now."""
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
        Process(
            "rotations",
            key_by="tail_number",
            state=Rotation,
            function=knock_on_delays,
            emits=KnockOnDelay,
            sink=DeltaSink("knock_on_delays"),
        ),
    ],
    broadcast=[
        Broadcast("planes", KafkaSource("planes", Plane), key_by="tail_number"),
        Broadcast("airlines", KafkaSource("airlines", Airline), key_by="carrier"),
    ],
    gate=expectations,
    max_dead_letters=0.05,
)
