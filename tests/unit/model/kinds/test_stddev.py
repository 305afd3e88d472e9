"""`state.stddev` against the statistics module and DuckDB, at its edges, and as its docstring shows it."""

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import duckdb
import pytest

from tests.support.kind_bench import KindCase, known
from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.errors import DeclarationError
from tidemark.testing import BARRIER, replay


def _sample(values: list[float]) -> float | None:
    return statistics.stdev(map(float, values)) if len(values) > 1 else None


def _population(values: list[float]) -> float | None:
    return statistics.pstdev(map(float, values)) if values else None


CASES = [
    KindCase(state.stddev("n"), float | None, lambda found: _sample(known(found, "n")), True),
    KindCase(state.stddev("x"), float | None, lambda found: _sample(known(found, "x")), True),
    KindCase(
        state.stddev("price", population=True), float | None, lambda found: _population(known(found, "price")), True
    ),
]


DAY = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Flight:
    """One record."""

    carrier: str
    delay: float | None
    at: datetime


class Carrier(state.Keyed):
    """Both estimators."""

    spread: float | None = state.stddev("delay")
    of_all: float | None = state.stddev("delay", population=True)


FLIGHTS = Pipeline(
    name="flights",
    source=KafkaSource("flights", Flight, event_time="at"),
    operators=[Fold("carriers", key_by="carrier", state=Carrier)],
)


def _replayed(*batches: Sequence[float | None]) -> Carrier:
    script = [part for delays in batches for part in ([Flight("UA", delay, DAY) for delay in delays], BARRIER)]
    found: Carrier = replay(FLIGHTS, script).state("carriers")["UA"]
    return found


def test_the_example_of_the_docstring() -> None:
    found = _replayed([10.0, 20.0, 60.0])
    assert (found.spread, found.of_all) == (26.457513110645905, 21.602468994692867)
    assert str(found.spread) in (state.stddev.__doc__ or "") and str(found.of_all) in (state.stddev.__doc__ or "")


@pytest.mark.parametrize(
    ("batches", "spread", "of_all"),
    [
        ([[None]], None, None),
        ([[None], [7.0]], None, 0.0),
        ([[7.0], [None], [7.0]], 0.0, 0.0),
        ([[1.0], [3.0]], math.sqrt(2), 1.0),
    ],
)
def test_of_few_values_it_is_what_sql_says(
    batches: list[list[float | None]], spread: float | None, of_all: float | None
) -> None:
    found = _replayed(*batches)
    assert (found.spread, found.of_all) == (spread, of_all)
    values = ", ".join(f"({'NULL' if v is None else v})" for batch in batches for v in batch)
    text = f"SELECT stddev_samp(v::DOUBLE), stddev_pop(v::DOUBLE) FROM (VALUES {values}) AS t(v)"
    assert duckdb.execute(text).fetchall()[0] == pytest.approx((spread, of_all))


def test_a_small_deviation_around_a_large_mean_keeps_its_digits() -> None:
    chance = random.Random(1)
    values = [1e9 + chance.random() for _ in range(600)]
    found = _replayed(values[:1], values[1:50], values[50:51], values[51:])
    assert found.spread == pytest.approx(statistics.stdev(values), rel=1e-7)
    of_squares = (sum(v * v for v in values) - sum(values) ** 2 / 600) / 599
    assert not math.isclose(math.sqrt(abs(of_squares)), statistics.stdev(values), rel_tol=0.1), "sums of squares do not"


def test_what_leaves_the_range_of_a_double_is_infinite_and_no_error() -> None:
    assert _replayed([1e300], [-1e300]).spread == math.inf
    assert duckdb.execute("SELECT sqrt('inf'::DOUBLE), isnan(sqrt('nan'::DOUBLE))").fetchall() == [(math.inf, True)]


@pytest.mark.parametrize(
    ("kind", "hint", "why"),
    [
        (state.stddev("text"), float | None, "state.stddev of a str"),
        (state.stddev("n"), int | None, "state.stddev is float, declared int"),
        (state.stddev("nothing"), float | None, "the record has no field 'nothing'"),
    ],
)
def test_what_has_no_deviation_is_refused(kind: object, hint: object, why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        _ = KindCase(kind, hint, len).stored
