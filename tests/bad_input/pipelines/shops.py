"""Amounts per shop: the smallest line there is. `$name` and `$topic` are replaced by a test."""

from dataclasses import dataclass

from tidemark import Fold, KafkaSource, Pipeline, state


@dataclass(frozen=True)
class Sale:
    """One record."""

    shop: str
    amount: int


class Shop(state.Keyed):
    """Per shop."""

    sales: int = state.count()
    amount: int = state.sum("amount")


shops = Pipeline(
    name="$name",
    source=KafkaSource("$topic", Sale),
    operators=[Fold("shops", key_by="shop", state=Shop)],
)
