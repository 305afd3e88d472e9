"""A market with every kind of state that there is. `$name` is replaced by a test."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemark import Broadcast, DeltaSink, Fold, KafkaSource, Pipeline, Process, Watermark, state


@dataclass(frozen=True)
class Sale:
    """One record."""

    stall: str
    item: str
    cents: int
    at: datetime


@dataclass(frozen=True)
class Rate:
    """A row that is broadcast."""

    item: str
    percent: int


@dataclass(frozen=True)
class Receipt:
    """Emitted."""

    stall: str
    cents: int


class Sold(state.Keyed):
    """Folded."""

    sales: int = state.count()
    cents: int | None = state.sum("cents")
    least: int | None = state.min("cents")
    most: int | None = state.max("cents")
    mean: float | None = state.mean("cents")
    opened_by: str | None = state.first("stall")
    last_at: str | None = state.latest("stall", ttl=timedelta(hours=30))
    today: int | None = state.sum("cents", ttl=timedelta(hours=20))
    stalls: list[str] = state.distinct("stall")
    history: list[int] = state.list("cents")
    recent: list[int] = state.list("cents", ttl=timedelta(hours=25))


class Till(state.Keyed):
    """Kept by a function."""

    tax: int = state.value(0)
    last: str | None = state.value(None, ttl=timedelta(hours=30))
    receipts: list[int] = state.list()
    by_item: dict[str, int] = state.map()


class Office(state.Operator):
    """Belongs to no key."""

    samples: list[str] = state.split_list()
    items: list[str] = state.union_list()


def take(
    stall: str,
    sales: Iterator[Sale],
    till: Till,
    broadcast: Mapping[str, Mapping[str, Rate]],
    *,
    operator_state: Office,
) -> Iterator[Receipt]:
    """By the rate of the moment; a sale for nothing closes the stall."""
    for sale in sales:
        if sale.cents == 0:
            till.clear()
            continue
        rate = broadcast["rates"].get(sale.item)
        till.tax += sale.cents * (rate.percent if rate else 1)
        till.last = sale.item
        till.receipts.append(sale.cents)
        till.by_item[sale.item] = till.by_item.get(sale.item, 0) + 1
        operator_state.samples.append(f"{stall} {sale.cents}")
        if sale.item not in operator_state.items:
            operator_state.items.append(sale.item)
        yield Receipt(stall, sale.cents)


market = Pipeline(
    name="$name",
    sources={"sales": KafkaSource("sales", Sale, event_time="at", watermark=Watermark(delay="1m"))},
    operators=[
        Fold("sold", key_by="item", state=Sold, input="sales"),
        Process(
            "tills",
            key_by="stall",
            state=Till,
            function=take,
            input="sales",
            operator_state=Office,
            emits=Receipt,
            sink=DeltaSink("receipts"),
        ),
    ],
    broadcast=[Broadcast("rates", KafkaSource("rates", Rate), key_by="item")],
    max_dead_letters=0.9,
)
