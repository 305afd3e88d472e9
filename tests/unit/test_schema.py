"""Stored schemas: bound from record and state class, written to manifests, read back without the code."""

import json
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark import Fold, state
from tidemark.errors import DeclarationError
from tidemark.model.core.types import FieldType, Precision, record_type, type_from_json, type_to_json
from tidemark.model.schema.operator_schema import OperatorSchema


@dataclass(frozen=True)
class Place:
    """A nested record."""

    code: str
    city: str | None = None


@dataclass(frozen=True)
class Sale:
    """A record."""

    shop: Place
    online: bool
    day: date
    price: Annotated[Decimal, Precision(10, 2)]
    weight: float
    pieces: int
    tags: list[str]
    at: datetime


RECORD = record_type(Sale)


class Shop(state.Keyed):
    """One field of every kind and of the types that matter."""

    sales: int = state.count()
    pieces: int = state.sum("pieces")
    turnover: Annotated[Decimal, Precision(10, 2)] = state.sum("price")
    weight: float = state.sum("weight")
    dearest: Annotated[Decimal, Precision(10, 2)] = state.max("price")
    mean_pieces: float = state.mean("pieces")
    mean_weight: float = state.mean("weight")
    days: list[date] = state.distinct("day")
    last_city: str | None = state.latest("shop.city")
    first_tags: list[str] = state.first("tags")


BOUND = Fold("shops", key_by=("shop.code", "day"), state=Shop).bind(RECORD)


def test_a_nested_key_is_named_after_its_last_step() -> None:
    assert [(k.name, k.source, k.type) for k in BOUND.keys] == [
        ("code", "shop.code", FieldType("str")),
        ("day", "day", FieldType("date")),
    ]


def test_the_columns_hold_accumulators_not_finished_values() -> None:
    columns = {f.name: [(name, t.sql) for name, t in f.accumulators] for f in BOUND.fields}
    ordered = "STRUCT<`at`: TIMESTAMP, `topic`: STRING, `partition`: BIGINT, `offset`: BIGINT, `value`: "
    assert columns == {
        "sales": [("sales", "BIGINT")],
        "pieces": [("pieces", "BIGINT")],
        "turnover": [("turnover", "DECIMAL(38,2)")],
        "weight": [("weight", "DOUBLE")],
        "dearest": [("dearest", "DECIMAL(10,2)")],
        "mean_pieces": [("mean_pieces__sum", "BIGINT"), ("mean_pieces__count", "BIGINT")],
        "mean_weight": [("mean_weight__sum", "DOUBLE"), ("mean_weight__count", "BIGINT")],
        "days": [("days", "ARRAY<DATE>")],
        "last_city": [("last_city", ordered + "STRING>")],
        "first_tags": [("first_tags", ordered + "ARRAY<STRING>>")],
    }


def test_only_sums_and_means_of_floats_are_inexact() -> None:
    assert {f.name for f in BOUND.fields if not f.exact} == {"weight", "mean_weight"}


def test_the_json_form_gives_the_schema_back() -> None:
    written = json.dumps(BOUND.to_json())
    assert OperatorSchema.from_json(json.loads(written)) == BOUND


def test_the_fingerprint_follows_every_part() -> None:
    changed = [
        replace(BOUND, uid="other"),
        replace(BOUND, key_groups=64),
        replace(BOUND, keys=BOUND.keys[::-1]),
        replace(BOUND, fields=BOUND.fields[1:]),
        replace(BOUND, fields=(replace(BOUND.fields[0], limit=7), *BOUND.fields[1:])),
    ]
    prints = [s.fingerprint for s in (BOUND, *changed)]
    assert len(set(prints)) == len(prints)
    assert OperatorSchema.from_json(BOUND.to_json()).fingerprint == BOUND.fingerprint


def test_a_sum_may_be_declared_wider_than_its_record_field() -> None:
    class Wide(state.Keyed):
        turnover: Annotated[Decimal, Precision(38, 2)] = state.sum("price")

    assert Fold("shops", key_by="online", state=Wide).bind(RECORD).fields[0].type.sql == "DECIMAL(38,2)"


@pytest.mark.parametrize("source", ["weight", "tags", "shop", "nowhere", "shop.nowhere"])
def test_a_field_that_is_no_key_is_refused(source: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        Fold("shops", key_by=source, state=Shop).bind(RECORD)
    assert source in refused.value.what
    assert len(str(refused.value).splitlines()) == 3


def test_a_float_key_is_refused_with_its_remedy() -> None:
    with pytest.raises(DeclarationError, match=r"a float cannot be a key.*(?s:.)*Annotated\[Decimal"):
        Fold("shops", key_by="weight", state=Shop).bind(RECORD)


def test_two_keys_with_one_last_step_are_refused() -> None:
    @dataclass(frozen=True)
    class Trip:
        start: Place
        end: Place

    class Trips(state.Keyed):
        n: int = state.count()

    with pytest.raises(DeclarationError, match="two columns are called code"):
        Fold("trips", key_by=("start.code", "end.code"), state=Trips).bind(record_type(Trip))


def test_a_field_that_collides_with_another_ones_accumulator_is_refused() -> None:
    class Colliding(state.Keyed):
        mean: float = state.mean("pieces")
        mean__count: int = state.count()

    with pytest.raises(DeclarationError, match="mean__count"):
        Fold("shops", key_by="day", state=Colliding).bind(RECORD)


SCALARS = st.sampled_from(["bool", "int", "float", "str", "bytes", "date", "timestamp"])
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
LEAVES = st.builds(FieldType, SCALARS, st.booleans()) | st.builds(
    lambda digits, scale, nullable: FieldType("decimal", nullable, digits, min(digits, scale)),
    st.integers(1, 38),
    st.integers(0, 38),
    st.booleans(),
)
TYPES = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(lambda t, n: FieldType("list", n, element=t), inner, st.booleans())
        | st.builds(
            lambda fields, n: FieldType("struct", n, fields=tuple(fields.items())),
            st.dictionaries(NAMES, inner, min_size=1, max_size=4),
            st.booleans(),
        )
    ),
    max_leaves=6,
)


@given(TYPES)
def test_every_type_survives_its_json_form(found: FieldType) -> None:
    assert type_from_json(json.loads(json.dumps(type_to_json(found)))) == found
