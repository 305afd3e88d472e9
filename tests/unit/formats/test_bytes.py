"""`Bytes()`: the value itself."""

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st

from tests.support.format_cases import FormatCase
from tidemark import Fold, KafkaSource, Pipeline, formats, kafka, state, testing
from tidemark.errors import DeclarationError


@dataclass(frozen=True)
class Blob:
    """One value."""

    content: bytes


@dataclass(frozen=True)
class MaybeBlob:
    """A value that may be missing, which no value says."""

    content: bytes | None


@dataclass(frozen=True)
class TwoBlobs:
    """Two values, of which a record has one."""

    left: bytes
    right: bytes


@dataclass(frozen=True)
class KeyedBlob:
    """A value with the message key."""

    content: bytes
    camera: str = kafka.key()


class LastBlob(state.Keyed):
    """The last value of a key."""

    content: bytes = state.latest("content")


CASE = FormatCase(
    format=formats.Bytes(),
    record=Blob,
    fields=st.builds(lambda content: {"content": content}, st.binary()),
    oracle=lambda value: {"content": value},
    bytes=(b"", b"\0\xff", b"text", bytes(range(256))),
)


@pytest.mark.parametrize("record", [MaybeBlob, TwoBlobs])
def test_a_value_fills_one_field(record: type) -> None:
    with pytest.raises(DeclarationError, match="does not fit Bytes"):
        formats.Bytes().bind(record)


def test_values_are_kept_by_their_message_key() -> None:
    made = Pipeline(
        name="images",
        source=KafkaSource("images", KeyedBlob, format=formats.Bytes()),
        operators=[Fold("last", key_by="camera", state=LastBlob)],
        max_dead_letters=1.0,
    )
    sent = [KeyedBlob(b"\xff", "a"), KeyedBlob(b"", "b"), b"no key", KeyedBlob(b"\xfe", "a")]
    found = testing.replay(made, [sent, testing.BARRIER])
    assert found.state("last") == {"a": LastBlob(content=b"\xfe"), "b": LastBlob(content=b"")}
    assert [letter["reason"] for letter in found.dead_letters("last")] == ["null_field: camera"]
