"""Values that are protobuf messages, behind Confluent's frame or alone."""

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from tidemark.errors import DeclarationError
from tidemark.formats.binary.avro_binary import Malformed, read_long
from tidemark.formats.binary.avro_writer import write_long
from tidemark.formats.binary.protobuf_flat import FlatReader, flat_reader
from tidemark.formats.binary.protobuf_messages import Messages, describe, messages_of
from tidemark.formats.binary.protobuf_values import MessageReader, plain, write_message
from tidemark.formats.record_format import BadRecord, PerRecordType, fields_of, reason_prefixes
from tidemark.formats.registry_format import RegistryFormat, checked_length, frame
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.types import FieldType

_BAD = (IndexError, Malformed)
_DEEP = 16
"""Levels of the path that names a message in its file."""


@dataclass(frozen=True)
class Protobuf(RegistryFormat):
    """One protobuf message per value, of the generated class `message`, behind the frame of a registry.

    A field of the record gets the field of the same name. A field with presence, such as `optional` or a message, is
    missing if it is absent: then it has the default of the record, or is null where the record allows it. A field
    without presence is never missing: an absent one is 0, false or empty. An enum is the `str` of its symbol, or the
    `int` of its number; a `map` with texts as keys is a `dict`, `google.protobuf.Timestamp` a `datetime`, a wrapper
    such as `google.protobuf.Int64Value` its value. Values are read by the field numbers of the declared class; the
    registry only says that the schema exists, and which message of its file the value is.

    Attributes:
        message: the class that protoc generated; plans and the fingerprint hold its description as text.
        framing: `confluent`, or `none` for values that are the message alone.
        registry: see `RegistryFormat`.
    """

    message: Any = None
    framing: str = "confluent"

    name = "protobuf"
    reasons = reason_prefixes(
        Reason.NULL_VALUE,
        Reason.TOO_LARGE,
        Reason.UNKNOWN_SCHEMA,
        Reason.MALFORMED_PROTOBUF,
        Reason.SCHEMA_MISMATCH,
        Reason.MISSING_FIELD,
        Reason.BAD_FORMAT,
        Reason.OUT_OF_RANGE,
        Reason.UNKNOWN_MEMBER,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        descriptor = getattr(self.message, "DESCRIPTOR", None)
        try:
            text = self.message if descriptor is None else describe(descriptor)
            messages_of(text)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DeclarationError(
                f"Protobuf(message={self.message!r}) is no generated message",
                next="give the class that protoc generates, as in formats.Protobuf(message=orders_pb2.Order).",
            ) from error
        object.__setattr__(self, "message", text)
        if self.framing not in ("confluent", "none"):
            raise DeclarationError(f"Protobuf(framing={self.framing!r})", next='give "confluent" or "none".')

    @property
    def needs_schemas_of(self) -> str | None:
        """See `RecordFormat`."""
        return super().needs_schemas_of if self.framing == "confluent" else None

    def bind(self, record: type) -> FieldType:
        """See `RecordFormat`.

        Raises:
            DeclarationError: a field of the record fits no field of the message.
        """
        found = super().bind(record)
        why = MessageReader(self._messages, self._messages.name, found).check()
        if why is not None:
            raise DeclarationError(
                f"{record.__name__} does not fit the message: {why}",
                next="give the field the name and type that the message has, or let it be null.",
            )
        return found

    def freeze(self) -> Mapping[str, str]:
        """See `RecordFormat`."""
        defaults = {"registry": "default", "framing": "confluent"}
        options = {name: getattr(self, name) for name in ("message", *defaults)}
        return {"format": self.name, **{n: text for n, text in options.items() if text != defaults.get(n)}}

    def decode_one(self, value: bytes | None, record: FieldType) -> dict[str, Any]:
        """See `RecordFormat`."""
        body = self._body(value)
        read = self._flat.of(record)
        found = None if read is None else read(body)
        return self._decode_strictly(body, record) if found is None else found

    def _decode_strictly(self, body: bytes, record: FieldType) -> dict[str, Any]:
        try:
            try:
                return MessageReader(self._messages, self._messages.name, record).read(body)
            except BadRecord:
                plain(self._messages, self._messages.name, body)  # a malformed message is that first of all
                raise
        except _BAD as error:
            raise BadRecord(Reason.MALFORMED_PROTOBUF.value) from error

    def encode(self, record: object) -> bytes:
        """See `RecordFormat`. Framed with the greatest id that is bound, or 1."""
        body = write_message(self._messages, self._messages.name, fields_of(record))
        if self.framing == "none":
            return body
        path = self._messages.path
        index = write_long(0) if path == (0,) else b"".join(map(write_long, (len(path), *path)))
        return frame(max(self.schemas.texts, default=1), index + body)

    def render(self, raw: bytes) -> bytes:
        """Returns the message as JSON, with all its fields that are there; as it is if it cannot be decoded."""
        try:
            found = plain(self._messages, self._messages.name, self._body(raw))
        except (BadRecord, *_BAD):
            return raw
        return json.dumps(found, ensure_ascii=False, default=lambda b: b64encode(b).decode()).encode()

    @cached_property
    def _flat(self) -> PerRecordType[FlatReader | None]:
        return PerRecordType(partial(flat_reader, self._messages))

    @property
    def _messages(self) -> Messages:
        return messages_of(self.message)

    def _body(self, value: bytes | None) -> bytes:
        """Returns the bytes of the message, of which the frame says that it is the declared one."""
        if self.framing == "none":
            return checked_length(value)
        _, schema, rest = self.unframe(value, Reason.MALFORMED_PROTOBUF)
        if schema.type != "PROTOBUF":
            raise BadRecord(Reason.SCHEMA_MISMATCH.value)
        try:
            path, at = _path(rest)
        except _BAD as error:
            raise BadRecord(Reason.MALFORMED_PROTOBUF.at("no frame")) from error
        if path != self._messages.path:
            raise BadRecord(Reason.SCHEMA_MISMATCH.value)
        return rest[at:]


def _path(raw: bytes) -> tuple[tuple[int, ...], int]:
    """Reads which message of its file a value is; a single 0 is the first one."""
    count, at = read_long(raw, 0)
    if not 0 <= count <= _DEEP:
        raise Malformed("no such message")
    path = list[int]()
    for _ in range(count):
        index, at = read_long(raw, at)
        path.append(index)
    return tuple(path) or (0,), at
