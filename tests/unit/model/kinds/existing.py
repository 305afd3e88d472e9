"""Oracles of the kinds that were there before `tidemark.model.kinds`; later ones are in a test file of their own."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from tests.support.kind_bench import MONEY, Case, known
from tidemark import state


def _mean(values: Sequence[Decimal | int]) -> float | None:
    return float(sum(values)) / len(values) if values else None


CASES: Mapping[str, Sequence[Case]] = {
    "count": [Case(state.count(), int, len)],
    "sum": [
        Case(state.sum("n"), int | None, lambda found: sum(known(found, "n")) if known(found, "n") else None),
        Case(
            state.sum("price"),
            MONEY | None,
            lambda found: sum(known(found, "price")) if known(found, "price") else None,
        ),
        Case(state.sum("x"), float | None, lambda found: sum(known(found, "x")) if known(found, "x") else None, True),
    ],
    "min": [
        Case(state.min("n"), int | None, lambda found: min(known(found, "n"), default=None)),
        Case(state.min("text"), str | None, lambda found: min(known(found, "text"), default=None)),
    ],
    "max": [
        Case(state.max("price"), MONEY | None, lambda found: max(known(found, "price"), default=None)),
        Case(state.max("text"), str | None, lambda found: max(known(found, "text"), default=None)),
    ],
    "mean": [
        Case(state.mean("n"), float | None, lambda found: _mean(known(found, "n"))),
        Case(state.mean("price"), float | None, lambda found: _mean(known(found, "price"))),
        Case(state.mean("x"), float | None, lambda found: _mean(known(found, "x")), True),
    ],
    "first": [
        Case(state.first("n"), int | None, lambda found: found[0].fields["n"]),
        Case(state.first("n", ignore_nulls=True), int | None, lambda found: next(iter(known(found, "n")), None)),
    ],
    "latest": [
        Case(state.latest("text"), str | None, lambda found: found[-1].fields["text"]),
        Case(state.latest("n", ignore_nulls=True), int | None, lambda found: next(iter(known(found, "n")[::-1]), None)),
    ],
    "distinct": [Case(state.distinct("text"), list[str], lambda found: sorted({*known(found, "text")}))],
    "aggregate": [
        Case(
            state.aggregate(
                accumulator={"total": int, "records": int},
                partial={"total": "sum(n)", "records": "count(n)"},
                finish="total / nullif(records, 0)",
            ),
            float | None,
            lambda found: _mean(known(found, "n")),
        )
    ],
    "reduce": [
        Case(
            state.reduce("max(n + 1)"), int | None, lambda found: max((n + 1 for n in known(found, "n")), default=None)
        )
    ],
}
