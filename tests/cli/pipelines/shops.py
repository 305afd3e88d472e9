"""Sales by expressions: a key of a text and a day, a condition, and one row over all. `$topic` is replaced."""

from dataclasses import dataclass
from datetime import datetime

from tidemark import Fold, KafkaSource, Pipeline, state


@dataclass(frozen=True)
class Sale:
    """One record."""

    account: str | None
    shop: str
    till: int
    at: datetime


class Sales(state.Keyed):
    """What is counted."""

    sales: int = state.count()
    last_account: str | None = state.latest("account")


shops = Pipeline(
    name="shops",
    source=KafkaSource("$topic", Sale, event_time="at"),
    operators=[
        Fold("days", key_by={"shop": "upper(shop)", "day": "date_trunc('day', at)"}, where="till >= 0", state=Sales),
        Fold("total", key_by=(), where="account LIKE '%b'", state=Sales),
    ],
)
