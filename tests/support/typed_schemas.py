"""Schemas of Avro and messages of Protobuf with one field of each type, by the words of docs/how-to/types.md."""

import json
from collections.abc import Mapping
from dataclasses import field, make_dataclass
from enum import Enum
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

from tidemark import formats
from tidemark.model.schema.registry_schemas import Schemas, SchemaText

F = descriptor_pb2.FieldDescriptorProto


class Suit(Enum):
    """An Enum whose texts may be symbols."""

    HEARTS = "HEARTS"
    SPADES = "SPADES"


def logical(base: str, means: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": means, **more}


SPOT = {
    "type": "record",
    "name": "Spot",
    "fields": [
        {"name": "card", "type": "string"},
        {"name": "ids", "type": {"type": "array", "items": logical("string", "uuid")}},
        {"name": "level", "type": ["null", "int"]},
    ],
}
AVRO: Mapping[str, Any] = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "fixed": {"type": "fixed", "name": "Raw", "size": 2},
    "enum": {"type": "enum", "name": "Suit", "symbols": ["HEARTS", "SPADES", "CLUBS"]},
    "decimal": logical("bytes", "decimal", precision=38, scale=18),
    "date": logical("int", "date"),
    "time-millis": logical("int", "time-millis"),
    "time-micros": logical("long", "time-micros"),
    "timestamp-micros": logical("long", "timestamp-micros"),
    "uuid of string": logical("string", "uuid"),
    "uuid of fixed(16)": logical("fixed", "uuid", name="Id", size=16),
    "array": {"type": "array", "items": "long"},
    "map": {"type": "map", "values": "long"},
    "record": SPOT,
}
OTHER: Mapping[str, Any] = {
    "array of strings": {"type": "array", "items": "string"},
    "map of strings": {"type": "map", "values": "string"},
}
"""Not on the page."""
BASE = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-micros": "long",
    "decimal": "bytes",
    "uuid of string": "string",
    "uuid of fixed(16)": "fixed",
}
"""What a logical type is without its meaning."""
PROTOBUF: Mapping[str, tuple[int, str, bool]] = {
    **{n: (getattr(F, f"TYPE_{n.upper()}"), "", False) for n in ("bool", "float", "double", "string", "bytes")},
    **{
        n: (getattr(F, f"TYPE_{n.upper()}"), "", False)
        for n in (
            "int64",
            "int32",
            "uint32",
            "uint64",
            "sint32",
            "sint64",
            "fixed32",
            "fixed64",
            "sfixed32",
            "sfixed64",
        )
    },
    "enum": (F.TYPE_ENUM, ".typed.Suit", False),
    "Timestamp": (F.TYPE_MESSAGE, ".google.protobuf.Timestamp", False),
    "StringValue": (F.TYPE_MESSAGE, ".google.protobuf.StringValue", False),
    "Int64Value": (F.TYPE_MESSAGE, ".google.protobuf.Int64Value", False),
    "repeated": (F.TYPE_INT64, "", True),
    "repeated string": (F.TYPE_STRING, "", True),
    "message": (F.TYPE_MESSAGE, ".typed.Spot", False),
    "map": (F.TYPE_INT64, "", True),
    "map of strings": (F.TYPE_STRING, "", True),
    "map of messages": (F.TYPE_MESSAGE, ".typed.Spot", True),
    "map by int32": (F.TYPE_INT64, "", True),
}


@cache
def message_class(word: str) -> Any:
    """The class that protoc makes of a message with one field `at`; "optional …" has presence."""
    file = descriptor_pb2.FileDescriptorProto(name="typed.proto", package="typed", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    suit = file.enum_type.add(name="Suit")
    for name, number in (("HEARTS", 0), ("SPADES", 1), ("CLUBS", -7)):
        suit.value.add(name=name, number=number)
    file.message_type.add(name="Spot").field.extend(
        [
            F(name="card", number=1, type=F.TYPE_STRING, label=1),
            F(name="ids", number=2, type=F.TYPE_STRING, label=3),
            F(name="level", number=3, type=F.TYPE_MESSAGE, label=1, type_name=".google.protobuf.Int64Value"),
        ]
    )
    made = file.message_type.add(name="Made")
    kind, of, repeated = PROTOBUF[word.removeprefix("optional ")]
    if word.startswith("map"):
        entry = made.nested_type.add(name="AtEntry")
        entry.options.map_entry = True
        key = F.TYPE_INT32 if "int32" in word else F.TYPE_STRING
        entry.field.append(F(name="key", number=1, type=key, label=1))
        entry.field.append(F(name="value", number=2, type=kind, label=1, type_name=of or None))
        kind, of = F.TYPE_MESSAGE, ".typed.Made.AtEntry"
    at = made.field.add(name="at", number=1, type=kind, label=3 if repeated else 1, type_name=of or None)
    made.field.append(F(name="n", number=2, type=F.TYPE_INT64, label=1))
    if word.startswith("optional "):
        at.proto3_optional, at.oneof_index = True, 0
        made.oneof_decl.add(name="_at")
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("typed.Made"))


def avro_schema(of: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Made", "fields": [{"name": "at", "type": of}, {"name": "n", "type": "long"}]}


def avro(of: Any) -> formats.Avro:
    return formats.Avro(schema=json.dumps(avro_schema(of)))


def protobuf(word: str) -> formats.Protobuf:
    return formats.Protobuf(message=message_class(word), framing="none")


JSON_SCHEMA = formats.JsonSchema().bind_schemas(Schemas({1: SchemaText(type="JSON", text="{}")}))
CSV = formats.Csv("at,n")


def record_of(annotation: Any, **more: Any) -> type:
    return make_dataclass("Made", [("n", int), ("at", annotation, field(**more))], frozen=True)


def answer(its: formats.RecordFormat, record: type, value: Any) -> Any:
    """What becomes of a field after it was written and read."""
    try:
        found = its.decode_one(its.encode(value), its.bind(record))
    except formats.BadRecord as error:
        assert str(error).partition(":")[0] in its.reasons
        return str(error)
    assert found["n"] == 7
    return found["at"]
