"""`Csv()` against a parser of RFC 4180 that goes character by character, and plain patterns for types."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import pytest
from hypothesis import strategies as st

from tests.support.format_cases import Answer, FormatCase
from tidemark import formats
from tidemark.errors import DeclarationError

INT = re.compile(r"-?(0|[1-9][0-9]*)")
NUMBER = re.compile(INT.pattern + r"(\.[0-9]+)?([eE][+-]?[0-9]+)?")
DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True)
class Trade:
    """One row, of which a column is not used."""

    symbol: str
    size: int
    price: float | None
    late: bool
    day: date


@dataclass(frozen=True)
class Stray:
    """A field without a column."""

    nowhere: str


@dataclass(frozen=True)
class Nested:
    """A field that no text can be."""

    symbol: list[str]


class Malformed(Exception):
    """No rows."""


PLAIN = r"[^|\r\n]*"
QUOTED = r'"(?:[^"]|"")*"(?=[|\r\n]|\Z)'
COLUMN = re.compile(rf"{QUOTED}|(?!\"){PLAIN}")
END = re.compile(r"\r\n|\n|\r|\Z")


def rows(text: str) -> Iterator[list[str]]:
    """The rows of a text, column by column; an empty line is a row without columns."""
    at = 0
    while at < len(text):
        row, begun = list[str](), at
        while True:
            found = COLUMN.match(text, at)
            if found is None:
                raise Malformed
            at, column = found.end(), found[0]
            row.append(column[1:-1].replace('""', '"') if column.startswith('"') else column)
            if text[at : at + 1] != "|":
                break
            at += 1
        end = END.match(text, at)
        assert end is not None
        yield row if at > begun else []
        at = end.end()


def oracle(value: bytes) -> Answer:
    try:
        found = list(rows(value.decode()))
    except UnicodeDecodeError:
        return "invalid_utf8"
    except Malformed:
        return "malformed_csv"
    if len(found) != 1 or len(found[0]) != 6:
        return "malformed_csv"
    symbol, size, _, price, late, day = found[0]
    reason = _refused(size, price, late, day)
    if reason is not None:
        return reason
    return {
        "symbol": symbol,
        "size": int(size.partition(".")[0]),
        "price": float(price) if price else None,
        "late": late == "true",
        "day": date.fromisoformat(day),
    }


def _refused(size: str, price: str, late: str, day: str) -> str | None:
    """The first reason, field by field."""
    reasons = (
        ("null_field: size", size == ""),
        ("wrong_type: size", not NUMBER.fullmatch(size) or "e" in size.lower()),
        ("out_of_range: size", not -(2**63) <= _whole(size) < 2**63),
        ("wrong_type: size", "." in size),
        ("wrong_type: price", bool(price) and not NUMBER.fullmatch(price)),
        ("out_of_range: price", NUMBER.fullmatch(price) is not None and abs(float(price)) == float("inf")),
        ("null_field: late", late == ""),
        ("wrong_type: late", late not in ("true", "false")),
        ("null_field: day", day == ""),
        ("bad_format: day", not DAY.fullmatch(day)),
        ("out_of_range: day", not _is_day(day)),
    )
    return next((reason for reason, applies in reasons if applies), None)


def _whole(text: str) -> int:
    return int(text.partition(".")[0]) if NUMBER.fullmatch(text) and "e" not in text.lower() else 0


def _is_day(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


FIELDS = st.fixed_dictionaries(
    {
        "symbol": st.text(st.characters(exclude_categories=["Cs"])),
        "size": st.integers(-(2**63), 2**63 - 1),
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "late": st.booleans(),
        "day": st.dates(),
    }
)
CASE = FormatCase(
    format=formats.Csv("symbol,size,venue,price,late,day", delimiter="|"),
    record=Trade,
    fields=FIELDS,
    oracle=oracle,
    bytes=(
        b"A|100|XETRA|12.5|false|2024-02-29",
        b'"A|B ""x"""|-1||1e3|true|0001-01-01\r\n',
        'ä|9223372036854775807|"a\nb"||true|9999-12-31'.encode(),
        b"A|1.0|x|1.5|yes|2024-02-30",
        b"|||||",
        b'"A"x|1|2|3|true|2024-01-01',
        b"A|1|2|3|true|2024-01-01\nB|1|2|3|true|2024-01-01",
    ),
)


@pytest.mark.parametrize("record", [Stray, Nested])
def test_every_field_is_a_column_and_a_single_value(record: type) -> None:
    with pytest.raises(DeclarationError, match=r"is no column of Csv|is a single value"):
        formats.Csv("symbol").bind(record)


@pytest.mark.parametrize(("columns", "delimiter"), [("", ","), ("a,,b", ","), ("a,a", ","), ("a", ""), ("a", '"')])
def test_declarations_that_cannot_be(columns: str, delimiter: str) -> None:
    with pytest.raises(DeclarationError):
        formats.Csv(columns, delimiter)


def test_one_column_may_be_empty() -> None:
    @dataclass(frozen=True)
    class Word:
        """A line."""

        word: str

    its = formats.Csv("word")
    assert [its.decode_one(value, its.bind(Word)) for value in (b"", b"\n", b'""', b"a\n")] == [
        {"word": ""},
        {"word": ""},
        {"word": ""},
        {"word": "a"},
    ]
