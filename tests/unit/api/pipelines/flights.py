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
    arrival_delay: float


class Aircraft(state.Keyed):
    """What is remembered about one aircraft."""

    flights: int = state.count()
    distance: int = state.sum("distance")
    last_airport: str = state.latest("destination")


class Route(state.Keyed):
    """What is remembered about one pair of airports."""

    flights: int = state.count()


class Delays(state.Keyed):
    """How often an aircraft was late."""

    late: int = state.value(0)


@dataclass(frozen=True)
class Delay:
    """A late arrival."""

    tail_number: str
    minutes: float


def late_arrivals(key: str, flights: Iterable[Flight], remembered: Delays) -> Iterator[Delay]:
    """Emits each flight that was late."""
    for flight in flights:
        if flight.arrival_delay >= LATE:
            remembered.late += 1
            yield Delay(key, flight.arrival_delay)


flights = Pipeline(
    name="flights",
    source=KafkaSource("flights", Flight, event_time="scheduled_at"),
    operators=[
        Fold("aircraft", key_by="tail_number", state=Aircraft),
        Fold("routes", key_by=("origin", "destination"), state=Route),
        Process(
            "delays",
            key_by="tail_number",
            state=Delays,
            function=late_arrivals,
            emits=Delay,
            sink=DeltaSink("delays"),
        ),
    ],
)
