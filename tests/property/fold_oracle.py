"""Pipelines, records and a brute-force fold for property tests; nothing of the product decides what is right here."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.testing import BARRIER, CRASH, Barrier, Crash, Script

DAY = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Reading:
    """One record."""

    sensor: str | None
    room: int
    value: int | None
    at: datetime


class Sensor(state.Keyed):
    """One field of every kind."""

    n: int = state.count()
    total: int | None = state.sum("value")
    least: int | None = state.min("value")
    most: int | None = state.max("value")
    earliest: int | None = state.first("value")
    newest: int | None = state.latest("value")
    known: int | None = state.latest("value", ignore_nulls=True)
    average: float | None = state.mean("value")
    rooms: list[int] = state.distinct("room")


class Room(state.Keyed):
    """A second operator, with a key of two columns."""

    n: int = state.count()


PIPELINE = Pipeline(
    name="house",
    source=KafkaSource("readings", Reading, event_time="at"),
    operators=[
        Fold("sensors", key_by="sensor", state=Sensor),
        Fold("rooms", key_by=("room", "sensor"), state=Room),
    ],
    max_dead_letters=1.0,
)

READINGS = st.builds(
    Reading,
    sensor=st.sampled_from(["a", "b", "ü\x00", None]),
    room=st.integers(-3, 3),
    value=st.none() | st.integers(-(2**40), 2**40),
    at=st.integers(0, 5).map(lambda n: DAY + timedelta(hours=n)),
)
RECORDS = st.lists(READINGS | st.sampled_from([b"{", b"\xff", b"[]", None, b'{"sensor":1}']), max_size=14)
STEPS = ["ids", "queries", "plan", "attempt", "read", "gate", "fsync", "seal", "publish"]
"""Crash points that every checkpoint passes."""
CRASHES = st.builds(CRASH.at, st.sampled_from(STEPS), st.sampled_from(["before", "after"]))


@st.composite
def scripts(draw: st.DrawFn) -> tuple[Script, list[list[object]]]:
    """A script, and the records before each of its barriers."""
    script: list[Iterable[object] | Barrier | Crash] = []
    cuts: list[list[object]] = []
    for _ in range(draw(st.integers(1, 5))):
        records: list[object] = list(draw(RECORDS))
        crash = draw(st.none() | CRASHES)
        script += [records, *([crash] if crash else []), BARRIER]
        cuts.append(records)
    return script, cuts


def fold(records: list[object], partitions: int) -> dict[str, dict[str, object]]:
    """State of every sensor, by one pass over all records in the order of (event time, partition, offset)."""
    placed = [(r.at, n % partitions, n // partitions, r) for n, r in enumerate(records) if isinstance(r, Reading)]
    found: dict[str, dict[str, object]] = {}
    for sensor in {r.sensor for *_, r in placed if r.sensor is not None}:
        mine = [r for *_, r in sorted(placed, key=lambda p: p[:3]) if r.sensor == sensor]
        values = [r.value for r in mine if r.value is not None]
        found[sensor] = {
            "n": len(mine),
            "total": sum(values) if values else None,
            "least": min(values, default=None),
            "most": max(values, default=None),
            "earliest": mine[0].value,
            "newest": mine[-1].value,
            "known": values[-1] if values else None,
            "average": sum(values) / len(values) if values else None,
            "rooms": sorted({r.room for r in mine}),
        }
    return found
