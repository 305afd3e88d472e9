"""The page of errors per format: every value on it is decoded here, and has the reason that the page says."""

import ast
import json
import re
from dataclasses import make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from tidemark import formats
from tidemark.formats.known_formats import FORMATS
from tidemark.formats.registry_format import LONGEST
from tidemark.model.schema.registry_schemas import Schemas, SchemaText

_FIELD = descriptor_pb2.FieldDescriptorProto
HOW_TO = Path(__file__).resolve().parents[3] / "docs/how-to"
PAGE = (HOW_TO / "errors-per-format.md").read_text()
AVRO = HOW_TO / "read-avro-from-a-registry.md"
NAMES: dict[str, Any] = {"__name__": "page"}
exec(re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0], NAMES)  # noqa: S102  (the page's text)
_FILE = descriptor_pb2.FileDescriptorProto(name="page.proto", package="page", syntax="proto3")
_FILE.dependency.append("google/protobuf/timestamp.proto")
_FILE.enum_type.add(name="Note").value.extend(
    [descriptor_pb2.EnumValueDescriptorProto(name=n, number=i) for i, n in enumerate(("gift", "rush", "none"))]
)
_ORDER = _FILE.message_type.add(name="Order")
_ORDER.oneof_decl.add(name="_ref")
_ORDER.field.extend(
    [
        _FIELD(name="customer", number=1, type=_FIELD.TYPE_STRING, label=1),
        _FIELD(name="amount", number=2, type=_FIELD.TYPE_UINT64, label=1),
        _FIELD(name="at", number=3, type=_FIELD.TYPE_MESSAGE, label=1, type_name=".google.protobuf.Timestamp"),
        _FIELD(name="note", number=4, type=_FIELD.TYPE_ENUM, label=1, type_name=".page.Note"),
        _FIELD(name="ref", number=5, type=_FIELD.TYPE_STRING, label=1, oneof_index=0, proto3_optional=True),
    ]
)
_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
_POOL.AddSerializedFile(_FILE.SerializeToString())
OrderMessage = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("page.Order"))
"""The class that protoc makes of the page's file."""
BEHIND = {"JsonSchema": "JSON"}
"""Sections whose reasons count for another one too."""
SECTIONS = {text.partition("\n")[0]: text for text in PAGE.split("\n## ")[1:]}
ROW = re.compile(r"^\| (.+?) \| `([a-z0-9_]+(?:: [\w ]+)?)` \|$", re.MULTILINE)


def texts(section: str) -> Schemas:
    (first,) = re.findall(r"^```json\n(.*?)^```$", SECTIONS[section], re.DOTALL | re.MULTILINE)
    (second,) = re.findall(r"^Schema 8 is `(.+?)`", SECTIONS[section], re.MULTILINE)
    (third,) = re.findall(r"^Schema 5 is `(.+?)`", SECTIONS[section], re.MULTILINE)
    found = {7: first, 8: second, 5: third}
    return Schemas({number: SchemaText(type="AVRO", text=text) for number, text in found.items()})


def format_of(section: str) -> tuple[formats.RecordFormat, type]:
    order: type = NAMES["Order"]
    match section:
        case "JSON":
            return formats.Json(), order
        case "CSV":
            return formats.Csv("customer,amount,at,note,ref"), order
        case "JsonSchema":
            known = {7: SchemaText(type="JSON", text="{}"), 6: SchemaText(type="AVRO", text='"string"')}
            return formats.JsonSchema().bind_schemas(Schemas(known)), order
        case "Protobuf":
            known = {7: SchemaText(type="PROTOBUF", text="…"), 6: SchemaText(type="AVRO", text='"string"')}
            return formats.Protobuf(message=OrderMessage).bind_schemas(Schemas(known)), order
        case "Debezium":
            return formats.Debezium(), order
        case "Text":
            return formats.Text(), make_dataclass("Line", [("text", str)], frozen=True)
        case "Bytes":
            return formats.Bytes(), make_dataclass("Blob", [("content", bytes)], frozen=True)
        case _:
            return formats.Avro().bind_schemas(texts(section)), order


def value_of(shown: str) -> bytes | None:
    if shown.startswith("no value"):
        return None
    if shown == "more than 8 MiB":
        return bytes(LONGEST + 1)
    found: bytes = ast.literal_eval(shown.rpartition("`")[0].lstrip("`"))
    return found


CASES = [(section, *row) for section, text in SECTIONS.items() for row in ROW.findall(text)]


@pytest.mark.parametrize(("section", "shown", "reason"), CASES)
def test_every_value_of_the_page_has_its_reason(section: str, shown: str, reason: str) -> None:
    its, record = format_of(section)
    with pytest.raises(formats.BadRecord) as refused:
        its.decode_one(value_of(shown), its.bind(record))
    assert str(refused.value) == reason


def test_the_page_has_every_format_and_every_reason() -> None:
    names = {section: format_of(section)[0].name for section in SECTIONS}
    assert set(names.values()) == set(FORMATS)
    for section, name in names.items():
        shown = {reason.partition(":")[0] for where, _, reason in CASES if where in (section, BEHIND.get(section))}
        assert shown == set(FORMATS[name].reasons), section


def test_the_how_to_about_avro_declares_what_it_says() -> None:
    declared, *short = re.findall(r"^```python\n(.*?)^```$", AVRO.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": "page"}
    exec(declared, names)  # noqa: S102
    names["orders_pb2"] = SimpleNamespace(Order=OrderMessage)
    for text in short:
        exec(text, names)  # noqa: S102
    (source,) = names["orders"].sources.values()
    assert source.format == formats.Avro() and source.format.needs_schemas_of == "default"
    own = eval(short[-1], names)  # noqa: S307
    assert json.loads(own.schema)["name"] == "Order"
    value = own.encode({"customer": "ann", "amount": 5})
    assert own.decode_one(value, own.bind(names["Order"])) == {"customer": "ann", "amount": 5, "note": None}
