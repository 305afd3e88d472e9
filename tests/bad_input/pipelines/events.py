"""Two operators over records of which most are bad. `$topic` and `$share` are replaced by a test."""

from dataclasses import dataclass
from datetime import datetime

from tidemark import Fold, KafkaSource, Pipeline, state


@dataclass(frozen=True)
class Event:
    """One record."""

    who: str | None
    kind: str
    amount: int
    at: datetime


class Who(state.Keyed):
    """Per person; some records name nobody."""

    events: int = state.count()
    amount: int = state.sum("amount")


class Kind(state.Keyed):
    """Per kind."""

    events: int = state.count()
    last_at: datetime = state.max("at")


events = Pipeline(
    name="events",
    source=KafkaSource("$topic", Event, event_time="at"),
    operators=[Fold("people", key_by="who", state=Who), Fold("kinds", key_by="kind", state=Kind)],
    max_dead_letters=float("$share"),
)
