"""A chain: what one operator emits is counted by three others, whose keys are the same, more, and other ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tidemark import Fold, KafkaSource, Pipeline, Process, state


@dataclass(frozen=True)
class Sale:
    """One record."""

    account: str | None
    shop: str
    at: datetime


@dataclass(frozen=True)
class Visit:
    """What is emitted."""

    account: str
    shop: str


class Seen(state.Keyed):
    """Per account, as the first operator remembers it."""

    sales: int = state.value(0)


class Count(state.Keyed):
    """What the others count."""

    visits: int = state.count()


def visit(account: str, sales: Iterator[Sale], seen: Seen) -> Iterator[Visit]:
    """One visit per sale."""
    for sale in sales:
        seen.sales += 1
        yield Visit(account, sale.shop)


visits = Pipeline(
    name="visits",
    source=KafkaSource("$topic", Sale, event_time="at"),
    operators=[
        Process("accounts", key_by="account", state=Seen, function=visit, emits=Visit),
        Fold("again", key_by="account", state=Count, input="accounts"),
        Fold("at_shops", key_by=("shop", "account"), state=Count, input="accounts"),
        Fold("shops", key_by="shop", state=Count, input="accounts"),
    ],
    max_dead_letters=0.5,
)
