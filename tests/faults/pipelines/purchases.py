"""The second pipeline of the crash sweep: a process that emits to a table, one behind it that attempts send for."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from tidemark import DeltaSink, KafkaSink, KafkaSource, Pipeline, Process, state

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


class Told(state.Keyed):
    """Nothing depends on it; the process behind has to remember something."""

    times: int = state.value(0)


def tell(account: str, larges: Iterator[Large], told: Told) -> Iterator[Large]:
    """Hands on what it gets."""
    for large in larges:
        told.times += 1
        yield large


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
        Process(
            "told",
            key_by="account",
            state=Told,
            function=tell,
            emits=Large,
            sink=KafkaSink("told", os.environ.get("SWEEP_TOLD", "told"), guarantee="at_least_once"),
            input="large",
        ),
    ],
    max_dead_letters=0.5,
)
