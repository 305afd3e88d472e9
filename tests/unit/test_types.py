"""Types and names: which annotations have a stored form, and which names may reach a path or SQL."""

import re
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from types import GenericAlias
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.errors import DeclarationError, NameRefusedError
from tidemark.model.core.names import checked_field, checked_name
from tidemark.model.core.types import FieldType, Precision, field_type, record_type, type_from_json, type_to_json


@dataclass(frozen=True)
class Place:
    """A nested record."""

    code: str
    runway: int | None = None


@dataclass(frozen=True)
class Movement:
    """A record with every kind of field."""

    place: Place
    back: Place | None
    stops: list[str | None]
    price: Annotated[Decimal, Precision(10, 2)]


@pytest.mark.parametrize(
    ("annotation", "kind", "sql"),
    [
        (bool, "bool", "BOOLEAN"),
        (int, "int", "BIGINT"),
        (float, "float", "DOUBLE"),
        (str, "str", "STRING"),
        (bytes, "bytes", "BINARY"),
        (date, "date", "DATE"),
        (datetime, "timestamp", "TIMESTAMP"),
        (Decimal, "decimal", "DECIMAL(38,18)"),
        (Annotated[Decimal, Precision(10, 2)], "decimal", "DECIMAL(10,2)"),
        (list[int], "list", "ARRAY<BIGINT>"),
        (list[list[date]], "list", "ARRAY<ARRAY<DATE>>"),
        (Place, "struct", "STRUCT<`code`: STRING, `runway`: BIGINT>"),
    ],
)
def test_an_annotation_names_one_stored_type(annotation: type, kind: str, sql: str) -> None:
    found = field_type(annotation, "here")
    assert (found.kind, found.sql, found.nullable) == (kind, sql, False)
    assert field_type(annotation | None, "here") == found.with_null(True)


@pytest.mark.parametrize(
    "annotation",
    [complex, object, Any, set[int], list, tuple[int, ...], int | str, type(None), "int"],
)
def test_any_other_annotation_is_refused_with_the_list_of_those_there_are(annotation: object) -> None:
    with pytest.raises(DeclarationError) as refused:
        field_type(annotation, "Flight.x")
    assert "Flight.x" in refused.value.what
    assert "dataclass" in refused.value.next


@pytest.mark.parametrize("digits", [(0, 0), (39, 0), (10, 11), (10, -1)])
def test_a_precision_outside_38_digits_is_refused(digits: tuple[int, int]) -> None:
    with pytest.raises(DeclarationError, match="precision"):
        Precision(*digits)


def test_a_path_is_nullable_when_one_step_of_it_is() -> None:
    record = record_type(Movement)
    assert record.at("place.code") == FieldType("str")
    assert record.at("back.code") == FieldType("str", nullable=True)
    assert record.at("place.runway") == FieldType("int", nullable=True)


@pytest.mark.parametrize("path", ["", "nowhere", "place.nowhere", "place.code.deeper", "place.", ".place"])
def test_a_path_to_nowhere_has_no_type(path: str) -> None:
    assert record_type(Movement).at(path) is None


def test_a_record_is_a_dataclass() -> None:
    with pytest.raises(DeclarationError, match="not a dataclass"):
        record_type(int)


class Card(Enum):
    """Members by value."""

    DEBIT = "debit"
    CREDIT = "credit"


class Level(IntEnum):
    """An Enum of integers."""

    LOW = 1
    HIGH = 2


class Mixed(Enum):
    """No single stored type."""

    A = "a"
    B = 2


class Bits(Flag):
    """Its values are sums of its members."""

    A = 1


@pytest.mark.parametrize(
    ("annotation", "found"),
    [
        (Card, FieldType("str", members=("debit", "credit"))),
        (Level, FieldType("int", members=(1, 2))),
        (Level | None, FieldType("int", nullable=True, members=(1, 2))),
        (Literal["a", "b"], FieldType("str", members=("a", "b"))),
        (Literal[3, 2], FieldType("int", members=(3, 2))),
        (UUID, FieldType("str", form="uuid")),
        (time, FieldType("str", form="time")),
    ],
)
def test_types_that_are_stored_as_others_keep_what_they_mean(annotation: Any, found: FieldType) -> None:
    assert field_type(annotation, "here") == found
    assert type_from_json(type_to_json(found)) == found
    assert found.stored == FieldType(found.kind, found.nullable)


