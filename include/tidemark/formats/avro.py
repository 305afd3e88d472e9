"""Values in Avro's binary encoding, whose schemas a registry keeps, or the declaration."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from tidemark.errors import DeclarationError, UsageError
from tidemark.formats.binary.avro_binary import Malformed, Read
from tidemark.formats.binary.avro_reader import Mismatch, plain_reader, record_reader, single_fields, skipper
from tidemark.formats.binary.avro_schema import AvroSchemaError, AvroType, parse_schema
from tidemark.formats.binary.avro_writer import write_value
from tidemark.formats.record_format import BadRecord, reason_prefixes
from tidemark.formats.registry_format import FRAME, LONGEST, RegistryFormat, checked_length, frame
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.types import FieldType
from tidemark.model.schema.registry_schemas import SchemaText

_BAD = (IndexError, Malformed, UnicodeDecodeError)
"""Errors of a reader for bytes that are no value: an index beyond the end too."""


@dataclass(frozen=True)
class Avro(RegistryFormat):
    """One Avro record per value, which names its schema in a registry by Confluent's frame, or has the declared one.

    Confluent's frame is a zero byte, and the id of the schema as four bytes.

    A field of the record gets the field of the same name in the writer's schema. Other fields of the writer are passed
    over; a field that the writer lacks has its default, or is null, so it needs one of the two. Types promote as in
    Avro: int and long to `float`, string to `bytes` and back. Besides, int and long fill a `Decimal`, and an enum fills
    a `str`. Of the logical types, decimal, date and all timestamps are read as such; a local timestamp counts as UTC.
    NaN and infinity are out of range, as in JSON.

    Attributes:
        schema: the schema as JSON, for values without a frame, all of which it has written.
        registry: see `RegistryFormat`.

    >>> from dataclasses import dataclass
    >>> from tidemark import KafkaSource, formats
    >>> @dataclass
    ... class Payment:
    ...     account: str
    ...     amount: int
    ...     note: str | None = None
    >>> written_by = '''{"type": "record", "name": "Payment", "fields": [
    ...     {"name": "amount", "type": "int"}, {"name": "account", "type": "string"}]}'''
    >>> source = KafkaSource("payments", Payment, format=formats.Avro(schema=written_by))
    >>> source.format.decode_one(bytes([10, 2]) + b"a", source.schema)
    {'amount': 5, 'account': 'a', 'note': None}
    """

    schema: str | None = None

    name = "avro"
    reasons = reason_prefixes(
        Reason.NULL_VALUE,
        Reason.TOO_LARGE,
        Reason.UNKNOWN_SCHEMA,
        Reason.MALFORMED_AVRO,
        Reason.SCHEMA_MISMATCH,
        Reason.NULL_FIELD,
        Reason.WRONG_TYPE,
        Reason.BAD_FORMAT,
        Reason.OUT_OF_RANGE,
        Reason.UNKNOWN_MEMBER,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schema is not None:
            try:
                parse_schema(self.schema)
            except AvroSchemaError as error:
                raise DeclarationError(
                    f"Avro(schema=...): {error}", next="give the text of the writer's schema, as JSON."
                ) from error

    @property
    def needs_schemas_of(self) -> str | None:
        """See `RecordFormat`."""
        return super().needs_schemas_of if self.schema is None else None

    def bind(self, record: type) -> FieldType:
        """See `RecordFormat`.

        Raises:
            DeclarationError: no value of the declared schema can be read as the record.
        """
        found = super().bind(record)
        if self.schema is not None:
            try:
                record_reader(parse_schema(self.schema), found)
            except Mismatch as error:
                raise DeclarationError(
                    f"{record.__name__} does not fit the schema of Avro(): {error}",
                    next="give the field the type that the schema has, or let it be null if the schema lacks it.",
                ) from error
        return found

    def decode_one(self, value: bytes | None, record: FieldType) -> dict[str, Any]:
        """See `RecordFormat`."""
        begin = FRAME if self.schema is None else 0
        head = value[:begin] if value is not None else b""
        held = self._readers.get(head)
        if value is None or held is None or held[0] is not record or len(value) > LONGEST:
            schema = self._schema_of(value)
            held = self._readers[head] = (record, _reader_of(schema, record))
        assert value is not None  # noqa: S101  (`_schema_of` refuses it)
        try:
            found: dict[str, Any]
            found, end = held[1](value, begin)
        except _BAD as error:
            raise BadRecord(Reason.MALFORMED_AVRO.value) from error
        except BadRecord as error:
            raise _first_reason(self._schema_of(value), record, value[begin:], error) from error
        if end != len(value):
            raise BadRecord(Reason.MALFORMED_AVRO.value)
        return found

    def encode(self, record: object) -> bytes:
        """See `RecordFormat`. Written by the declared schema, or by the one with the greatest id that is bound.

        Raises:
            UsageError: no schema is known.
        """
        if self.schema is not None:
            return write_value(parse_schema(self.schema), record)
        if not self.schemas.texts:
            raise UsageError(
                "Avro() knows no schema to write by",
                next="declare Avro(schema=...), or bind the schemas of a registry with bind_schemas.",
            )
        id = max(self.schemas.texts)
        return frame(id, write_value(_parsed(self.schemas.texts[id]), record))

    def render(self, raw: bytes) -> bytes:
        """Returns the value as JSON, with all fields that its writer wrote; as it is if it cannot be decoded."""
        try:
            schema, body = (self._own, raw) if self.schema is not None else self.unframe(raw, Reason.MALFORMED_AVRO)[1:]
            value, end = plain_reader(_parsed(schema))(checked_length(body), 0)
        except (BadRecord, AvroSchemaError, *_BAD):
            return raw
        return json.dumps(value, ensure_ascii=False, default=_shown).encode() if end == len(body) else raw

    def _schema_of(self, value: bytes | None) -> SchemaText:
        """Returns the schema of a value that is there, not too long, and framed if it has to be."""
        if self.schema is None:
            return self.unframe(value, Reason.MALFORMED_AVRO)[1]
        checked_length(value)
        return self._own

    @cached_property
    def _own(self) -> SchemaText:
        return SchemaText(type="AVRO", text=self.schema or "")

    @cached_property
    def _readers(self) -> dict[bytes, tuple[FieldType, Read]]:
        """Readers by the frame of values, each for the record type that was last decoded."""
        return {}

    def __getstate__(self) -> Mapping[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_readers"}


def _parsed(schema: SchemaText) -> AvroType:
    if schema.type != "AVRO":
        raise AvroSchemaError(f"it is a schema of {schema.type}")
    return parse_schema(schema.text, tuple(text for _, text in schema.references))


def _reader_of(schema: SchemaText, record: FieldType) -> Read:
    """Returns the reader of a schema's values, or one that refuses them all."""
    try:
        return record_reader(_parsed(schema), record)
    except Mismatch as error:
        return _refuse(Reason.SCHEMA_MISMATCH.at(str(error)))
    except AvroSchemaError:
        return _refuse(Reason.SCHEMA_MISMATCH.value)


def _first_reason(schema: SchemaText, record: FieldType, body: bytes, found: BadRecord) -> BadRecord:
    """Returns the first reason in the order of `Reason`, then of declared fields; readers meet that of the first byte.

    Args:
        schema: the writer's schema.
        record: the record type.
        body: the value.
        found: the reason that its reader met.
    """
    if str(found).startswith(Reason.SCHEMA_MISMATCH.value):
        return found
    try:
        of = _parsed(schema)
        if skipper(of)(body, 0)[1] != len(body):
            return BadRecord(Reason.MALFORMED_AVRO.value)
        for single in single_fields(record):
            record_reader(of, single)(body, 0)
    except _BAD:
        return BadRecord(Reason.MALFORMED_AVRO.value)
    except BadRecord as first:
        return first
    return found


def _refuse(reason: str) -> Callable[[bytes, int], tuple[Any, int]]:
    def read(raw: bytes, at: int) -> tuple[Any, int]:  # noqa: ARG001
        raise BadRecord(reason)

    return read


def _shown(value: object) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")  # a message key that is read again has no exponent
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)
