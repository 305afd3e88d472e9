"""Reads messages of single scalars and timestamps in one loop; `MessageReader` gets everything doubtful."""

import math
import struct
from collections.abc import Callable
from typing import Any

from tidemark.formats.binary.protobuf_messages import KINDS, MESSAGE, TIMESTAMP, MessageField, Messages
from tidemark.formats.binary.protobuf_values import moment
from tidemark.formats.binary.protobuf_wire import FIXED, scalar
from tidemark.formats.json import default_of
from tidemark.model.core.types import FieldType

FlatReader = Callable[[bytes], dict[str, Any] | None]
"""Reads a message; None in doubt."""

_ENUM = 14
_SIZES = {1: 8, 5: 4}
"""Bytes of a value by its wire type."""
_MOST_BYTES, _SHORT = 10, 5
"""Bytes of the longest varint that is a value, and of the longest that is a tag or a length."""
_ABSENT = object()
_DEFAULTS = {"int": 0, "float": 0.0, "bool": False, "str": "", "bytes": b""}


def flat_reader(messages: Messages, record: FieldType) -> FlatReader | None:
    """Returns the reader of a record; None if one of its fields is a list, an enum, restricted, or another message."""
    known = messages.by_name[messages.name]
    if any(not _is_single(known.get(name), to) for name, to in record.fields):
        return None
    here = [known[name] for name, _ in record.fields if name in known]
    wanted = {of.number << 3 | of.wire: (of.name, of.type) for of in here}
    empty = {name: _absent(known.get(name), to) for name, to in record.fields}

    def read(raw: bytes) -> dict[str, Any] | None:
        found = empty.copy()
        try:
            at, size = 0, len(raw)
            while at < size:
                tag, at = _varint(raw, at, _SHORT)
                if not 8 <= tag < 1 << 32:
                    return None
                part, at = _part(raw, at, tag & 7)
                if tag in wanted:
                    name, of = wanted[tag]
                    if of != MESSAGE:
                        found[name] = _value(of, part)
                    elif found[name] is not empty[name]:
                        return None  # several are merged
                    else:
                        found[name] = moment(part, name)
        except (IndexError, ValueError, struct.error):
            return None
        return None if at != size or _ABSENT in found.values() else found

    return read


def _part(raw: bytes, at: int, wire: int) -> tuple[Any, int]:
    """Reads a varint, or bytes, which may be too few at the end of the message."""
    if wire == 0:
        return _varint(raw, at)
    if wire == 2:  # noqa: PLR2004  (bytes behind their length)
        size, at = _varint(raw, at, _SHORT)
    elif wire in _SIZES:
        size = _SIZES[wire]
    else:
        raise ValueError("a group")
    return raw[at : at + size], at + size


def _is_single(of: MessageField | None, to: FieldType) -> bool:
    if of is None or to.form or to.members:
        return of is None
    return not of.repeated and of.type != _ENUM and (of.type != MESSAGE or of.of == TIMESTAMP) and to.element is None


def _absent(of: MessageField | None, to: FieldType) -> Any:  # noqa: ANN401
    if of is None:
        return default_of(to)
    if not of.presence:
        return _DEFAULTS[KINDS[of.type]]
    return default_of(to) if to.nullable or to.default is not None else _ABSENT


def _varint(raw: bytes, at: int, most: int = _MOST_BYTES) -> tuple[int, int]:
    byte = raw[at]
    if byte < 128:
        return byte, at + 1
    found, shift, begun = byte & 127, 7, at
    while True:
        at += 1
        byte = raw[at]
        found |= (byte & 127) << shift
        if byte < 128:
            return found & 0xFFFFFFFFFFFFFFFF, at + 1
        shift += 7
        if at - begun >= most - 1:
            raise ValueError("a varint that is too long")


def _value(of: int, part: Any) -> Any:  # noqa: ANN401
    if of == 9:  # noqa: PLR2004  (a text)
        return part.decode()
    if of in FIXED:
        (found,) = struct.unpack(FIXED[of], part)
    else:
        found = scalar(of, part)
    if isinstance(found, float):
        if not math.isfinite(found):
            raise ValueError("out of range")
    elif isinstance(found, int) and found >> 63 not in (0, -1):
        raise ValueError("out of range")
    return found
