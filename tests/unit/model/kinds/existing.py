"""Oracles of the kinds that were there before `tidemark.model.kinds`; later ones are in a test file of their own."""

from collections.abc import Mapping, Sequence
from decimal import Decimal

from tests.support.kind_bench import MONEY, KindCase, known
from tidemark import state


def _mean(values: Sequence[Decimal | int]) -> float | None:
    return float(sum(values)) / len(values) if values else None


CASES: Mapping[str, Sequence[KindCase]] = {
    "count": [KindCase(state.count(), int, len)],
    "sum": [
        KindCase(state.sum("n"), int | None, lambda found: sum(known(found, "n")) if known(found, "n") else None),
        KindCase(
            state.sum("price"),
            MONEY | None,
            lambda found: sum(known(found, "price")) if known(found, "price") else None,
        ),
        KindCase(
            state.sum("x"), float | None, lambda found: sum(known(found, "x")) if known(found, "x") else None, True
        ),
    ],
    "min": [
        KindCase(state.min("n"), int | None, lambda found: min(known(found, "n"), default=None)),
        KindCase(state.min("text"), str | None, lambda found: min(known(found, "text"), default=None)),
    ],
    "max": [
        KindCase(state.max("price"), MONEY | None, lambda found: max(known(found, "price"), default=None)),
        KindCase(state.max("text"), str | None, lambda found: max(known(found, "text"), default=None)),
    ],
    "mean": [
        KindCase(state.mean("n"), float | None, lambda found: _mean(known(found, "n"))),
        KindCase(state.mean("price"), float | None, lambda found: _mean(known(found, "price"))),
        KindCase(state.mean("x"), float | None, lambda found: _mean(known(found, "x")), True),
    ],
    "first": [
        KindCase(state.first("n"), int | None, lambda found: found[0].fields["n"]),
        KindCase(state.first("n", ignore_nulls=True), int | None, lambda found: next(iter(known(found, "n")), None)),
    ],
    "latest": [
        KindCase(state.latest("text"), str | None, lambda found: found[-1].fields["text"]),
        KindCase(
            state.latest("n", ignore_nulls=True), int | None, lambda found: next(iter(known(found, "n")[::-1]), None)
        ),
    ],
    "distinct": [KindCase(state.distinct("text"), list[str], lambda found: sorted({*known(found, "text")}))],
    "aggregate": [
        KindCase(
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
        KindCase(
            state.reduce("max(n + 1)"), int | None, lambda found: max((n + 1 for n in known(found, "n")), default=None)
        )
    ],
}
