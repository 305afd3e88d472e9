"""Joins of broadcast states as declarations: what is refused, what they are stored as, what may change."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import pytest

from tidemark import Broadcast, Fold, KafkaSource, Pipeline, Process, state
from tidemark.errors import DeclarationError
from tidemark.model.core.types import FieldType
from tidemark.model.schema.lookup_joins import Join
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.evolution import compare_schemas


@dataclass(frozen=True)
class Gate:
    """Inside a record."""

    number: int
    since: datetime | None


@dataclass(frozen=True)
class Flight:
    """A record."""

    tail: str | None
    carrier: str
    gate: Gate | None
    distance: int
    crew: str


@dataclass(frozen=True)
class Plane:
    """A row that is broadcast."""

    tail: str
    maker: str | None
    seats: int
    hub: Gate


@dataclass(frozen=True)
class Stand:
    """Another one, by two fields."""

    carrier: str
    number: int
    heated: bool


class Makers(state.Keyed):
    """Uses planes."""

    flights: int = state.count()
    seats: int | None = state.sum("planes.seats")


class Counted(state.Keyed):
    """Uses nothing that is joined."""

    flights: int = state.count()


class Loads(state.Keyed):
    """Uses planes in a text, and a whole row."""

    most: int | None = state.reduce("max(distance * planes.seats)")
    last: Plane | None = state.latest("planes")
    hub: int | None = state.latest("planes.hub.number")


PLANES = Broadcast("planes", KafkaSource("planes", Plane), key_by="tail")
STANDS = Broadcast("stands", KafkaSource("stands", Stand), key_by=("carrier", "number"))


def air(*operators: Fold | Process, broadcast: tuple[Broadcast, ...] = (PLANES, STANDS)) -> Pipeline:
    """A pipeline with operators over flights."""
    return Pipeline(name="air", source=KafkaSource("flights", Flight), operators=operators, broadcast=broadcast)


def makers(
    key_by: str | Sequence[str] = "planes.maker", state_class: type[state.Keyed] = Makers, **join: str | Sequence[str]
) -> Pipeline:
    """A pipeline with one fold that joins."""
    joins = join or {"planes": "tail"}
    return air(Fold("makers", key_by=key_by, state=state_class, join=joins))


def renamed(uid: str) -> Pipeline:
    """The broadcast state under another uid."""
    fold = Fold("makers", key_by=f"{uid}.maker", state=Counted, join={uid: "tail"})
    return air(fold, broadcast=(Broadcast(uid, KafkaSource("planes", Plane), key_by="tail"),))


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: makers(plains="tail"), "no such broadcast state.*planes, stands"),
        (lambda: air(Fold("a", key_by="planes.maker", state=Counted, join={"planes": "tail"}), broadcast=()),
         "no such broadcast state.*declare it in Pipeline"),
        (lambda: makers(planes="tale"), "the record has no field 'tale'"),
        (lambda: makers(planes="distance"), "distance is int, its key tail is str"),
        (lambda: makers(planes="gate.since"), "gate.since is timestamp, its key tail is str"),
        (lambda: makers(planes="gate"), "gate is struct, its key tail is str"),
        (lambda: makers(planes=("tail", "carrier")), r"on \(tail, carrier\), its key is \(tail\)"),
        (lambda: makers(planes="tail", stands="carrier"), r"on \(carrier\), its key is \(carrier, number\)"),
        (lambda: makers(planes="tail", stands=()), r"on \(\), its key is \(carrier, number\)"),
        (lambda: makers(planes="tail", stands=("planes.maker", "gate.number")), "not of a joined row"),
        (lambda: renamed("crew"), "crew is also a field of the record.*rename the broadcast state"),
        (lambda: renamed("Crew"), "Crew is also a field of the record"),
        (lambda: renamed("the-planes"), "the-planes is not a valid field name"),
        (lambda: makers(planes="tail", stands=("carrier", "gate.number")), "stands': no key, condition or field uses"),
        (lambda: makers("tail", Counted), "join='planes': no key, condition or field uses it"),
        (lambda: makers("planes.colour"), "key_by='planes.colour': no such field"),
        (lambda: makers("planes.hub"), "a struct cannot be a key"),
        (lambda: makers(("tail", "planes.tail")), "two columns are called tail"),
        (lambda: air(Fold("a", key_by="planes.maker", state=Counted)), "key_by='planes.maker': no such field"),
        (lambda: air(Fold("a", key_by="tail", state=Makers)), "the record has no field 'planes.seats'"),
        (lambda: Fold("a", key_by="tail", state=Makers, join="planes"),  # type: ignore[arg-type]
         "join='planes'.*map uids to record fields"),
    ],
)  # fmt: skip
def test_a_join_that_makes_no_sense_is_refused(declare: Callable[[], object], words: str) -> None:
    with pytest.raises(DeclarationError, match=f"(?s){words}"):
        declare()


def test_every_joined_field_may_be_null_also_where_no_row_has_a_null() -> None:
    schema = makers(("carrier", "planes.maker")).schemas()["makers"]
    assert [(k.name, k.source, k.type) for k in schema.keys] == [
        ("carrier", "carrier", FieldType("str")),
        ("maker", "planes.maker", FieldType("str")),
    ]
    assert [f.over for f in schema.fields if f.source == "planes.seats"] == [FieldType("int", nullable=True)]
    assert schema.joins == (Join("planes", ("tail",)),)
    assert schema.is_decided_by_joins
    assert not makers("carrier").schemas()["makers"].is_decided_by_joins


def test_rows_whole_structs_in_rows_and_texts_of_aggregates_may_be_joined() -> None:
    schema = makers("stands.heated", Loads, planes="tail", stands=("carrier", "gate.number")).schemas()["makers"]
    assert {f.name: f.inputs for f in schema.fields} == {
        "most": ("distance", "planes.seats"),
        "last": ("planes",),
        "hub": ("planes.hub.number",),
    }
    assert [join.uid for join in schema.joins] == ["planes", "stands"]
    assert schema.joined_by(["distance", "planes.seats"]) == schema.joins[:1]


def test_a_schema_with_joins_comes_back_from_json_and_one_without_says_nothing_of_them() -> None:
    schema = makers().schemas()["makers"]
    assert OperatorSchema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    assert "joins" not in air(Fold("a", key_by="tail", state=Counted)).schemas()["a"].to_json()


def test_the_fingerprint_covers_what_is_joined_on_but_not_the_order_of_the_mapping() -> None:
    both = {"planes": "tail", "stands": ("carrier", "gate.number")}
    made = [makers("stands.heated", Makers, **dict(pairs)) for pairs in (both.items(), reversed(both.items()))]
    assert made[0].fingerprint == made[1].fingerprint
    assert len({makers(planes=on).fingerprint for on in ("tail", "crew", "carrier", ("tail",))}) == 3


def test_a_join_on_another_field_is_refused_with_both_and_a_remedy() -> None:
    old, new = makers(planes="tail").schemas()["makers"], makers(planes="crew").schemas()["makers"]
    assert [str(m) for m in compare_schemas(old, new).misfits] == [
        "makers.key: joined on (tail) became joined on (crew) (give the operator a new uid)",
        "makers.seats: joined on (tail) became joined on (crew) (declare it under a new name)",
    ]
