"""Reads protobuf's wire format as the fields of a record, by a description of its messages, and writes it for tests."""

import math
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from tidemark.formats.binary.avro_binary import Malformed
from tidemark.formats.binary.avro_writer import write_long
from tidemark.formats.binary.protobuf_messages import ENUM, KINDS, MESSAGE, TIMESTAMP, WRAPPERS, MessageField, Messages
from tidemark.formats.binary.protobuf_wire import DEEPEST, FIXED, scalar, sized, tokens, unpacked, write_varint
from tidemark.formats.json import check_scalar, default_of, entries_of
from tidemark.formats.record_format import BadRecord, fields_of
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.types import FieldType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
            why: str | None = None
            if name in known:
                why = self._misfit_of_field(known[name], to, path)
            elif not to.nullable and to.default is None:
                why = f"{path}: {self.name} has no such field"
            if why is not None:
                return why
        return None

    def _misfit_of_field(self, of: MessageField, to: FieldType, path: str) -> str | None:
        if to.key is not None and to.element is not None:
            if not self.messages.is_map(of):
                return f"{path}: a dict is a map"
            key, value = self.messages.fields[of.of]
            return self._misfit(key, to.key, f"{path}{{}}") or self._misfit(value, to.element, f"{path}{{}}")
        if of.repeated != (to.element is not None):
            return f"{path}: one of the two is a list"
        return self._misfit(of, to if to.element is None else to.element, path)

    def _misfit(self, of: MessageField, to: FieldType, path: str) -> str | None:
        if of.type != MESSAGE:
            fits = KINDS.get(of.type) == to.kind or (of.type == ENUM and to.kind == "int")
            return None if fits else f"{path}: another type in {self.name}"
        if of.of == TIMESTAMP:
            return None if to.kind == "timestamp" else f"{path}: a Timestamp is a datetime"
        if of.of in WRAPPERS:
            return self._misfit(self.messages.fields[of.of][0], to, path)
        if to.kind != "struct":
            return f"{path}: a message is a dataclass"
        return MessageReader(self.messages, of.of, to, f"{path}.").check()

    def read(self, raw: bytes, depth: int = 0) -> dict[str, Any]:
        """Returns the fields of a message.

        Raises:
            Malformed, IndexError: the bytes are no message.
            BadRecord: a field is missing, or its value is none of its type.
        """
        by_name, wanted = self.messages.by_name[self.name], dict(self.record.fields)
        found = _values(self.messages.by_number[self.name], raw, wanted, depth)
        return {name: self._field(by_name.get(name), to, found.get(name, []), depth) for name, to in wanted.items()}

    def _field(self, of: MessageField | None, to: FieldType, values: list[Any], depth: int) -> Any:  # noqa: ANN401
        if of is None:
            return default_of(to)
        path = self.prefix + of.name
        if to.key is not None:
            return self._entries(of, to, values, path, depth)
        if of.repeated:
            assert to.element is not None  # noqa: S101  (`check` has compared them)
            return [self._value(of, to.element, value, f"{path}[]", depth) for value in values]
        if not values and of.presence:
            if to.default is None and not to.nullable:
                raise BadRecord(Reason.MISSING_FIELD.at(path))
            return default_of(to)
        return self._last(of, to, values, path, depth)

    def _entries(self, of: MessageField, to: FieldType, values: list[Any], path: str, depth: int) -> dict[str, Any]:
        """Returns a map; of several entries of a key the last one counts, but all must be messages."""
        its_key, its_value = self.messages.fields[of.of]
        key, element = to.key, to.element
        assert key is not None and element is not None  # noqa: S101  (it is a map)
        found = dict[str, list[Any]]()
        for raw in values:
            held = _values(self.messages.by_number[of.of], raw, (its_key.name, its_value.name), depth + 1)
            name: str = held[its_key.name][-1] if its_key.name in held else ""
            if its_value.type == MESSAGE:
                for part in found.get(name, ()):
                    plain(self.messages, its_value.of, part, depth + 2)
            found[name] = held.get(its_value.name, [])

        def convert(parts: list[Any]) -> Any:  # noqa: ANN401
            return self._last(its_value, element, parts, f"{path}{{}}", depth + 1)

        return entries_of(found, key, convert, f"{path}{{}}")

    def _last(self, of: MessageField, to: FieldType, values: list[Any], path: str, depth: int) -> Any:  # noqa: ANN401
        """Returns the last value; later messages are merged into earlier ones, which is to read them in a row."""
        if of.type == MESSAGE and len(values) > 1:
            for part in values:
                plain(self.messages, of.of, part, depth + 1)
            values = [b"".join(values)]
        return self._value(of, to, values[-1] if values else _default(of), path, depth)

    def _value(self, of: MessageField, to: FieldType, value: Any, path: str, depth: int) -> Any:  # noqa: ANN401
        if of.type == MESSAGE:
            if of.of == TIMESTAMP:
                return moment(value, path)
            if of.of in WRAPPERS:
                inner = self.messages.fields[of.of][0]
                last = [scalar(inner.type, v) for n, wire, v in tokens(value, depth) if (n, wire) == (1, inner.wire)]
                return self._value(inner, to, last[-1] if last else _default(inner), path, depth)
            return MessageReader(self.messages, of.of, to, f"{path}.").read(value, depth + 1)
        if of.type == ENUM and to.kind == "str":
            value = self.messages.symbols[of.of].get(value)
            if value is None:
                raise BadRecord(Reason.UNKNOWN_MEMBER.at(path))
        if _is_out_of_range(value):
            raise BadRecord(Reason.OUT_OF_RANGE.at(path))
        return check_scalar(value, to, path) if to.form or to.members else value


