"""Messages of Protobuf as values, and as a text in JSON, which a plan can hold.

The text is made of a generated class where a pipeline is declared, so that workers, pages and tests need no library of
protobuf and no generated code.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tidemark.formats.binary.protobuf_wire import FIXED

TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = tuple(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
KINDS = {
    **dict.fromkeys((1, 2), "float"),
    **dict.fromkeys((3, 4, 5, 6, 7, 13, 15, 16, 17, 18), "int"),
    8: "bool",
    9: "str",
    12: "bytes",
    14: "str",
}
"""Tidemark's type of each of protobuf's, by its number in `FieldDescriptorProto.Type`."""
TEXT, MESSAGE, ENUM = 9, 11, 14
"""Numbers in `FieldDescriptorProto.Type`."""


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
        if self.type in FIXED:
            return 1 if struct.calcsize(FIXED[self.type]) == 8 else 5
        return 2 if self.type in (9, MESSAGE, 12) else 0


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
        maps: the messages that are an entry of a map, a key and a value.
    """

    name: str
    path: tuple[int, ...]
    fields: Mapping[str, tuple[MessageField, ...]]
    by_number: Mapping[str, Mapping[int, MessageField]]
    by_name: Mapping[str, Mapping[str, MessageField]]
    symbols: Mapping[str, Mapping[int, str]]
    maps: frozenset[str] = frozenset()

    def is_map(self, of: MessageField) -> bool:
        """Whether a field is a map; on the wire it is a list of entries."""
        return of.of in self.maps


def describe(descriptor: Any) -> str:  # noqa: ANN401
    """Returns the description of a generated message, by its `DESCRIPTOR`."""
    fields, symbols, maps = dict[str, Any](), dict[str, Any](), list[str]()

    def add(message: Any) -> None:  # noqa: ANN401
        if message.full_name in fields:
            return
        is_entry = message.GetOptions().map_entry
        if is_entry:
            maps.append(message.full_name)
        fields[message.full_name] = [
            [
                f.name,
                f.number,
                f.type,
                f.is_repeated,
                f.has_presence and not is_entry,
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
    if maps:
        made["maps"] = sorted(maps)
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
        maps=frozenset(found.get("maps", ())),
    )
