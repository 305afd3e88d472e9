"""A record with a field of every type, operators with every kind of state, and handmade plans."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Literal
from uuid import UUID

from tidemark import state
from tidemark.declare.pipeline import Fold, KafkaSource, Pipeline
from tidemark.model.checkpoint.plan import CheckpointPlan, Slot
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.offsets import OffsetRange, OffsetRanges, TopicPartition
from tidemark.model.core.types import Precision

LOGICAL_TIME_MS = 1_700_000_000_000
Cents = Annotated[Decimal, Precision(12, 2)]


@dataclass(frozen=True)
class Place:
    """A struct inside a record."""

    city: str
    floor: int | None = None


class Kind(Enum):
    """A member's value is stored, not its name."""

    INSIDE = "inside"
    OUTSIDE = "out's\\ide"


class Grade(IntEnum):
    """An Enum of integers."""

    GOOD = 1
    BAD = 2


@dataclass(frozen=True)
class Floor:
    """A struct in a list, with a default."""

    number: int = 0
    kind: Kind = Kind.INSIDE


@dataclass(frozen=True)
class Reading:
    """A record with a field of each type."""

    device: str
    at: datetime
    count: int
    group: int | None = None
    amount: Cents | None = None
    degrees: float | None = None
    ok: bool | None = None
    day: date | None = None
    raw: bytes | None = None
    tags: list[str] | None = None
    place: Place | None = None
    places: list[Place] | None = None
    numbers: list[int | None] | None = None
    kind: Kind | None = None
    grade: Grade = Grade.GOOD
    unit: Literal["°C", 'it\'s \\ "K"'] = "°C"
    mark: UUID | None = None
    opens: time | None = None
    floors: list[Floor] = field(default_factory=list)
    labels: dict[str, int | None] | None = None
    rooms: dict[Kind, list[Floor]] = field(default_factory=dict)
    note: str = 'it\'s \\ "so"'
    price: Cents = Decimal("1.5")
    closes: time = time(18, 30)
    share: float | None = 0.5


class Device(state.Keyed):
    """A state with every kind, over most types."""

    readings: int = state.count()
    total: int | None = state.sum("count")
    spent: Cents | None = state.sum("amount")
    mean_count: float | None = state.mean("count")
    mean_amount: float | None = state.mean("amount")
    coldest: float | None = state.min("degrees")
    hottest: float | None = state.max("degrees")
    first_day: date | None = state.min("day")
    last_tag: bytes | None = state.max("raw")
    was_ok: bool | None = state.max("ok")
    first_at: datetime | None = state.min("at")
    first_amount: Cents | None = state.first("amount")
    last_amount: Cents | None = state.latest("amount")
    known_amount: Cents | None = state.latest("amount", ignore_nulls=True)
    last_tags: list[str] | None = state.latest("tags")
    last_place: Place | None = state.latest("place")
    counts: list[int] = state.distinct("count", limit=1000)
    cities: list[str] = state.distinct("place.city")


class ByDay(state.Keyed):
    """A state with a composite key whose columns are nullable in the record."""

    readings: int = state.count()
    first_device: str | None = state.first("device")
    total: int | None = state.sum("count")


def pipeline(topic: str, **options: object) -> Pipeline:
    """Two operators over a topic."""
    return Pipeline(
        name="readings",
        source=KafkaSource(topic, Reading, event_time="at"),
        operators=[
            Fold("devices", key_by="device", state=Device),
            Fold("days", key_by=("group", "ok"), state=ByDay),
        ],
        **options,  # type: ignore[arg-type]
    )


def plan_of(
    made_for: Pipeline,
    number: int,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    handles: Mapping[str, StateHandle] | None = None,
    dead_letters: Mapping[str, StateHandle] | None = None,
) -> CheckpointPlan:
    """Builds a plan without the planner, as the planner would store it."""
    schemas = made_for.schemas()
    return CheckpointPlan(
        pipeline=made_for.name,
        id=number,
        slot=Slot(timeline="t1", sequence=number),
        parent=number - 1 or None,
        ranges=OffsetRanges({tp: OffsetRange(*bounds) for tp, bounds in ranges.items()}),
        topic_ids={tp.topic: f"{tp.topic}/1" for tp in ranges},
        sources={name: s.names for name, s in made_for.inputs.items()},
        handles={uid: (handles or {}).get(uid, StateHandle()) for uid in schemas},
        dead_letters={uid: (dead_letters or {}).get(uid, StateHandle()) for uid in schemas},
        tables={uid: f"{made_for.name}/state/{uid}/t1-1" for uid in schemas},
        schemas=schemas,
        adopted={},
        logical_time_ms=LOGICAL_TIME_MS,
        watermark_ms=None,
        interval=None,
        covers=True,
        isolation="read_committed",
        fingerprint=made_for.fingerprint,
        formats=made_for.formats,
        losses=(),
        origin="test",
        planned_at_ms=LOGICAL_TIME_MS,
        write_id="0" * 32,
    )