def _values(
    by_number: Mapping[int, MessageField], raw: bytes, wanted: Collection[str], depth: int
) -> dict[str, list[Any]]:
    """Returns the values of fields of a message in the order of the wire; those of messages are bytes."""
    if depth >= DEEPEST:
        raise Malformed("too deep")
    found = dict[str, list[Any]]()
    for number, wire, value in tokens(raw, depth):
        of = by_number.get(number)
        if of is None or of.name not in wanted:
            continue
        if wire == of.wire:
            found.setdefault(of.name, []).append(value if of.type == MESSAGE else scalar(of.type, value))
        elif wire == 2 and of.repeated and of.wire != 2:
            found.setdefault(of.name, []).extend(unpacked(of.type, value))
    return found


def _is_out_of_range(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, int) and value >> 63 not in (0, -1)


def _default(of: MessageField) -> Any:  # noqa: ANN401
    if of.type == MESSAGE:  # of a map's entry
        return b""
    kind = "int" if of.type == ENUM else KINDS[of.type]
    return {"int": 0, "float": 0.0, "bool": False, "str": "", "bytes": b""}[kind]


def moment(raw: bytes, path: str) -> datetime:
    """Reads a `google.protobuf.Timestamp`.

    Raises:
        Malformed, IndexError: the bytes are no message.
        BadRecord: Python has no such time.
    """
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
        if of.type == MESSAGE:
            values: list[Any] = [plain(messages, of.of, value, depth + 1)]
        else:
            values = [scalar(of.type, value)] if wire == of.wire else list(unpacked(of.type, value))
        if of.type == ENUM:
            values = [messages.symbols[of.of].get(n, n) for n in values]
        if messages.is_map(of):
            made[of.name] = made.get(of.name, {}) | _entry(messages, of, values[0])
        else:
            made[of.name] = [*made.get(of.name, []), *values] if of.repeated else values[-1]
    return made


def _entry(messages: Messages, of: MessageField, entry: Mapping[str, Any]) -> dict[Any, Any]:
    key, value = messages.fields[of.of]
    absent = {} if value.type == MESSAGE else _default(value)
    return {entry.get(key.name, _default(key)): entry.get(value.name, absent)}


def write_message(messages: Messages, name: str, record: Mapping[str, Any]) -> bytes:
    """Returns a message with the fields of a record; a field that is None is left out.

    Raises:
        ValueError: an Enum has a text that is no symbol of its field.
    """
    made = b""
    for of in messages.fields[name]:
        for one in _occurrences(messages, of, record.get(of.name)):
            made += write_varint(of.number << 3 | of.wire) + _written(messages, of, one)
    return made


def _occurrences(messages: Messages, of: MessageField, value: Any) -> Iterable[Any]:  # noqa: ANN401
    if value is None:
        return []
    if messages.is_map(of) and isinstance(value, Mapping):
        return [{"key": key, "value": inner} for key, inner in value.items()]
    return value if of.repeated else [value]


def _written(messages: Messages, of: MessageField, value: Any) -> bytes:  # noqa: ANN401
    if isinstance(value, Enum):
        value = value.value
    if of.type in FIXED:
        return struct.pack(FIXED[of.type], value)
    if of.type == MESSAGE:
        return sized(_message(messages, of, value))
    if of.type == 9:
        text = value.isoformat() if isinstance(value, time) else str(value) if isinstance(value, UUID) else value
        return sized(text.encode("utf-8", "surrogatepass"))
    if of.type == 12:
        return sized(value)
    if of.type in (17, 18):
        return write_long(value)
    if of.type == ENUM and isinstance(value, str):
        numbers = {symbol: number for number, symbol in messages.symbols[of.of].items()}
        if value not in numbers:
            raise ValueError(f"{value!r} is no symbol of {of.of}")
        value = numbers[value]
    return write_varint(int(value) & 0xFFFFFFFFFFFFFFFF)


def _message(messages: Messages, of: MessageField, value: Any) -> bytes:  # noqa: ANN401
    if of.of == TIMESTAMP:
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        seconds, rest = divmod((aware - _EPOCH) // timedelta(microseconds=1), 10**6)
        value = {"seconds": seconds, "nanos": rest * 1000}
    elif of.of in WRAPPERS:
        value = {"value": value}
    return write_message(messages, of.of, fields_of(value))
