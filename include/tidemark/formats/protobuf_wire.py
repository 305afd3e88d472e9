"""Reads protobuf's wire format as the fields of a record, by a description of its messages: a text in JSON.

The description is made of a generated class where a pipeline is declared, so that workers, pages and tests need no
library of protobuf and no generated code.
"""

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from tidemark.formats.avro_binary import Malformed
from tidemark.formats.avro_writer import write_long
from tidemark.formats.record_format import BadRecord
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.types import FieldType

DEEPEST = 100
"""How deep groups and messages may nest, as in protobuf's own libraries."""
TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = tuple(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS = {
    **dict.fromkeys((1, 2), "float"),
    **dict.fromkeys((3, 4, 5, 6, 7, 13, 15, 16, 17, 18), "int"),
    8: "bool",
    9: "str",
    12: "bytes",
    14: "str",
}
"""Tidemark's type of each of protobuf's, by its number in `FieldDescriptorProto.Type`."""
_FIXED = {1: "<d", 2: "<f", 6: "<Q", 7: "<I", 15: "<i", 16: "<q"}
_ENUM, _MESSAGE = 14, 11


@dataclass(frozen=True, slots=True)
class MessageField:
    """One field of a message.

    Attributes:
        name: its name in the .proto file.
        number: its number on the wire.
        type: number of its type, as in `FieldDescriptorProto.Type`.
        repeated: whether it is a list.
        presence: whether it can be absent; otherwise an absent one has its default.
        of: full name of its message or enum.
    """

    name: str
    number: int
    type: int
    repeated: bool
    presence: bool
    of: str

    @property
    def wire(self) -> int:
        """The wire type of one value."""
        if self.type in _FIXED:
            return 1 if struct.calcsize(_FIXED[self.type]) == 8 else 5
        return 2 if self.type in (9, _MESSAGE, 12) else 0


@dataclass(frozen=True, slots=True)
class Messages:
    """A message, and the messages and enums that it uses.

    Attributes:
        name: full name of the message.
        path: its place in its file, as Confluent's frame names it: an index per level.
        fields: per message its fields.
        by_number: the same by number.
        by_name: the same by name.
        symbols: per enum its symbols by number.
    """

    name: str
    path: tuple[int, ...]
    fields: Mapping[str, tuple[MessageField, ...]]
    by_number: Mapping[str, Mapping[int, MessageField]]
    by_name: Mapping[str, Mapping[str, MessageField]]
    symbols: Mapping[str, Mapping[int, str]]


def describe(descriptor: Any) -> str:  # noqa: ANN401
    """Returns the description of a generated message, by its `DESCRIPTOR`."""
    fields, symbols = dict[str, Any](), dict[str, Any]()

    def add(message: Any) -> None:  # noqa: ANN401
        if message.full_name in fields:
            return
        fields[message.full_name] = [
            [
                f.name,
                f.number,
                f.type,
                f.is_repeated,
                f.has_presence,
                (f.message_type or f.enum_type).full_name if f.message_type or f.enum_type else "",
            ]
            for f in message.fields
        ]
        for f in message.fields:
            if f.message_type:
                add(f.message_type)
            elif f.enum_type:
                symbols[f.enum_type.full_name] = {v.number: v.name for v in reversed(f.enum_type.values)}

    add(descriptor)
    path, here = list[int](), descriptor
    while here is not None:
        level = here.containing_type.nested_types if here.containing_type else _messages(here.file)
        path.insert(0, [m.full_name for m in level].index(here.full_name))
        here = here.containing_type
    made = {"name": descriptor.full_name, "path": path, "fields": fields, "symbols": symbols}
    return json.dumps(made, sort_keys=True, separators=(",", ":"))


def _messages(file: Any) -> list[Any]:  # noqa: ANN401
    """The messages of a file in the order of their declaration; a dict need not keep it."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    found = FileDescriptorProto()
    file.CopyToProto(found)
    return [file.message_types_by_name[message.name] for message in found.message_type]


@lru_cache(maxsize=64)
def messages_of(text: str) -> Messages:
    """The inverse of `describe`.

    Raises:
        ValueError, KeyError, TypeError: the text is no description.
    """
    found = json.loads(text)
    fields = {name: tuple(MessageField(*field) for field in held) for name, held in found["fields"].items()}
    symbols = {name: {int(n): symbol for n, symbol in held.items()} for name, held in found["symbols"].items()}
    return Messages(
        name=found["name"],
        path=tuple(found["path"]),
        fields=fields,
        by_number={name: {f.number: f for f in held} for name, held in fields.items()},
        by_name={name: {f.name: f for f in held} for name, held in fields.items()},
        symbols=symbols,
    )


# Tokens: varints, and the fields of a message with their raw values.
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


# Values.
Convert = Callable[[Any], Any]


def scalar(type: int, value: Any) -> Any:  # noqa: ANN401
    """Returns a value that is neither a message nor an enum's symbol, from a varint or its bytes."""
    match type:
        case 1 | 2 | 6 | 7 | 15 | 16:
            return struct.unpack(_FIXED[type], value)[0]
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
    if type in _FIXED:
        size = struct.calcsize(_FIXED[type])
        if len(raw) % size:
            raise Malformed("a packed list with a rest")
        yield from (scalar(type, raw[at : at + size]) for at in range(0, len(raw), size))
        return
    at = 0
    while at < len(raw):
        value, at = read_varint(raw, at)
        yield scalar(type, value)


@dataclass(frozen=True)
class MessageReader:
    """Reads a message as a struct of Tidemark.

    Attributes:
        messages: the description.
        name: full name of the message.
        record: the fields to read.
        prefix: of the paths in reasons.
    """

    messages: Messages
    name: str
    record: FieldType
    prefix: str = ""

    def check(self) -> str | None:
        """Returns the path of the first field that no message can fill, and why; None if all can be."""
        known = self.messages.by_name[self.name]
        for name, to in self.record.fields:
            path = self.prefix + name
            if name not in known:
                if not to.nullable:
                    return f"{path}: {self.name} has no such field"
                continue
            element = to.element if known[name].repeated else to
            if element is None or (to.element is not None) != known[name].repeated or to.key is not None:
                return f"{path}: one of the two is a list"
            why = self._misfit(known[name], element, path)
            if why is not None:
                return why
        return None

    def _misfit(self, of: MessageField, to: FieldType, path: str) -> str | None:
        if of.type != _MESSAGE:
            return None if _KINDS.get(of.type) == to.kind else f"{path}: another type in {self.name}"
        if of.of == TIMESTAMP:
            return None if to.kind == "timestamp" else f"{path}: a Timestamp is a datetime"
        if of.of in _WRAPPERS:
            return self._misfit(self.messages.fields[of.of][0], to, path)
        if to.kind != "struct":
            return f"{path}: a message is a dataclass"
        return MessageReader(self.messages, of.of, to, f"{path}.").check()

    def read(self, raw: bytes, depth: int = 0) -> dict[str, Any]:
        """Returns the fields of a message.

        Raises:
            Malformed, IndexError: the bytes are no message.
            BadRecord: a field is missing, or out of range.
        """
        if depth >= DEEPEST:
            raise Malformed("too deep")
        by_number, by_name = self.messages.by_number[self.name], self.messages.by_name[self.name]
        wanted, found = dict(self.record.fields), dict[str, list[Any]]()
        for number, wire, value in tokens(raw, depth):
            of = by_number.get(number)
            if of is None or of.name not in wanted:
                continue
            if wire == of.wire:
                found.setdefault(of.name, []).append(value if of.type == _MESSAGE else scalar(of.type, value))
            elif wire == 2 and of.repeated and of.wire != 2:
                found.setdefault(of.name, []).extend(unpacked(of.type, value))
        return {name: self._field(by_name.get(name), to, found.get(name, []), depth) for name, to in self.record.fields}

    def _field(self, of: MessageField | None, to: FieldType, values: list[Any], depth: int) -> Any:  # noqa: ANN401
        if of is None:
            return None
        path = self.prefix + of.name
        if of.repeated:
            assert to.element is not None  # noqa: S101  (`check` has compared them)
            return [self._value(of, to.element, value, f"{path}[]", depth) for value in values]
        if not values:
            if of.presence:
                if to.nullable:
                    return None
                raise BadRecord(Reason.MISSING_FIELD.at(path))
            values = [_default(of)]
        if of.type == _MESSAGE and len(values) > 1:  # later ones are merged, which is to read them in a row
            for part in values:
                self._value(of, to, part, path, depth)
            values = [b"".join(values)]
        return self._value(of, to, values[-1], path, depth)

    def _value(self, of: MessageField, to: FieldType, value: Any, path: str, depth: int) -> Any:  # noqa: ANN401
        if of.type == _MESSAGE:
            if of.of == TIMESTAMP:
                return _moment(value, path)
            if of.of in _WRAPPERS:
                inner = self.messages.fields[of.of][0]
                last = [scalar(inner.type, v) for n, wire, v in tokens(value, depth) if (n, wire) == (1, inner.wire)]
                return self._value(inner, to, last[-1] if last else _default(inner), path, depth)
            return MessageReader(self.messages, of.of, to, f"{path}.").read(value, depth + 1)
        if of.type == _ENUM:
            value = self.messages.symbols[of.of].get(value)
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if value is None or (is_whole and value >> 63 not in (0, -1)):
            raise BadRecord(Reason.OUT_OF_RANGE.at(path))
        if isinstance(value, float) and not math.isfinite(value):
            raise BadRecord(Reason.OUT_OF_RANGE.at(path))
        return value


def _default(of: MessageField) -> Any:  # noqa: ANN401
    kind = "int" if of.type == _ENUM else _KINDS[of.type]
    return {"int": 0, "float": 0.0, "bool": False, "str": "", "bytes": b""}[kind]


def _moment(raw: bytes, path: str) -> datetime:
    parts = {1: 0, 2: 0}
    for number, wire, value in tokens(raw):
        if wire == 0 and number in parts:
            parts[number] = scalar(3 if number == 1 else 5, value)
    try:
        return _EPOCH + timedelta(seconds=parts[1], microseconds=parts[2] // 1000)
    except OverflowError as error:
        raise BadRecord(Reason.OUT_OF_RANGE.at(path)) from error


def plain(messages: Messages, name: str, raw: bytes, depth: int = 0) -> dict[str, Any]:
    """Returns all known fields of a message that are there, for people.

    Raises:
        Malformed, IndexError: the bytes are no message.
    """
    if depth >= DEEPEST:
        raise Malformed("too deep")
    by_number, made = messages.by_number[name], dict[str, Any]()
    for number, wire, value in tokens(raw, depth):
        of = by_number.get(number)
        if of is None or (wire != of.wire and not (wire == 2 and of.repeated)):
            continue
        if of.type == _MESSAGE:
            values: list[Any] = [plain(messages, of.of, value, depth + 1)]
        else:
            values = [scalar(of.type, value)] if wire == of.wire else list(unpacked(of.type, value))
        if of.type == _ENUM:
            values = [messages.symbols[of.of].get(n, n) for n in values]
        made[of.name] = [*made.get(of.name, []), *values] if of.repeated else values[-1]
    return made


def write_message(messages: Messages, name: str, record: Mapping[str, Any]) -> bytes:
    """Returns a message with the fields of a record, for tests; a field that is None is left out."""
    made = b""
    for of in messages.fields[name]:
        value = record.get(of.name)
        for one in value if of.repeated and value is not None else [] if value is None else [value]:
            made += _varint(of.number << 3 | of.wire) + _written(messages, of, one)
    return made


def _written(messages: Messages, of: MessageField, value: Any) -> bytes:  # noqa: ANN401
    if of.type in _FIXED:
        return struct.pack(_FIXED[of.type], value)
    if of.type == _MESSAGE:
        return _sized(_message(messages, of, value))
    if of.type in (9, 12):
        return _sized(value.encode("utf-8", "surrogatepass") if of.type == 9 else value)
    if of.type in (17, 18):
        return write_long(value)
    if of.type == _ENUM:
        value = next(n for n, symbol in messages.symbols[of.of].items() if symbol == value)
    return _varint(int(value) & 0xFFFFFFFFFFFFFFFF)


def _message(messages: Messages, of: MessageField, value: Any) -> bytes:  # noqa: ANN401
    if of.of == TIMESTAMP:
        seconds, rest = divmod((value - _EPOCH) // timedelta(microseconds=1), 10**6)
        value = {"seconds": seconds, "nanos": rest * 1000}
    elif of.of in _WRAPPERS:
        value = {"value": value}
    return write_message(messages, of.of, value if isinstance(value, Mapping) else vars(value))


def _varint(n: int) -> bytes:
    made = bytearray()
    while n > 127:
        made.append(n & 127 | 128)
        n >>= 7
    return bytes([*made, n])


def _sized(raw: bytes) -> bytes:
    return _varint(len(raw)) + raw
