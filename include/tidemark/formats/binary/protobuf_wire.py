"""Protobuf's wire format: the fields of a message as tokens, and values that are not composed."""

import struct
from collections.abc import Iterator
from typing import Any

from tidemark.formats.binary.avro_binary import Malformed

DEEPEST = 100
"""How deep groups and messages may nest, as in protobuf's own libraries."""
FIXED = {1: "<d", 2: "<f", 6: "<Q", 7: "<I", 15: "<i", 16: "<q"}
"""Layout of each type of a fixed size, by its number in `FieldDescriptorProto.Type`."""


def read_varint(raw: bytes, at: int) -> tuple[int, int]:
    """Reads a varint of at most ten bytes; bits beyond 64 are lost."""
    found = shift = 0
    while True:
        byte = raw[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return found & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise Malformed("more than ten bytes")


def tokens(raw: bytes, depth: int = 0) -> Iterator[tuple[int, int, Any]]:
    """Yields (number, wire type, value) of each field of a message: a varint, or bytes. Groups are passed over."""
    at = 0
    while at < len(raw):
        number, wire, at = _tag(raw, at)
        if wire == 0:
            value, at = read_varint(raw, at)
            yield number, wire, value
        elif wire == 3:
            at = _skip_group(raw, at, number, depth + 1)
        elif wire == 4:
            raise Malformed("the end of no group")
        else:
            found, at = _bytes_of(raw, at, wire)
            yield number, wire, found


def _tag(raw: bytes, at: int) -> tuple[int, int, int]:
    begun = at
    tag, at = read_varint(raw, at)
    if at - begun > 5 or tag >= 1 << 32 or tag < 8:
        raise Malformed("no field has this number")
    return tag >> 3, tag & 7, at


def _bytes_of(raw: bytes, at: int, wire: int) -> tuple[bytes, int]:
    if wire not in (1, 2, 5):
        raise Malformed("no such wire type")
    size = 8 if wire == 1 else 4
    if wire == 2:
        begun = at
        size, at = read_varint(raw, at)
        if at - begun > 5:
            raise Malformed("a length of more than five bytes")
    if size > len(raw) - at:
        raise Malformed("a length beyond the end")
    return raw[at : at + size], at + size


def _skip_group(raw: bytes, at: int, number: int, depth: int) -> int:
    if depth >= DEEPEST:
        raise Malformed("too deep")
    while True:
        inner, wire, at = _tag(raw, at)
        if wire == 4:
            if inner != number:
                raise Malformed("the end of another group")
            return at
        if wire == 3:
            at = _skip_group(raw, at, inner, depth + 1)
        elif wire == 0:
            _, at = read_varint(raw, at)
        else:
            _, at = _bytes_of(raw, at, wire)


def scalar(type: int, value: Any) -> Any:  # noqa: ANN401
    """Returns a value that is neither a message nor an enum's symbol, from a varint or its bytes."""
    match type:
        case 1 | 2 | 6 | 7 | 15 | 16:
            return struct.unpack(FIXED[type], value)[0]
        case 3:
            return value - (1 << 64) if value >> 63 else value
        case 5 | 14:
            low = value & 0xFFFFFFFF
            return low - (1 << 32) if low >> 31 else low
        case 8:
            return value != 0
        case 9:
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                raise Malformed("not UTF-8") from error
        case 13:
            return value & 0xFFFFFFFF
        case 17 | 18:
            low = value & 0xFFFFFFFF if type == 17 else value
            return (low >> 1) ^ -(low & 1)
    return value


def unpacked(type: int, raw: bytes) -> Iterator[Any]:
    """Yields the values of a packed list."""
    if type in FIXED:
        size = struct.calcsize(FIXED[type])
        if len(raw) % size:
            raise Malformed("a packed list with a rest")
        yield from (scalar(type, raw[at : at + size]) for at in range(0, len(raw), size))
        return
    at = 0
    while at < len(raw):
        value, at = read_varint(raw, at)
        yield scalar(type, value)


def write_varint(n: int) -> bytes:
    """Writes a number that is not negative, seven bits a byte."""
    made = bytearray()
    while n > 127:
        made.append(n & 127 | 128)
        n >>= 7
    return bytes([*made, n])


def sized(raw: bytes) -> bytes:
    """Writes bytes behind their length."""
    return write_varint(len(raw)) + raw
