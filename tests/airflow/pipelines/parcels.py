"""A pipeline for the browser: parcels of depots; sums tell doubles, heavy ones are emitted."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Process, state


@dataclass(frozen=True)
class Parcel:
    """One parcel."""

    depot: str | None
    grams: int
    sent_at: datetime


class Depot(state.Keyed):
    """What is remembered about one depot."""

    parcels: int = state.count()
    grams: int = state.sum("grams")


class Scales(state.Keyed):
    """The heaviest parcel of a depot."""

    heaviest: int = state.value(0)


@dataclass(frozen=True)
class Heavy:
    """A parcel that was heavier than all before it."""

    depot: str
    grams: int


def weigh(depot: str, parcels: Iterator[Parcel], scales: Scales) -> Iterator[Heavy]:
    """Emits each new maximum."""
    for parcel in parcels:
        if parcel.grams > scales.heaviest:
            scales.heaviest = parcel.grams
            yield Heavy(depot, parcel.grams)


parcels = Pipeline(
    name="parcels",
    source=KafkaSource("parcels", Parcel, event_time="sent_at"),
    operators=[
        Fold("depots", key_by="depot", state=Depot),
        Process("scales", key_by="depot", state=Scales, function=weigh, emits=Heavy, sink=DeltaSink("heavy")),
    ],
    max_dead_letters=0.5,
)
