"""Conditions and key expressions: what they are bound to, what is refused by name, and their stored form."""

from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from tidemark import Fold, KafkaSource, Pipeline, Process, state
from tidemark.errors import DeclarationError
from tidemark.model.checkpoint.codec import from_json, to_json
from tidemark.model.core.types import FieldType, record_type
from tidemark.model.portable_sql.record_expression import bind_expression
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.evolution import compare_schemas


@dataclass(frozen=True)
class Place:
    """A nested part of the record."""

    city: str | None


@dataclass(frozen=True)
class Sale:
    """A record."""

    shop: str
    amount: int | None
    price: Decimal
    weight: float
    place: Place | None
    day: date
    at: datetime
    tags: list[str]


class Sales(state.Keyed):
    """The state."""

    sales: int = state.count()


def bound(where: str | None = None, key_by: Any = "shop", **options: Any) -> OperatorSchema:
    fold = Fold("sales", key_by=key_by, where=where, state=Sales, **options)
    return Pipeline(name="sales", source=KafkaSource("sales", Sale), operators=[fold]).schemas()["sales"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("amuont > 0", "the record has no field 'amuont'"),
        ("place.town = 'x'", "the record has no field 'place.town'"),
        ("amount", "is BIGINT, not a condition"),
        ("NULL", "it is always null"),
        ("soundex(shop) = 'x'", "function 'soundex' is not in the subset"),
        ("trim(shop) = 'x'", "function 'trim' is not in the subset"),
        ("sum(amount) > 0", "function 'sum' is not in the subset"),
        ("amount % 0 = 1", "% of anything but a whole number and a positive whole literal"),
        ("amount % amount = 1", "% of anything but"),
        ("shop LIKE shop", "LIKE of anything but a text and a literal pattern"),
        ("substr(shop, 0) = 'x'", "substr of anything but"),
        ("substr(shop, amount) = 'x'", "substr of anything but"),
        ("date_trunc('hour', day) = day", "date_trunc to 'hour' of a date"),
        ("date_trunc('century', at) = at", "date_trunc to 'century' of a timestamp"),
        ("date_trunc(shop, at) = at", "date_trunc of anything but a literal unit"),
        ("hour(day) = 1", "hour of date: it takes one timestamp"),
        ("extract(epoch FROM at) = 1", "extract of 'epoch' is not in the subset"),
        ("lower(amount) = 'x'", "lower of int: it takes one str"),
        ("CAST(weight AS STRING) = 'x'", "CAST of float to STRING"),
        ("CAST(shop AS DATE) = day", "CAST of str to DATE"),
        ("price > weight", "> of decimal and float: write CAST"),
        ("price > 1e3", "> of decimal and float: write CAST"),
        ("at > day", "which are not one type"),
        ("at > TIMESTAMP 'noon'", "is not a time"),
        ("tags IS NULL AND tags = tags", "= of list"),
        ("amount / amount > 1", "division by a possible zero"),
    ],
)
def test_a_condition_outside_the_subset_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        bound(text)
    assert refused.value.what.startswith(f"sales: where={text!r}")
    assert why in refused.value.what


@pytest.mark.parametrize(
    ("key_by", "why"),
    [
        ({"w": "weight"}, "a float cannot be a key"),
        ({"w": "weight + 1"}, "a float cannot be a key"),
        ({"a b": "shop"}, "not a name of a column"),
        ({"s": "lower(shoop)"}, "the record has no field 'shoop'"),
        ({"sales": "lower(shop)"}, "two columns are called sales"),
        ({"s": 1}, "not a text"),
    ],
)
def test_a_key_that_makes_no_sense_is_refused(key_by: Any, why: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        bound(key_by=key_by)
    assert why in refused.value.what


def test_a_name_for_a_field_is_a_field_under_another_name() -> None:
    (key,) = bound(key_by={"town": "place.city"}).keys
    assert (key.name, key.source, key.type.kind, key.inputs) == ("town", "place.city", "str", None)


def test_the_stored_form_of_operators_without_expressions_is_as_it_was() -> None:
    body = bound().to_json()
    assert "where" not in body
    assert body["keys"] == [{"name": "shop", "source": "shop", "type": {"kind": "str", "nullable": False}}]


def test_conditions_and_key_expressions_are_stored_and_read_back() -> None:
    schema = bound("amount > 0 AND place.city <> 'x'", key_by={"s": "lower(shop)", "n": "1"})
    again = from_json(OperatorSchema, to_json(schema), "here")
    assert again == schema
    assert again.where is not None
    assert again.where.paths == ("amount", "place.city")
    assert [k.paths for k in again.keys] == [("shop",), ()]


def test_a_changed_condition_keeps_the_state_and_makes_a_new_plan() -> None:
    none, some, other = (bound(where) for where in (None, "amount > 0", "amount > 1"))
    assert none.fingerprint == some.fingerprint == other.fingerprint, "equal fingerprints share tables"
    assert compare_schemas(some, other).misfits == ()
    source = KafkaSource("sales", Sale)
    folds = [Fold("sales", key_by="shop", where=where, state=Sales) for where in (None, "amount > 0", "amount > 1")]
    prints = {Pipeline(name="sales", source=source, operators=[fold]).fingerprint for fold in folds}
    assert len(prints) == 3


def test_a_changed_key_expression_is_a_changed_key() -> None:
    old, new = bound(key_by={"s": "lower(shop)"}), bound(key_by={"s": "upper(shop)"})
    (found,) = compare_schemas(old, new).misfits
    assert (found.field, found.what) == ("key", "(lower(shop) STRING) became (upper(shop) STRING)")


def test_a_process_takes_both() -> None:
    made = Process("p", key_by={"s": "lower(shop)"}, where="amount > 0", state=Kept, function=print)
    schema = made.bind(record_type(Sale))
    assert schema.where is not None
    assert schema.keys[0].source == "lower(shop)"


class Kept(state.Keyed):
    """The state of a process."""

    n: int = state.value(0)


def test_whole_numbers_have_their_type_whatever_they_are_made_of() -> None:
    record = record_type(Sale)
    for text in ("amount + 1", "-amount", "abs(amount) % 7", "length(shop)", "year(day)", "second(at)", "isodow(at)"):
        assert bind_expression("x", text, record).type == FieldType("int", nullable=True), text
    assert replace(bind_expression("x", "at", record), text="at").type.kind == "timestamp"
