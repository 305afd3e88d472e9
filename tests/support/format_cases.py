"""Test cases of record formats. `tests/unit/formats` runs them in Python, `tests/engine` in Spark."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hypothesis.strategies import SearchStrategy

from tidemark.formats import BadRecord, RecordFormat
from tidemark.formats.known_formats import FORMATS

Answer = dict[str, Any] | str
"""The fields of a record, or the reason why it is refused."""
Raw = bytes
"""The value of a Kafka message. `FormatCase` has a field called `bytes`, which hides the builtin."""


@dataclass(frozen=True, kw_only=True)
class FormatCase:
    """One format with one record type.

    Attributes:
        format: the format under test.
        record: the dataclass that values are decoded to.
        fields: strategy for valid records, as mappings.
        oracle: decodes a value without product code.
        bytes: values at the edge of validity, which the test damages further.
    """

    format: RecordFormat
    record: type
    fields: SearchStrategy[Mapping[str, Any]]
    oracle: Callable[[bytes], Answer]
    bytes: tuple[bytes, ...]

    def answer(self, value: Raw | None) -> Answer:
        """The result of `decode_one`."""
        try:
            return self.format.decode_one(value, self.format.bind(self.record))
        except BadRecord as error:
            return str(error)


def case_of(name: str) -> FormatCase:
    """The case of a format: `CASE` in `test_<name>.py`."""
    found: FormatCase = import_module(f"tests.unit.formats.test_{name}").CASE
    return found


NAMES = sorted(FORMATS)


def damaged(chance: random.Random, value: bytes) -> bytes:
    """Applies up to three random deletions, insertions or changes of bytes to a value."""
    made = bytearray(value)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(made) + 1)
        match chance.randrange(3):
            case 0:
                del made[at : at + chance.randrange(1, 4)]
            case 1:
                made[at:at] = chance.choice([b"0", b"-", b".5", b'"', b",", b"{", b"}", b"\\u", b"\xc3", b"\xed\xa0"])
            case _:
                made[at : at + 1] = bytes([chance.randrange(256)])
    return bytes(made)
