"""Formats of record values: `KafkaSource(..., format=formats.Text())`; `known_formats` lists all of them.

A format defines what the bytes of a value mean: the record types that fit, the decoder in Spark, the same decoder in
Python for pages and tests, the reasons for which it refuses bytes, and what the plan of a checkpoint pins of it. The
rest of the package asks a source for its format and never compares names.

To add a format, write its file, add a line to `known_formats`, and test it: `tests/unit/formats` walks that list.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.formats.avro import Avro
    from tidemark.formats.bytes import Bytes
    from tidemark.formats.csv import Csv
    from tidemark.formats.debezium import Debezium
    from tidemark.formats.json import Json
    from tidemark.formats.json_schema import JsonSchema
    from tidemark.formats.protobuf import Protobuf
    from tidemark.formats.record_format import BadRecord, RecordFormat
    from tidemark.formats.text import Text

__all__ = ["Avro", "BadRecord", "Bytes", "Csv", "Debezium", "Json", "JsonSchema", "Protobuf", "RecordFormat", "Text"]

_HOMES = {
    "Avro": "avro",
    "BadRecord": "record_format",
    "Bytes": "bytes",
    "Csv": "csv",
    "Debezium": "debezium",
    "Json": "json",
    "JsonSchema": "json_schema",
    "Protobuf": "protobuf",
    "RecordFormat": "record_format",
    "Text": "text",
}


def __getattr__(name: str) -> Any:
    """Imports a format when it is first used: a pipeline pays only for the formats that it declares."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tidemark.formats' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
