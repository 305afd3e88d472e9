"""`Text()` against the table of well-formed UTF-8 in the Unicode standard (table 3-7)."""

import re
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.support.format_cases import Answer, FormatCase
from tidemark import Fold, KafkaSource, Pipeline, formats, state, testing
from tidemark.errors import DeclarationError
from tidemark.model.core.log_records import LogRecord
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.core.types import FieldType
from tidemark.web.source_lookup import by_key

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
class TextLine:
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


class Seen(state.Keyed):
    """How often."""

    n: int = state.count()


@dataclass(frozen=True)
class Shouted(formats.Text):
    """A format of an author's own."""

    name = "shouted"

    def decode_one(self, value: bytes | None, record: FieldType) -> dict[str, Any]:
        """In capitals."""
        return {name: text.upper() for name, text in super().decode_one(value, record).items()}


def oracle(value: bytes) -> Answer:
    if not WELL_FORMED.fullmatch(value):
        return "invalid_utf8"
    return {"text": value.decode("utf-8", "surrogatepass")}


CASE = FormatCase(
    format=formats.Text(),
    record=TextLine,
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


def test_pages_find_the_records_of_a_key_without_the_declaration() -> None:
    pipeline = Pipeline(
        name="lines",
        source=KafkaSource("lines", TextLine, format=formats.Text()),
        operators=[Fold("seen", key_by="text", state=Seen)],
        max_dead_letters=1.0,
    )
    (done,) = testing.replay(pipeline, [[TextLine("größer"), b"\xff", TextLine("b")], testing.BARRIER]).checkpoints
    fits = by_key(done.plan, "seen", ["größer"])
    assert fits is not None
    values = ["größer".encode(), b"\xff", b"b", None]
    records = [LogRecord(offset=n, timestamp_ms=0, key=None, value=value) for n, value in enumerate(values)]
    assert [r.offset for r in records if fits(TopicPartition("lines", 0), r)] == [0]


def test_pages_show_all_records_where_nobody_knows_the_format() -> None:
    pipeline = Pipeline(
        name="lines",
        source=KafkaSource("lines", TextLine, format=Shouted()),
        operators=[Fold("seen", key_by="text", state=Seen)],
    )
    (done,) = testing.replay(pipeline, [[TextLine("a"), b"b"], testing.BARRIER]).checkpoints
    assert done.plan.formats == {"records": {"format": "shouted"}}
    fits = by_key(done.plan, "seen", ["A"])
    assert fits is not None and fits(
        TopicPartition("lines", 0), LogRecord(offset=0, timestamp_ms=0, key=None, value=b"x")
    )