@pytest.mark.parametrize("annotation", [Mixed, Bits, Enum("Empty", []), Literal["a", 1], Literal[True], Literal[2**63]])
def test_an_enum_of_several_types_is_refused(annotation: Any) -> None:
    with pytest.raises(DeclarationError):
        field_type(annotation, "here")


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (int, 5, "5"),
        (float, 0, "0"),
        (bool, True, "true"),
        (str, 'a"', r'"a\""'),
        (Decimal, Decimal("1.5"), '"1.500000000000000000"'),
        (bytes, b"hi", '"aGk="'),
        (date, date(2020, 2, 29), '"2020-02-29"'),
        (datetime, datetime(2020, 1, 1), '"2020-01-01T00:00:00+00:00"'),
        (time, time(9, 30), '"09:30:00"'),
        (UUID, UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Card, Card.DEBIT, '"debit"'),
        (Level, Level.HIGH, "2"),
        (int | None, 7, "7"),
        (list[Card], [Card.DEBIT], '["debit"]'),
    ],
)
def test_a_default_is_the_json_of_a_record_that_says_it(annotation: Any, value: object, text: str) -> None:
    made = make_dataclass("Made", [("f", annotation, field(default_factory=lambda: value))])
    (found,) = (of for _, of in record_type(made).fields)
    assert found.default == text
    assert found.bare == field_type(annotation, "here")
    assert type_from_json(type_to_json(found)) == found


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, "5"),
        (int, True),
        (int, 2**63),
        (int, None),
        (float, float("nan")),
        (str, "\ud800"),
        (Annotated[Decimal, Precision(4, 2)], Decimal("1.005")),
        (Annotated[Decimal, Precision(4, 2)], Decimal("NaN")),
        (Card, Level.LOW),
        (Literal["a"], "b"),
        (UUID, "00000000-0000-0000-0000-000000000001"),
        (time, time(9, tzinfo=UTC)),
        (list[int], (1, 2)),
        (list[int], ["a"]),
        (Place, "here"),
    ],
)
def test_a_default_of_another_type_is_refused_by_name(annotation: Any, value: object) -> None:
    made = make_dataclass("Made", [("f", annotation, field(default_factory=lambda: value))])
    with pytest.raises(DeclarationError, match=r"Made\.f: .* is not of the declared type"):
        record_type(made)


@pytest.mark.parametrize("key", [int, UUID, time, date, Level, bool])
def test_a_dict_of_a_record_is_keyed_by_texts(key: Any) -> None:
    made = make_dataclass("Made", [("f", GenericAlias(dict, (str, GenericAlias(dict, (key, int)))))])
    with pytest.raises(DeclarationError, match=r"Made\.f: names in a JSON object are texts"):
        record_type(made)


def test_a_default_that_varies_is_refused() -> None:
    made = make_dataclass("Made", [("id", UUID, field(default_factory=uuid4))])
    with pytest.raises(DeclarationError, match="another value each time"):
        record_type(made)


def test_types_of_0_1_have_the_json_of_0_1() -> None:
    """Manifests and fingerprints of pipelines that use nothing new stay as they are."""
    plain = [FieldType(kind) for kind in ("bool", "int", "float", "str", "bytes", "date", "timestamp")]
    assert [type_to_json(of) for of in plain] == [{"kind": of.kind, "nullable": False} for of in plain]
    assert type_to_json(dict(record_type(Movement).fields)["price"]) == {
        "kind": "decimal", "nullable": False, "digits": 10, "scale": 2,
    }  # fmt: skip


LOOK_ALIKES = ["flıghts", "flіghts", "ｆlights", "flights\u200b", "flights\u00a0", "１23"]
HOSTILE = ["", ".", "..", "../x", "a/../b", "a..b", "/etc", "a/b", "a\\b", "a`b", "`", "a\x00b", "a\n", "\na", "a b"]
HOSTILE += ["a'b", 'a"b', "a;b", "a@v3", "a%2e%2e", "$HOME", "-rf", ".hidden", "_x", "~", "a*", "x" * 64]
ALLOWED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


@pytest.mark.parametrize("name", HOSTILE + LOOK_ALIKES)
def test_a_name_that_could_leave_its_place_is_refused(name: str) -> None:
    with pytest.raises(NameRefusedError) as refused:
        checked_name("uid", name)
    assert len(str(refused.value).splitlines()) == 3
    with pytest.raises(NameRefusedError):
        checked_field(name)


@given(st.text(max_size=70))
@example("a\u0000")
@example("..")
def test_only_the_allow_list_passes(name: str) -> None:
    allowed = name.isascii() and ".." not in name and ALLOWED.fullmatch(name) is not None
    if allowed:
        assert checked_name("topic", name) == name
    else:
        with pytest.raises(NameRefusedError):
            checked_name("topic", name)


@given(st.from_regex(r"\A[A-Za-z][A-Za-z0-9_]{0,62}\Z"))
def test_a_plain_name_is_a_column(name: str) -> None:
    name = name.rstrip("\n")
    assert checked_field(name) == name


@pytest.mark.parametrize("name", ["_changed", "_kind", "1st", "a-b", "a.b", "é"])
def test_a_column_of_tidemarks_own_shape_is_refused(name: str) -> None:
    with pytest.raises(NameRefusedError):
        checked_field(name)
