"""Wards whose operators have windows and timers."""

from tests.publications.changelog_ward import ChangelogWard
from tests.publications.postgres_ward import PostgresWard
from tests.publications.published_ward import PublishedWard
from tests.publications.topic_ward import TopicWard

UIDS = ("tumbling", "sliding", "sessions", "quiet")
DECLARATION = '''
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tidemark import Fold, KafkaSource, Pipeline, Process, Session, Sliding, Tumbling, Watermark, state


@dataclass(frozen=True)
class Reading:
    """One record."""

    sensor: str
    room: int
    value: int | None
    at: datetime


class Sensor(state.Keyed):
    """Per sensor and window."""

    n: int = state.count()
    total: int | None = state.sum("value")
    rooms: list[int] = state.distinct("room")


class Kept(state.Keyed):
    """Per sensor."""

    total: int = state.value(0)
    by_room: dict[int, int] = state.map()
    silences: int = state.value(0)


def keep(sensor: str, readings: Iterator[Reading], kept: Kept, *, timers: Any) -> None:
    for reading in readings:
        kept.total += reading.value or 0
        kept.by_room[reading.room] = kept.by_room.get(reading.room, 0) + 1
        timers.set("silent", reading.at + timedelta(hours=9))
        if reading.value is None:
            timers.cancel("silent")
            kept.clear()


def report(sensor: str, name: str, at: datetime, kept: Kept, *, timers: Any) -> None:
    kept.silences += 1
    if kept.silences < 3:
        timers.set("again", at + timedelta(hours=5))


ward = Pipeline(
    name="$name",
    source=KafkaSource("readings", Reading, event_time="at", watermark=Watermark(delay="2h")),
    operators=[
        Fold("tumbling", key_by="sensor", state=Sensor, window=Tumbling("6h")),
        Fold("sliding", key_by="sensor", state=Sensor, window=Sliding("6h", every="2h")),
        Fold("sessions", key_by="sensor", state=Sensor, window=Session("4h")),
        Process("quiet", key_by="sensor", state=Kept, function=keep, on_timer=report),
    ],
)
'''


class _Timed:
    declaration: str = DECLARATION
    uids: tuple[str, ...] = UIDS


class TimedWard(_Timed, PublishedWard):
    """It has mirrors."""


class TimedChangelogWard(_Timed, ChangelogWard):
    """It has change logs."""


class TimedPostgresWard(_Timed, PostgresWard):
    """It has tables in PostgreSQL."""


class TimedTopicWard(_Timed, TopicWard):
    """It has compacted topics."""
