"""A pipeline whose folds join broadcast states, by a key of one column and of two, to records read and emitted."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark import Broadcast, DeltaTable, Fold, KafkaSource, Pipeline, Process, state

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Trip:
    """A record."""

    bus: str | None
    line: int
    riders: int
    at: datetime


@dataclass(frozen=True)
class Bus:
    """A row of the broadcast topic."""

    bus: str
    depot: str | None
    seats: int


@dataclass(frozen=True)
class Driver:
    """A row of the foreign table, by two columns."""

    line: int
    bus: str
    name: str | None


@dataclass(frozen=True)
class Crowd:
    """What a process emits; its field is called otherwise than the key that it is joined by."""

    vehicle: str | None
    riders: int


class Yard(state.Keyed):
    """Of one line and depot: the depot is joined."""

    n: int = state.count()
    riders: int | None = state.sum("riders")
    seats: int | None = state.sum("buses.seats")
    driver: str | None = state.latest("drivers.name")


class BusLine(state.Keyed):
    """Of one line, which is a field of the record."""

    n: int = state.count()
    depots: list[str] = state.distinct("buses.depot")
    last: Bus | None = state.latest("buses")


class Crowded(state.Keyed):
    """Of one depot, joined to what is emitted."""

    riders: int | None = state.sum("riders")


class Nothing(state.Keyed):
    """A process needs a state."""

    n: int = state.value(0)


def crowds(line: int, trips: Iterator[Trip], remembered: Nothing) -> Iterator[Crowd]:
    """Emits every trip of many."""
    for trip in trips:
        if trip.riders > 5:
            yield Crowd(trip.bus, trip.riders)


BUSES = Pipeline(
    name="buses",
    source=KafkaSource("trips", Trip, event_time="at"),
    operators=[
        Fold("crowded", key_by="buses.depot", state=Crowded, input="crowds", join={"buses": "vehicle"}),
        Fold("yards", key_by=("line", "buses.depot"), state=Yard, join={"buses": "bus", "drivers": ("line", "bus")}),
        Fold("lines", key_by="line", state=BusLine, join={"buses": "bus"}, deletes=True),
        Process("crowds", key_by="line", state=Nothing, function=crowds, emits=Crowd),
    ],
    broadcast=[
        Broadcast("buses", KafkaSource("buses", Bus), key_by="bus"),
        Broadcast("drivers", DeltaTable("/drivers", Driver), key_by=("line", "bus")),
    ],
    max_dead_letters=1.0,
)
