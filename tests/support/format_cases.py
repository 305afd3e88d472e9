"""What a format brings so that the suites of formats can try it: here in Python, in `tests/engine` in Spark."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hypothesis.strategies import SearchStrategy

from tidemark.formats import BadRecord, RecordFormat
from tidemark.formats.known_formats import FORMATS

Answer = dict[str, Any] | str
"""The fields of a record, or why it is refused."""
Raw = bytes
"""A value as it lies in the topic; `FormatCase` has a field called `bytes`."""


@dataclass(frozen=True, kw_only=True)
class FormatCase:
    """One format with one record type.

    Attributes:
        format: the format.
        record: a dataclass.
        fields: good records, as mappings.
        oracle: what a value means, by a program of its own.
        bytes: values that break easily; the test damages them.
    """

    format: RecordFormat
    record: type
    fields: SearchStrategy[Mapping[str, Any]]
    oracle: Callable[[bytes], Answer]
    bytes: tuple[bytes, ...]

    def answer(self, value: Raw | None) -> Answer:
        """What `decode_one` says."""
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
    """A value with up to three of its bytes cut, added or changed."""
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
