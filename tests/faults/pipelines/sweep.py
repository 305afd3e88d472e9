"""The pipeline of the crash sweep: two operators, dead letters of both kinds, every fold kind that is exact."""

import os
from dataclasses import dataclass
from datetime import datetime

from tidemark import Fold, KafkaSource, Pipeline, state


@dataclass(frozen=True)
class Event:
    """One record."""

    account: str | None
    shop: str
    cents: int
    note: str | None
    at: datetime


class Account(state.Keyed):
    """Per account."""

    events: int = state.count()
    cents: int = state.sum("cents")
    least: int = state.min("cents")
    first_shop: str = state.first("shop")
    last_note: str | None = state.latest("note")
    shops: list[str] = state.distinct("shop")


class Shop(state.Keyed):
    """Per shop."""

    events: int = state.count()
    mean_cents: float | None = state.mean("cents")
    last_at: datetime = state.max("at")


sweep = Pipeline(
    name="sweep",
    source=KafkaSource(os.environ.get("SWEEP_TOPIC", "sweep"), Event, event_time="at"),
    operators=[
        Fold("accounts", key_by="account", state=Account),
        Fold("shops", key_by="shop", state=Shop),
    ],
    max_dead_letters=0.5,
)
