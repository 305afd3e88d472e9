"""A pipeline with every kind of process state, over most types, and random records for it."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Process, state
from tidemark.state import Precision

DAY = datetime(2020, 1, 1, tzinfo=UTC)
Cents = Annotated[Decimal, Precision(12, 2)]


@dataclass(frozen=True)
class Place:
    """A struct in a record."""

    city: str
    floor: int | None = None


@dataclass(frozen=True)
class Visit:
    """One record."""

    who: str | None
    room: int
    at: datetime
    paid: Cents | None = None
    degrees: float | None = None
    day: date | None = None
    raw: bytes | None = None
    place: Place | None = None
    tags: list[str] | None = None


@dataclass(frozen=True)
class Seen:
    """The output of the process `people`."""

    who: str
    room: int | None
    visits: int
    at: datetime
    spent: Cents
    places: list[Place]


class Person(state.Keyed):
    """A state with every kind of process state."""

    visits: int = state.value(0)
    spent: Cents | None = state.value(None)
    last: Visit | None = state.value(None)
    last_at: datetime | None = state.value(None, ttl=timedelta(hours=3))
    mood: str | None = state.value("calm")
    recent: list[int] = state.list(limit=50)
    places: list[Place] = state.list(ttl=timedelta(hours=2))
    rooms: dict[int, int] = state.map(ttl=timedelta(hours=4))
    days: dict[str, Place] = state.map()


class Room(state.Keyed):
    """A fold behind the process."""

    n: int = state.count()
    last_visits: int | None = state.latest("visits")


class Chained(state.Keyed):
    """A process behind the process."""

    visits: int = state.value(0)
    at: list[datetime] = state.list()


def follow(who: str, visits: Iterator[Visit], remembered: Person) -> Iterator[Seen]:
    """Exercises every kind of state; the room decides which operations run."""
    for visit in visits:
        if visit.room == 13:
            raise ValueError(f"no room {visit.room}")
        remembered.visits += 1
        remembered.spent = (remembered.spent or Decimal(0)) + (visit.paid or Decimal(0))
        remembered.last, remembered.last_at = visit, visit.at
        remembered.recent.append(visit.room)
        del remembered.recent[:-3]
        if visit.place is not None:
            remembered.places.append(visit.place)
            remembered.days[visit.at.date().isoformat()] = visit.place
        remembered.rooms[visit.room] = remembered.rooms.get(visit.room, 0) + 1
        if visit.room == 7:
            remembered.clear()
        if visit.room == 6:
            remembered.mood = None if remembered.mood == "calm" else "calm"
            remembered.rooms.pop(1, None)
            remembered.days.clear()
        if visit.room % 2 == 0:
            spent = remembered.spent or Decimal(0)
            room = None if visit.room == 4 else visit.room
            yield Seen(who, room, remembered.visits, visit.at, spent, list(remembered.places))
            yield Seen(who, visit.room, -1, visit.at, spent, [])


def count_rooms(room: int, seen: Iterator[Seen], remembered: Chained) -> None:
    """Emits nothing."""
    for one in seen:
        remembered.visits += 1
        remembered.at.append(one.at)


PIPELINE = Pipeline(
    name="house",
    source=KafkaSource("visits", Visit, event_time="at"),
    operators=[
        Process("by_room", key_by="room", state=Chained, function=count_rooms, input="people", order="event_time"),
        Fold("rooms", key_by=("room", "who"), state=Room, input="people"),
        Process(
            "people",
            key_by="who",
            state=Person,
            function=follow,
            emits=Seen,
            sink=DeltaSink("seen"),
            on_error="dead_letter",
        ),
    ],
    max_dead_letters=1.0,
)


def visits(chance: random.Random, n: int) -> list[object]:
    """Random records, some of them malformed, with event times in no order."""
    found: list[object] = []
    for _ in range(n):
        if chance.random() < 0.05:
            found.append(chance.choice([b"{", None, b'{"who":1}']))
            continue
        optional: dict[str, Any] = {
            "paid": Decimal(chance.randrange(-500, 5000)) / 100,
            "degrees": chance.uniform(-5, 5),
            "day": date(2020, 1, chance.randrange(1, 28)),
            "raw": bytes([chance.randrange(256)]),
            "place": Place(chance.choice("xyü"), chance.choice([None, 1, 2])),
            "tags": [chance.choice("pq") for _ in range(chance.randrange(3))],
        }
        found.append(
            Visit(
                who=chance.choice(["ann", "bob", "cyd", "dé\x00", None]),
                room=chance.choice([1, 2, 3, 4, 5, 6, 7, 13]),
                at=DAY + timedelta(minutes=chance.randrange(600)),
                **{k: v for k, v in optional.items() if chance.random() < 0.7},
            )
        )
    return found
