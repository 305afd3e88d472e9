"""Values that are JSON behind Confluent's frame, as its serializers for JSON Schema write them."""

from dataclasses import dataclass
from typing import Any

from tidemark.formats.json import Json
from tidemark.formats.record_format import BadRecord, reason_prefixes
from tidemark.formats.registry_format import RegistryFormat, frame
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.types import FieldType

_JSON = Json()


@dataclass(frozen=True)
class JsonSchema(RegistryFormat):
    """One JSON object per value, behind the frame that names its schema in a registry; decoded as `formats.Json`.

    The schema is stored with the warehouse, and an id that the registry does not know is refused. Values are not
    validated against it: the record says what the operators need, and keywords of JSON Schema change no value.

    Attributes:
        registry: see `RegistryFormat`.

    >>> from dataclasses import dataclass
    >>> from tidemark import KafkaSource, formats
    >>> from tidemark.model.schema.registry_schemas import Schemas, SchemaText
    >>> @dataclass
    ... class Payment:
    ...     account: str
    >>> source = KafkaSource("payments", Payment, format=formats.JsonSchema())
    >>> known = source.format.bind_schemas(Schemas({7: SchemaText(type="JSON", text='{"type": "object"}')}))
    >>> known.decode_one(bytes([0, 0, 0, 0, 7]) + b'{"account": "a"}', source.schema)
    {'account': 'a'}
    """

    name = "json_schema"
    reasons = (
        *reason_prefixes(Reason.NULL_VALUE, Reason.TOO_LARGE, Reason.UNKNOWN_SCHEMA),
        *(reason for reason in Json.reasons if reason != Reason.NULL_VALUE.value),
        Reason.SCHEMA_MISMATCH.value,
    )

    def decode_one(self, value: bytes | None, record: FieldType) -> dict[str, Any]:
        """See `RecordFormat`."""
        _, schema, body = self.unframe(value, Reason.MALFORMED_JSON)
        if schema.type != "JSON":
            raise BadRecord(Reason.SCHEMA_MISMATCH.value)
        return _JSON.decode_one(body, record)

    def encode(self, record: object) -> bytes:
        """See `RecordFormat`. Framed with the greatest id that is bound, or 1."""
        return frame(max(self.schemas.texts, default=1), _JSON.encode(record))

    def render(self, raw: bytes) -> bytes:
        """Returns the JSON without its frame; a value without one is returned as it is."""
        return raw[5:] if raw[:1] == b"\x00" else raw
