"""State classes: what is declared is known as data, and what makes no sense is refused when it is declared."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import datetime
from typing import Any

import pytest

from tidemark import state
from tidemark.errors import DeclarationError, NameRefusedError
from tidemark.model.core.types import FieldType


class Aircraft(state.Keyed):
    """Every kind of field there is."""

    flights: int = state.count()
    distance: int | None = state.sum("distance")
    least: float | None = state.min("delay")
    worst: float | None = state.max("delay")
    mean_delay: float = state.mean("delay")
    first_airport: str | None = state.first("origin")
    last_seen_at: datetime = state.latest("at", ignore_nulls=True)
    carriers: list[str] = state.distinct("carrier", limit=5)


def test_the_declaration_is_data_in_its_order() -> None:
    assert [(d.name, d.kind, d.source) for d in Aircraft.descriptors] == [
        ("flights", "count", ""),
        ("distance", "sum", "distance"),
        ("least", "min", "delay"),
        ("worst", "max", "delay"),
        ("mean_delay", "mean", "delay"),
        ("first_airport", "first", "origin"),
        ("last_seen_at", "latest", "at"),
        ("carriers", "distinct", "carrier"),
    ]
    options = {d.name: (d.ignore_nulls, d.limit) for d in Aircraft.descriptors}
    assert options["last_seen_at"] == (True, 1000)
    assert options["carriers"] == (False, 5)


def test_every_field_but_count_and_distinct_may_be_null() -> None:
    nullable = {d.name for d in Aircraft.descriptors if d.type.nullable}
    assert nullable == {d.name for d in Aircraft.descriptors} - {"flights", "carriers"}


def test_a_key_without_records_has_the_defaults() -> None:
    empty = Aircraft()
    assert (empty.flights, empty.distance, empty.carriers) == (0, None, [])
    assert empty == Aircraft()
    assert empty != Aircraft(flights=1)


def test_two_keys_do_not_share_a_list() -> None:
    one, other = Aircraft(), Aircraft()
    one.carriers.append("AA")
    assert other.carriers == []


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="'flihgts'"):
        Aircraft(flihgts=1)  # type: ignore[call-arg]


def test_the_repr_shows_the_values() -> None:
    class Seen(state.Keyed):
        n: int = state.count()

    assert repr(Seen(n=3)) == "Seen(n=3)"


def test_a_descriptor_is_frozen() -> None:
    with pytest.raises((FrozenInstanceError, AttributeError)):
        Aircraft.descriptors[0].name = "other"  # type: ignore[misc]


def _class(name: str = "Declared", /, **fields: tuple[Any, Any]) -> Callable[[], type]:
    annotations = {field: hint for field, (hint, _) in fields.items()}
    body = {field: value for field, (_, value) in fields.items() if value is not ...}
    return lambda: type(name, (state.Keyed,), {"__annotations__": annotations, **body})


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "nothing remembered": (_class(), "declares no state"),
    "no field kind": (_class(n=(int, ...)), "not a state field"),
    "a plain value": (_class(n=(int, 5)), "not a state field"),
    "count of a str": (_class(n=(str, state.count())), "declared str"),
    "mean of an int": (_class(n=(int, state.mean("x"))), "declared int"),
    "distinct of a scalar": (_class(n=(str, state.distinct("x"))), "declared str"),
    "no stored type": (_class(n=(complex, state.max("x"))), "no stored type"),
    "a dict in a dict": (_class(n=(dict[str, dict[str, int]], state.map())), "Declared.n: a dict inside a dict"),
    "a dict in a list in a dict": (_class(n=(dict[str, list[dict[str, int]]], state.map())), "a dict inside a dict"),
    "a dict or None in a dict": (_class(n=(dict[str, dict[str, int] | None], state.map())), "a dict inside a dict"),
    "a dict in a list": (_class(n=(list[dict[str, int]], state.list())), "a dict inside state.list"),
    "a dict as a value": (_class(n=(dict[str, int] | None, state.value(None))), "a dict inside state.value"),
    "sum of nothing": (lambda: state.sum(""), "state.sum"),
    "sum of a class": (lambda: state.sum(Aircraft), "state.sum"),  # type: ignore[arg-type]
    "latest of nothing": (lambda: state.latest(""), "state.latest"),
    "distinct without room": (lambda: state.distinct("x", limit=0), "limit=0"),
}


@pytest.mark.parametrize(("declare", "words"), REFUSED.values(), ids=REFUSED)
def test_a_declaration_that_makes_no_sense_is_refused_in_three_lines(declare: Callable[[], object], words: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        declare()
    what, safe, step = str(refused.value).splitlines()
    assert words in what
    assert (safe[:6], step[:6]) == ("Safe: ", "Next: ")
    assert refused.value.code == 2


@pytest.mark.parametrize("name", ["_changed", "_n", "naïve"])
def test_a_field_with_a_name_of_tidemarks_own_is_refused(name: str) -> None:
    with pytest.raises(NameRefusedError):
        _class(**{name: (int, state.count())})()


def test_a_state_class_may_extend_another() -> None:
    class Base(state.Keyed):
        n: int = state.count()

    class Wider(Base):
        total: int = state.sum("x")

    assert {d.name for d in Wider.descriptors} == {"n", "total"}
    assert Base.descriptors[0].type == FieldType("int")
