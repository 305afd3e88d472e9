"""Punctuality: departures per airport and hour, aircraft that are not seen for a week, and each flight's weather."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pipelines.weather import Airport, Flight, Observation
from tidemark import DeltaSink, Fold, IntervalJoin, KafkaSource, Pipeline, Process, Tumbling, Watermark, state

WEEK = timedelta(days=7)
IN_ORDER = Watermark(delay="0s")
"""Each partition of both topics is in the order of time."""


class Hour(state.Keyed):
    """The departures of an airport in an hour by the schedule, and their delays in minutes."""

    departures: int = state.count()
    minutes_late: float | None = state.sum("departure_delay")
    worst: float | None = state.max("departure_delay")


class Seen(state.Keyed):
    """An aircraft, as it was seen last."""

    flights: int = state.value(0)
    at: datetime | None = state.value(None)
    airport: str = state.value("")


@dataclass(frozen=True)
class Missing:
    """An aircraft that has not left New York for a week."""

    tail_number: str
    flights: int
    seen_at: datetime
    airport: str


def remember(tail_number: str, flights: Iterator[Flight], seen: Seen, *, timers: Any) -> None:
    """Remembers each flight, and waits for another one for a week."""
    for flight in flights:
        seen.flights += 1
        seen.at, seen.airport = flight.scheduled_at, flight.origin.value
        timers.set("missing", flight.scheduled_at + WEEK)


def report(tail_number: str, name: str, at: datetime, seen: Seen) -> Iterator[Missing]:
    """Emits the aircraft; its next flight sets the timer again."""
    if seen.at is not None:
        yield Missing(tail_number, seen.flights, seen.at, seen.airport)


@dataclass(frozen=True)
class InWeather:
    """A flight with the weather of its hour, which is null without an observation."""

    origin: Airport
    carrier: str
    flight: int
    scheduled_at: datetime
    departure_delay: float | None
    visibility: float | None
    wind_speed: float | None


LEFT = "departure_delay IS NOT NULL"

punctuality = Pipeline(
    name="punctuality",
    sources={
        "flights": KafkaSource("flights", Flight, event_time="scheduled_at", watermark=IN_ORDER),
        "weather": KafkaSource("weather", Observation, watermark=IN_ORDER),
    },
    operators=[
        Fold(
            "hours",
            input="flights",
            key_by="origin",
            where=LEFT,
            state=Hour,
            window=Tumbling("1h"),
            sink=DeltaSink("hourly_departures"),
        ),
        Process(
            "missing",
            input="flights",
            key_by="tail_number",
            where=LEFT,
            state=Seen,
            function=remember,
            on_timer=report,
            emits=Missing,
            sink=DeltaSink("missing_aircraft"),
        ),
        IntervalJoin(
            "delays",
            left="flights",
            right="weather",
            key_by={"flights": "origin", "weather": "origin"},
            within=(timedelta(milliseconds=1) - timedelta(hours=1), "0m"),
            how="left",
            select={
                "origin": "flights.origin",
                "carrier": "flights.carrier",
                "flight": "flights.flight",
                "scheduled_at": "flights.scheduled_at",
                "departure_delay": "flights.departure_delay",
                "visibility": "weather.visibility",
                "wind_speed": "weather.wind_speed",
            },
            emits=InWeather,
            sink=DeltaSink("flights_in_weather"),
        ),
    ],
)
