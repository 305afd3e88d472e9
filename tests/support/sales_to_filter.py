"""Sales and shops for tests of conditions and key expressions: folds, a process, a join, deletes."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemark import Broadcast, FlatMap, Fold, KafkaSource, Pipeline, Process, state

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Shop:
    """A row of the broadcast state."""

    name: str
    city: str | None
    is_open: bool


@dataclass(frozen=True)
class Customer:
    """A nested part of a sale."""

    country: str | None


@dataclass(frozen=True)
class Sale:
    """A record of the source."""

    shop: str | None
    amount: int | None
    customer: Customer | None
    at: datetime


class Sales(state.Keyed):
    """The state of a key."""

    sales: int = state.count()
    amount: int | None = state.max("amount")
    last: int | None = state.latest("amount")


class Cities(state.Keyed):
    """The state of a joined key."""

    sales: int = state.count()


class Seen(state.Keyed):
    """The state of the process."""

    sales: int = state.value(0)


def pass_on(key: tuple[str, int], sales: Iterator[Sale], seen: Any) -> Iterator[Sale]:
    """Counts the sales of a key, and emits each."""
    name, weekday = key
    assert name == name.translate(UPPER)
    assert 1 <= weekday <= 7
    for sale in sales:
        seen.sales += 1
        yield sale


def twice(sale: Sale) -> Iterator[Sale]:
    """Emits each sale two times."""
    yield sale
    yield sale


UPPER = {ord(c): ord(c) - 32 for c in "abcdefghijklmnopqrstuvwxyz"}
HOURS = {"shop": "lower(shop)", "hour": "date_trunc('hour', at)"}
WHERE = "amount > 0 AND coalesce(customer.country, 'CH') <> 'XX'"
PIPELINE = Pipeline(
    name="sales",
    source=KafkaSource("sales", Sale, event_time="at"),
    broadcast=[Broadcast("shops", KafkaSource("shops", Shop), key_by="name")],
    operators=[
        Fold("hours", key_by=HOURS, where=WHERE, state=Sales),
        Fold("kept", key_by={"shop": "lower(shop)"}, where="amount < 40", state=Sales, deletes=True),
        Fold(
            "cities",
            key_by={"city": "coalesce(shops.city, 'none')", "big": "amount >= 50"},
            where="shops.is_open",
            state=Cities,
            join={"shops": "shop"},
        ),
        Process(
            "watch",
            key_by={"name": "upper(shop)", "weekday": "isodow(at)"},
            where="amount % 2 = 0",
            state=Seen,
            function=pass_on,
            emits=Sale,
        ),
        Fold("totals", key_by=(), where="shop IN ('a', 'B')", state=Sales),
        FlatMap("pairs", function=twice, where="shop NOT LIKE 'B%'", emits=Sale),
        Fold("shops_of_pairs", key_by={"shop": "lower(shop)"}, where="amount <> 7", state=Sales, input="pairs"),
        Fold("late", key_by={"hour": "hour(at)"}, where="amount > 10", state=Sales, input="watch"),
    ],
    max_dead_letters=1.0,
)


def random_sales(chance: random.Random, count: int) -> list[object]:
    """Sales, changes of shops, deletes, and bad records."""
    found: list[object] = []
    for _ in range(count):
        shop = chance.choice(["a", "A", "B", "Zü", "ZÜ", None])
        country = chance.choice([None, Customer(None), Customer("XX"), Customer("DE")])
        at = NOON + timedelta(minutes=chance.randrange(-200, 200))
        amount = chance.choice([None, 0, -(2**63), 2**63 - 1, *[chance.randrange(-20, 100)] * 4])
        found.append(("records", Sale(shop, amount, country, at), shop))
        if chance.random() < 0.1:
            found.append(("records", None, chance.choice(["a", "b", "zÜ", None])))
        if chance.random() < 0.1:
            found.append(("records", b"{", "a"))
        if chance.random() < 0.1:
            row = Shop(str(shop), chance.choice(["x", None]), chance.random() < 0.7)
            found.append(("shops", row, row.name))
    return found
