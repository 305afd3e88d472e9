"""A till: two operators, one of them with a composite key of three types. `$topic` is replaced by a test."""

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated

from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.model.core.types import Precision


@dataclass(frozen=True)
class Sale:
    """One record."""

    account: str | None
    shop: str
    till: int
    day: date
    price: Annotated[Decimal, Precision(10, 2)]
    note: str | None
    at: datetime


class Account(state.Keyed):
    """Per account."""

    sales: int = state.count()
    last_note: str | None = state.latest("note")
    shops: list[str] = state.distinct("shop")
    last_at: datetime = state.max("at")


class Till(state.Keyed):
    """Per shop, till and day."""

    sales: int = state.count()
    total: Annotated[Decimal, Precision(38, 2)] = state.sum("price")


till = Pipeline(
    name="till",
    source=KafkaSource("$topic", Sale, event_time="at"),
    operators=[
        Fold("accounts", key_by="account", state=Account),
        Fold("tills", key_by=("shop", "till", "day"), state=Till),
    ],
    max_dead_letters=0.5,
)
