"""The registry of record formats, one line each."""

from collections.abc import Mapping

from tidemark.formats.avro import Avro
from tidemark.formats.bytes import Bytes
from tidemark.formats.csv import Csv
from tidemark.formats.debezium import Debezium
from tidemark.formats.json import Json
from tidemark.formats.json_schema import JsonSchema
from tidemark.formats.protobuf import Protobuf
from tidemark.formats.record_format import RecordFormat
from tidemark.formats.text import Text
from tidemark.model.core.origins import ENVELOPE

FORMATS: Mapping[str, type[RecordFormat]] = {
    cls.name: cls for cls in (Json, Text, Csv, Bytes, Avro, JsonSchema, Protobuf, Debezium)
}
"""Formats by name."""


def format_of(pinned: Mapping[str, str]) -> RecordFormat | None:
    """Returns the format that a plan has pinned; None if it is not registered, such as a format of your own.

    Args:
        pinned: see `RecordFormat.freeze`; an empty mapping means JSON, as in plans of release 0.1.
    """
    options = {name: text for name, text in pinned.items() if name != ENVELOPE}
    cls = FORMATS.get(options.pop("format", Json.name))
    return None if cls is None else cls.thaw(options, format_of)
