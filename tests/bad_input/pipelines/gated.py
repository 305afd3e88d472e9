"""One topic behind three gates: one that fails on negative amounts, one that raises, one that only warns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


def critical() -> Mapping[str, Any]:
    """No amount is negative, no shop sells more than 1,000."""
    import great_expectations.expectations as gxe

    return {
        "records": [gxe.ExpectColumnValuesToBeBetween(column="amount", min_value=0)],
        "changes": {"shops": [gxe.ExpectColumnValuesToBeBetween(column="sales", max_value=1000)]},
    }


def raising() -> Mapping[str, Any]:
    """Never gets as far as an expectation."""
    raise RuntimeError("the gate fell off its hinges")


def warning() -> Mapping[str, Any]:
    """The same as `critical`, but nobody is stopped."""
    import great_expectations.expectations as gxe

    # An author writes the word; only the types of Great Expectations ask for the member of an enum.
    least = gxe.ExpectColumnValuesToBeBetween(column="amount", min_value=0, severity="warning")  # type: ignore[arg-type]
    return {"records": [least]}


def _gated(name: str, gate: Any) -> Pipeline:  # noqa: ANN401
    source = KafkaSource("$topic", Sale)
    return Pipeline(name=name, source=source, operators=[Fold("shops", key_by="shop", state=Shop)], gate=gate)


critical_sales = _gated("critical", critical)
raising_sales = _gated("raising", raising)
warned_sales = _gated("warned", warning)
