"""A pipeline whose folds join broadcast states, by one and by two key columns, to source records and emitted ones."""

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
    """A row of the external table, which has two key columns."""

    line: int
    bus: str
    name: str | None


@dataclass(frozen=True)
class Crowd:
    """The output of a process; its field and the key that it joins have different names."""

    vehicle: str | None
    riders: int


class Yard(state.Keyed):
    """The state per line and depot; the depot comes from the join."""

    n: int = state.count()
    riders: int | None = state.sum("riders")
    seats: int | None = state.sum("buses.seats")
    driver: str | None = state.latest("drivers.name")


class BusLine(state.Keyed):
    """The state per line, which is a field of the record."""

    n: int = state.count()
    depots: list[str] = state.distinct("buses.depot")
    last: Bus | None = state.latest("buses")


class Crowded(state.Keyed):
    """The state per depot, which is joined to emitted records."""

    riders: int | None = state.sum("riders")


class Nothing(state.Keyed):
    """A state for a process that needs none."""

    n: int = state.value(0)


def crowds(line: int, trips: Iterator[Trip], remembered: Nothing) -> Iterator[Crowd]:
    """Emits each trip with more than five riders."""
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
