"""Types and names: which annotations have a stored form, and which names may reach a path or SQL."""

import re
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.errors import DeclarationError, NameRefusedError
from tidemark.model.core.names import checked_field, checked_name
from tidemark.model.core.types import FieldType, Precision, field_type, record_type


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


def test_a_default_that_json_cannot_show_is_refused() -> None:
    @dataclass(frozen=True)
    class Record:
        n: int = 5

    @dataclass(frozen=True)
    class Listed:
        n: list[int] = field(default_factory=list)

    for cls in (Record, Listed):
        with pytest.raises(DeclarationError, match="default other than None"):
            record_type(cls)


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
