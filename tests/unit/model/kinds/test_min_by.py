"""`state.min_by` against brute force, its ties, and as its docstring shows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from tests.support.kind_bench import MONEY, KindCase
from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.errors import DeclarationError
from tidemark.model.state.evolution import compare_schemas
from tidemark.sql.initial_state import given_columns
from tidemark.testing import BARRIER, Script, replay
from tidemark.testing.twin.fold import Decoded


def _oracle(records: Sequence[Decoded], source: str, by: str) -> Any:
    ranked = [r for r in records if r.fields[by] is not None]
    least = min((r.fields[by] for r in ranked), default=None)
    return next((r.fields[source] for r in ranked if r.fields[by] == least), None)


CASES = [
    KindCase(state.min_by("text", by="rank"), str | None, lambda found: _oracle(found, "text", "rank")),
    KindCase(state.min_by("n", by="price"), int | None, lambda found: _oracle(found, "n", "price")),
    KindCase(state.min_by("price", by="text"), MONEY | None, lambda found: _oracle(found, "price", "text")),
    KindCase(state.min_by("n", by="n"), int | None, lambda found: _oracle(found, "n", "n")),
]


@dataclass(frozen=True)
class Flight:
    """One record."""

    tail: str
    day: date | None
    delay: int | None
    at: datetime


class Aircraft(state.Keyed):
    """The example of the docstring."""

    found: date | None = state.min_by("day", by="delay")


FLIGHTS = Pipeline(
    name="flights",
    source=KafkaSource("flights", Flight, event_time="at"),
    operators=[Fold("aircraft", key_by="tail", state=Aircraft)],
)
MAY = datetime(2020, 5, 1, tzinfo=UTC)


def _replayed(*delays: int | None, one_by_one: bool) -> date | None:
    days = [MAY + timedelta(days=n) for n in range(len(delays))]
    flights = [Flight("N1", day.date(), delay, day) for day, delay in zip(days, delays, strict=True)]
    script: Script = [part for f in flights for part in ([f], BARRIER)] if one_by_one else [flights, BARRIER]
    found: date | None = replay(FLIGHTS, script).state("aircraft")["N1"].found
    return found


@pytest.mark.parametrize("one_by_one", [True, False])
def test_the_example_of_the_docstring(one_by_one: bool) -> None:
    assert _replayed(40, 5, 5, one_by_one=one_by_one) == date(2020, 5, 2)
    assert "40, 5 and 5 minutes on May 1, 2 and 3 give May 2." in (state.min_by.__doc__ or "")


@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_null_to_rank_by_does_not_count(one_by_one: bool) -> None:
    assert _replayed(None, 7, None, one_by_one=one_by_one) == date(2020, 5, 2)
    assert _replayed(None, None, one_by_one=one_by_one) is None


@pytest.mark.parametrize(
    ("kind", "hint", "why"),
    [
        (state.min_by("text", by="nothing"), str | None, "the record has no field 'nothing'"),
        (state.min_by("nothing", by="n"), str | None, "the record has no field 'nothing'"),
        (state.min_by("text", by="n"), int | None, r"state.min_by\('text'\) is STRING, declared BIGINT"),
    ],
)
def test_what_does_not_fit_the_record_is_refused(kind: object, hint: object, why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        _ = KindCase(kind, hint, len).stored


def test_a_field_to_rank_by_has_to_be_named() -> None:
    with pytest.raises(DeclarationError, match=r"state.min_by\(''\)"):
        state.min_by("text", by="")


def test_both_fields_are_inputs_and_the_rank_is_given_with_the_value() -> None:
    case = CASES[0]
    assert case.stored.inputs == ("text", "rank")
    assert [name for name, _ in given_columns(case.schema)] == ["key", "f", "f__by"]
    assert case.stored.exact


def test_another_field_to_rank_by_is_refused_by_name() -> None:
    other = KindCase(state.min_by("text", by="n"), str | None, len)
    (misfit,) = compare_schemas(CASES[0].schema, other.schema).misfits
    assert misfit.what == "min_by('text') with rank='BIGINT or null' became min_by('text') with n='BIGINT or null'"
