"""The second pipeline of the crash sweep: a process that emits to a table, over the same records."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from tidemark import DeltaSink, KafkaSource, Pipeline, Process, state

LARGE = 2500
"""Cents from which on a purchase is told of."""


@dataclass(frozen=True)
class Purchase:
    """One record."""

    account: str | None
    shop: str
    cents: int


@dataclass(frozen=True)
class Large:
    """A large purchase: the how many-th one of the account."""

    account: str
    nth: int
    cents: int


class Seen(state.Keyed):
    """Per account. Neither field depends on where barriers cut, though an account's records lie in two partitions."""

    large: int = state.value(0)
    by_shop: dict[str, int] = state.map()


def find_large(account: str, purchases: Iterator[Purchase], seen: Seen) -> Iterator[Large]:
    """Counts purchases per shop, and tells of every large one."""
    for purchase in purchases:
        seen.by_shop[purchase.shop] = seen.by_shop.get(purchase.shop, 0) + 1
        if purchase.cents >= LARGE:
            seen.large += 1
            yield Large(account, seen.large, purchase.cents)


purchases = Pipeline(
    name="purchases",
    source=KafkaSource(os.environ.get("SWEEP_TOPIC", "sweep"), Purchase),
    operators=[
        Process("large", key_by="account", state=Seen, function=find_large, emits=Large, sink=DeltaSink("large")),
    ],
    max_dead_letters=0.5,
)
