"""Weather: how the weather at the hour of departure delayed flights out of New York, by airport, airline and engine."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from tidemark import Broadcast, DeltaSink, FlatMap, Fold, KafkaSource, Pipeline, formats, kafka, state


class Airport(Enum):
    """The airports of New York."""

    EWR = "EWR"
    JFK = "JFK"
    LGA = "LGA"


class Engine(Enum):
    """Kinds of engines, by the symbols of the Avro enum."""

    FOUR_CYCLE = "FOUR_CYCLE"
    RECIPROCATING = "RECIPROCATING"
    TURBO_FAN = "TURBO_FAN"
    TURBO_JET = "TURBO_JET"
    TURBO_PROP = "TURBO_PROP"
    TURBO_SHAFT = "TURBO_SHAFT"


@dataclass(frozen=True)
class Flight:
    """One record of the flights topic (JSON value); a cancelled flight has no departure delay."""

    tail_number: str | None
    carrier: str
    flight: int
    origin: Airport
    destination: str
    scheduled_at: datetime
    departure_delay: float | None = None


@dataclass(frozen=True)
class Observation:
    """One record of the weather topic (JSON value): the weather of an airport in the hour that Kafka's timestamp names.

    Precipitation is in inches, visibility in miles, wind in miles per hour.
    """

    origin: Airport
    precipitation: float
    visibility: float
    wind_speed: float | None = None
    hour: datetime = kafka.timestamp()


@dataclass(frozen=True)
class Plane:
    """One record of the topic planes-avro: how the aircraft in the message key was built."""

    manufacturer: str
    engine: Engine
    seats: int
    built: int | None = None
    tail_number: str = kafka.key()


@dataclass(frozen=True)
class Airline:
    """One record of the topic airlines-avro, with the airline's code in the message key."""

    name: str
    carrier: str = kafka.key()


@dataclass(frozen=True)
class Departure:
    """A flight that left, `late` minutes after its schedule; the hour is that of the schedule."""

    origin: Airport
    hour: datetime
    carrier: str
    tail_number: str | None
    late: int


@dataclass(frozen=True)
class Cancellation:
    """A flight that did not leave."""

    origin: Airport
    hour: datetime
    carrier: str
    flight: int
    destination: str


class Delays(state.Keyed):
    """Departures of one key, and their delays in minutes."""

    departures: int = state.count()
    minutes_late: int = state.sum("late")
    worst: int = state.max("late")


class Cancelled(state.Keyed):
    """Cancellations of one key."""

    flights: int = state.count()
    last_hour: datetime = state.max("hour")


class Totals(state.Keyed):
    """All flights with a schedule."""

    flights: int = state.count()
    cancelled: int = state.reduce("sum(CASE WHEN departure_delay IS NULL THEN 1 ELSE 0 END)")
    airlines: list[str] = state.distinct("carrier")


def departures(flight: Flight) -> Iterator[Departure | Cancellation]:
    """Yields a flight as what became of it."""
    hour = flight.scheduled_at.replace(minute=0, second=0, microsecond=0)
    if flight.departure_delay is None:
        yield Cancellation(flight.origin, hour, flight.carrier, flight.flight, flight.destination)
    else:
        yield Departure(flight.origin, hour, flight.carrier, flight.tail_number, int(flight.departure_delay))


SKY = (
    "CASE WHEN observed.visibility IS NULL THEN 'not observed' WHEN observed.precipitation > 0 THEN 'rain or snow'"
    " WHEN observed.visibility < 3 THEN 'mist' ELSE 'dry' END"
)
WIND = "CASE WHEN observed.wind_speed >= 20 THEN 'strong' ELSE 'light' END"
AT_ITS_HOUR = {"observed": ("origin", "hour")}

weather = Pipeline(
    name="weather",
    source=KafkaSource("flights", Flight, event_time="scheduled_at"),
    operators=[
        FlatMap(
            "departures",
            function=departures,
            emits={"left": Departure, "cancelled": Cancellation},
            sinks={"cancelled": DeltaSink("cancellations")},
        ),
        Fold(
            "airports",
            input="departures",
            join=AT_ITS_HOUR,
            where="observed.wind_speed IS NOT NULL",
            key_by={"origin": "origin", "sky": SKY, "wind": WIND},
            state=Delays,
        ),
        Fold(
            "airlines_in_rain",
            input="departures",
            join=AT_ITS_HOUR | {"airlines": "carrier"},
            where="observed.precipitation > 0",
            key_by={"airline": "airlines.name", "month": "date_trunc('month', hour)"},
            state=Delays,
        ),
        Fold(
            "engines",
            input="departures",
            join={"planes": "tail_number"},
            where="planes.built IS NOT NULL",
            key_by={"engine": "planes.engine", "decade": "planes.built - planes.built % 10"},
            state=Delays,
        ),
        Fold(
            "cancelled",
            input="departures.cancelled",
            join=AT_ITS_HOUR,
            key_by={"sky": SKY},
            state=Cancelled,
        ),
        Fold("totals", key_by=(), state=Totals),
    ],
    broadcast=[
        Broadcast("observed", KafkaSource("weather", Observation), key_by=("origin", "hour")),
        Broadcast("planes", KafkaSource("planes-avro", Plane, format=formats.Avro()), key_by="tail_number"),
        Broadcast("airlines", KafkaSource("airlines-avro", Airline, format=formats.Avro()), key_by="carrier"),
    ],
)
