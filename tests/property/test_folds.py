"""What the in-memory fold makes of types at their edges: decimals, overflow, limits, ties, nulls, late records."""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, TypedDict, Unpack

import pytest

from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.errors import StateOverflowError
from tidemark.state import Precision
from tidemark.testing import BARRIER, replay

NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Place:
    """Nested."""

    city: str | None


@dataclass(frozen=True)
class Sale:
    """One record with a field of many types."""

    shop: str
    price: Annotated[Decimal, Precision(10, 2)]
    pieces: int
    day: date
    at: datetime
    place: Place | None = None
    weight: float | None = None


class Shop(state.Keyed):
    """What is remembered."""

    turnover: Annotated[Decimal, Precision(38, 2)] | None = state.sum("price")
    pieces: int | None = state.sum("pieces")
    mean_price: float | None = state.mean("price")
    first_day: date | None = state.min("day")
    city: str | None = state.latest("place.city")
    cities: list[str] = state.distinct("place.city", limit=3)
    opened: datetime | None = state.first("at")
    weight: float | None = state.sum("weight")


PIPELINE = Pipeline(
    name="shops",
    source=KafkaSource("sales", Sale, event_time="at"),
    operators=[Fold("shops", key_by="shop", state=Shop)],
    max_dead_letters=1.0,
)


class SaleOptions(TypedDict, total=False):
    """Fields of a sale that a test may change."""

    price: Decimal
    pieces: int
    at: datetime
    place: Place


def sale(**changes: Unpack[SaleOptions]) -> Sale:
    base = Sale(shop="s", price=Decimal("0.10"), pieces=1, day=date(2020, 1, 2), at=NOON)
    return replace(base, **changes)


def test_decimals_add_exactly_over_any_cut() -> None:
    done = replay(
        PIPELINE, [[sale(), sale(price=Decimal("0.2"))], BARRIER, [sale(price=Decimal("12345678.90"))], BARRIER]
    )
    kept = done.state("shops")["s"]
    assert kept.turnover == Decimal("12345679.20")
    assert kept.mean_price == 12345679.2 / 3


def test_values_come_back_as_their_declared_types_in_utc() -> None:
    there = timedelta(hours=2)
    done = replay(PIPELINE, [[sale(at=(NOON + there).replace(tzinfo=None)), sale(place=Place("Rome"))], BARRIER])
    kept = done.state("shops")["s"]
    assert (kept.first_day, kept.opened) == (date(2020, 1, 2), NOON)
    assert kept.opened.tzinfo is UTC
    assert kept.weight is None


def test_the_latest_record_decides_null_included_and_ties_go_to_the_higher_offset() -> None:
    rome, oslo = Place("Rome"), Place("Oslo")
    assert replay(PIPELINE, [[sale(place=rome), sale(place=oslo)], BARRIER]).state("shops")["s"].city == "Oslo"
    assert replay(PIPELINE, [[sale(place=rome), sale()], BARRIER]).state("shops")["s"].city is None
    late = sale(place=rome, at=NOON - timedelta(hours=1))
    assert replay(PIPELINE, [[sale(place=oslo)], BARRIER, [late], BARRIER]).state("shops")["s"].city == "Oslo"


def test_distinct_values_are_sorted_and_their_limit_names_the_key() -> None:
    cities = [sale(place=Place(name)) for name in ("d", "b", "a", "b")]
    assert replay(PIPELINE, [cities, BARRIER, [sale()], BARRIER]).state("shops")["s"].cities == ["a", "b", "d"]
    with pytest.raises(StateOverflowError, match=r"cities of key \(s\) has 4 values, its limit is 3"):
        replay(PIPELINE, [[*cities, sale(place=Place("e"))], BARRIER])


def test_an_integer_that_leaves_64_bits_names_the_key() -> None:
    big = sale(pieces=2**63 - 1)
    with pytest.raises(StateOverflowError, match=r"pieces of key \(s\) does not fit 64 bits"):
        replay(PIPELINE, [[big, sale()], BARRIER])
    with pytest.raises(StateOverflowError, match=r"shops: pieces of key \(s\) does not fit 64 bits"):
        replay(PIPELINE, [[big], BARRIER, [sale()], BARRIER])


def test_a_record_from_the_future_is_a_dead_letter() -> None:
    limit = datetime(2100, 1, 2, tzinfo=UTC)
    done = replay(PIPELINE, [[sale(at=limit), sale(at=limit + timedelta(microseconds=1))], BARRIER])
    assert [(x["offset"], x["reason"]) for x in done.dead_letters("shops")] == [(1, "in_the_future")]


def test_the_watermark_is_the_greatest_event_time_so_far() -> None:
    done = replay(PIPELINE, [[], BARRIER, [sale()], BARRIER, [sale(at=NOON - timedelta(days=1))], BARRIER])
    assert [c.sealed.facts.watermark_ms for c in done.checkpoints] == [None, 1577880000000, 1577880000000]
    assert [c.plan.watermark_ms for c in done.checkpoints] == [None, None, 1577880000000]
