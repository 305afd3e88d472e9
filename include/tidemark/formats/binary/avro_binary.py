"""Values of Avro's binary encoding that are not composed: each function reads one at a position.

They return the value and the position behind it. An index beyond the end raises IndexError, as sequences do.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any

Read = Callable[[bytes, int], tuple[Any, int]]
"""Reads one value at a position."""
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


class Malformed(ValueError):  # noqa: N818  (an answer, like `BadRecord`)
    """The bytes are no value of the type."""


def read_long(raw: bytes, at: int) -> tuple[int, int]:
    """Reads an int or a long: zigzag, seven bits a byte, at most 64 bits."""
    byte = raw[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    found, shift = byte & 127, 7
    while byte & 128:
        if shift > 63:
            raise Malformed("more than 64 bits")
        byte = raw[at]
        at += 1
        found |= (byte & 127) << shift
        shift += 7
    if found >= 1 << 64:
        raise Malformed("more than 64 bits")
    return (found >> 1) ^ -(found & 1), at


def read_bytes(raw: bytes, at: int) -> tuple[bytes, int]:
    """Reads bytes behind their length."""
    size, at = read_long(raw, at)
    return cut(raw, at, size)


def read_text(raw: bytes, at: int) -> tuple[str, int]:
    """Reads a string.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
    """
    size = raw[at]
    if size < 128 and not size & 1:  # shorter than 64 bytes: most are, and a call less counts
        at += 1
        end = at + (size >> 1)
        if end > len(raw):
            raise Malformed("a length beyond the end")
        return raw[at:end].decode(), end
    found, at = read_bytes(raw, at)
    return found.decode(), at


def read_boolean(raw: bytes, at: int) -> tuple[bool, int]:
    """Reads a boolean; only 0 and 1 are."""
    byte = raw[at]
    if byte > 1:
        raise Malformed("neither true nor false")
    return byte == 1, at + 1


def read_null(raw: bytes, at: int) -> tuple[None, int]:  # noqa: ARG001
    """Reads nothing."""
    return None, at


def cut(raw: bytes, at: int, size: int) -> tuple[bytes, int]:
    """Reads this many bytes."""
    end = at + size
    if size < 0 or end > len(raw):
        raise Malformed("a length beyond the end")
    return raw[at:end], end


def read_float(raw: bytes, at: int) -> tuple[float, int]:
    """Reads a float."""
    found, end = cut(raw, at, 4)
    return _FLOAT.unpack(found)[0], end


def read_double(raw: bytes, at: int) -> tuple[float, int]:
    """Reads a double."""
    found, end = cut(raw, at, 8)
    return _DOUBLE.unpack(found)[0], end


def fixed_reader(size: int) -> Read:
    """Returns the reader of a fixed."""
    return lambda raw, at: cut(raw, at, size)


def enum_reader(symbols: Sequence[str]) -> Read:
    """Returns the reader of an enum, which returns the symbol."""

    def read(raw: bytes, at: int) -> tuple[str, int]:
        n, at = read_long(raw, at)
        if not 0 <= n < len(symbols):
            raise Malformed("no such symbol")
        return symbols[n], at

    return read
