"""`Text()` against the table of well-formed UTF-8 in the Unicode standard (table 3-7)."""

import re
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st

from tests.unit.formats.cases import Answer, Case
from tidemark import formats
from tidemark.errors import DeclarationError

_TAIL = b"[\x80-\xbf]"
WELL_FORMED = re.compile(
    b"(?:[\x00-\x7f]"
    b"|[\xc2-\xdf]" + _TAIL
    + b"|\xe0[\xa0-\xbf]" + _TAIL
    + b"|[\xe1-\xec\xee\xef]" + _TAIL + b"{2}"
    + b"|\xed[\x80-\x9f]" + _TAIL
    + b"|\xf0[\x90-\xbf]" + _TAIL + b"{2}"
    + b"|[\xf1-\xf3]" + _TAIL + b"{3}"
    + b"|\xf4[\x80-\x8f]" + _TAIL + b"{2})*",
    re.DOTALL,
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One text."""

    text: str


@dataclass(frozen=True)
class Optional:
    """A text that may be missing, which no value says."""

    text: str | None


@dataclass(frozen=True)
class Pair:
    """Two texts, of which a value has one."""

    left: str
    right: str


@dataclass(frozen=True)
class Number:
    """No text."""

    n: int


def oracle(value: bytes) -> Answer:
    if not WELL_FORMED.fullmatch(value):
        return "invalid_utf8"
    return {"text": value.decode("utf-8", "surrogatepass")}


CASE = Case(
    format=formats.Text(),
    record=Line,
    fields=st.builds(lambda text: {"text": text}, st.text()),
    oracle=oracle,
    bytes=(
        "zwölf Boxkämpfer\r\n".encode(),
        b"",
        b"\xef\xbb\xbfx",
        "a\0b\U0001f600".encode(),
        b"\xc3",
        b"\xf4\x90\x80\x80",
    ),
)


@pytest.mark.parametrize("record", [Optional, Pair, Number])
def test_a_text_fills_one_field(record: type) -> None:
    with pytest.raises(DeclarationError, match="does not fit Text"):
        formats.Text().bind(record)


def test_nothing_of_a_text_is_trimmed() -> None:
    text = "\ufeff  a\r\n"
    assert CASE.answer(text.encode()) == {"text": text}
