"""Readings of sensors: every kind of state that can be patched. `$name` is replaced by a test."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemark import Fold, KafkaSource, Pipeline, Process, state


@dataclass(frozen=True)
class Reading:
    """One record."""

    sensor: str
    room: int
    value: int | None
    at: datetime


class Sensor(state.Keyed):
    """A field of every kind that a fold has, without ttl: rows of a key merge in any order, until it is patched."""

    n: int = state.count()
    total: int | None = state.sum("value")
    least: int | None = state.min("value")
    most: int | None = state.max("value")
    earliest: int | None = state.first("value")
    newest: int | None = state.latest("value")
    average: float | None = state.mean("value")
    rooms: list[int] = state.distinct("room")
    seen: list[int] = state.list("value")
    spread: int | None = state.aggregate(
        accumulator={"lo": int, "hi": int}, partial={"lo": "min(value)", "hi": "max(value)"}, finish="hi - lo"
    )


class Fresh(state.Keyed):
    """Fields that expire, so that history is cut."""

    n: int | None = state.count(ttl=timedelta(hours=9))
    newest: int | None = state.latest("value", ttl=timedelta(hours=5))
    seen: list[int] = state.list("value", ttl=timedelta(hours=7))


class Kept(state.Keyed):
    """Kept by a function."""

    total: int = state.value(0)
    notes: list[int] = state.list()
    by_room: dict[int, int] = state.map()
    marks: dict[int, int] = state.map()


def keep(sensor: str, readings: Iterator[Reading], kept: Kept) -> None:
    """Forgets everything at a reading without a value, and a room at one that three divides."""
    for reading in readings:
        if reading.value is None:
            kept.clear()
            continue
        kept.total += reading.value
        kept.notes.append(reading.value)
        kept.by_room[reading.room] = kept.by_room.get(reading.room, 0) + 1
        if reading.value % 3 == 0:
            kept.by_room.pop(reading.room)
            kept.marks[reading.room] = reading.value


ward = Pipeline(
    name="$name",
    source=KafkaSource("readings", Reading, event_time="at"),
    operators=[
        Fold("sensors", key_by="sensor", state=Sensor),
        Fold("fresh", key_by="sensor", state=Fresh),
        Process("kept", key_by="sensor", state=Kept, function=keep),
    ],
)
