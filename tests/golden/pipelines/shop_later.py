"""The shop of `shop.py` as declared later: things renamed, widened, added and removed."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated

from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Process, state
from tidemark.state import Precision


@dataclass(frozen=True)
class Sale:
    """One record."""

    customer: str
    item: str
    pieces: int
    price: Annotated[Decimal, Precision(10, 2)]
    at: datetime


@dataclass(frozen=True)
class Alert:
    """Emitted for a large sale."""

    customer: str
    pieces: int


class Customer(state.Keyed):
    """Folded."""

    purchases: int = state.count(was="sales")
    spent: Annotated[Decimal, Precision(20, 2)] | None = state.sum("price")
    dearest: Annotated[Decimal, Precision(10, 2)] | None = state.max("price")
    cheapest: Annotated[Decimal, Precision(10, 2)] | None = state.min("price")
    last_item: str | None = state.latest("item", ttl=timedelta(hours=2))
    history: list[int] = state.list("pieces")


class Basket(state.Keyed):
    """Of a process."""

    pieces: int | None = state.value(None)
    recent: list[str] = state.list()
    held: dict[str, int] = state.map(was="by_item")
    returns: int = state.value(10)


def fill(key: str, sales: Iterator[Sale], basket: Basket) -> Iterator[Alert]:
    """Adds sales; a return of everything (pieces = 0) empties the basket."""
    for sale in sales:
        if sale.pieces == 0:
            returns = basket.returns + 1
            basket.clear()
            basket.returns = returns
            continue
        basket.pieces = (basket.pieces or 0) + sale.pieces
        basket.recent.append(sale.item)
        basket.held[sale.item] = basket.held.get(sale.item, 0) + sale.pieces
        if sale.pieces > 3:
            yield Alert(key, sale.pieces)


shop = Pipeline(
    name="shop",
    source=KafkaSource("$topic", Sale, event_time="at"),
    operators=[
        Fold("buyers", key_by="customer", state=Customer, was="customers"),
        Process("baskets", key_by="customer", state=Basket, function=fill, emits=Alert, sink=DeltaSink("alerts")),
    ],
    max_dead_letters=0.9,
)
