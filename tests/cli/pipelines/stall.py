"""A stall: a process with operator state. `$topic` is replaced by a test."""

from collections.abc import Iterator
from dataclasses import dataclass

from tidemark import KafkaSource, Pipeline, Process, state


@dataclass(frozen=True)
class Order:
    """One record."""

    customer: str
    article: str


class Customer(state.Keyed):
    """Per customer."""

    orders: int = state.value(0)


class Local(state.Operator):
    """Per task."""

    samples: list[str] = state.split_list()
    articles: list[str] = state.union_list()


def take(customer: str, orders: Iterator[Order], remembered: Customer, *, operator_state: Local) -> None:
    """Counts, samples, and remembers articles."""
    for order in orders:
        remembered.orders += 1
        operator_state.samples.append(f"{customer} {order.article}")
        if order.article not in operator_state.articles:
            operator_state.articles.append(order.article)


stall = Pipeline(
    name="stall",
    source=KafkaSource("$topic", Order),
    operators=[Process("customers", key_by="customer", state=Customer, function=take, operator_state=Local)],
)
