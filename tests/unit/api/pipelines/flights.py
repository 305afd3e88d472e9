"""Flights, small enough for examples: two folds, and a process with a sink."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Process, state

LATE = 30


@dataclass(frozen=True)
class Flight:
    """One record of the flights topic."""

    tail_number: str
    origin: str
    destination: str
    distance: int
    scheduled_at: datetime
    departure_delay: float


class Aircraft(state.Keyed):
    """What is remembered about one aircraft."""

    flights: int = state.count()
    distance: int = state.sum("distance")
    last_airport: str = state.latest("destination")


class Route(state.Keyed):
    """What is remembered about one pair of airports."""

    flights: int = state.count()


class Rotation(state.Keyed):
    """How often an aircraft was late."""

    late: int = state.value(0)


@dataclass(frozen=True)
class KnockOnDelay:
    """A late departure."""

    tail_number: str
    departure_delay: float


def knock_on_delays(key: str, flights: Iterable[Flight], remembered: Rotation) -> Iterator[KnockOnDelay]:
    """Emits each flight that was late."""
    for flight in flights:
        if flight.departure_delay >= LATE:
            remembered.late += 1
            yield KnockOnDelay(key, flight.departure_delay)


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
)
