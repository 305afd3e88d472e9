"""Values that stay bytes: images, signed messages, formats that only your function reads."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.errors import DeclarationError
from tidemark.formats.record_format import FAULT, GOOD, BadRecord, RecordFormat, fields_of, reason_prefixes
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.types import FieldType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BYTES = FieldType("bytes")


@dataclass(frozen=True)
class Bytes(RecordFormat):
    """The whole value is one field of type `bytes`, as it is. Every value fits, except a null one.

    Bytes cannot be a key. Key by one of Kafka's own fields, such as `kafka.key()`.

    >>> from dataclasses import dataclass
    >>> from tidemark import KafkaSource, formats, kafka
    >>> @dataclass
    ... class Image:
    ...     content: bytes
    ...     camera: str = kafka.key()
    >>> source = KafkaSource("images", Image, format=formats.Bytes())
    >>> [name for name, of in source.schema.fields if of.kind == "bytes"]
    ['content']
    """

    name = "bytes"
    reasons = reason_prefixes(Reason.NULL_VALUE)

    def bind(self, record: type) -> FieldType:
        """See `RecordFormat`.

        Raises:
            DeclarationError: the record is not a dataclass with a single `bytes` field.
        """
        found = super().bind(record)
        if [of for _, of in found.fields] != [_BYTES]:
            raise DeclarationError(
                f"{record.__name__} does not fit Bytes(): a value fills one field of type bytes",
                next="declare exactly one field of type bytes, not optional, next to fields of kafka.",
            )
        return found

    def decode(self, raw: "DataFrame", record: FieldType) -> "DataFrame":
        """See `RecordFormat`."""
        ((name, _),) = record.fields
        fault = f"CASE WHEN value IS NULL THEN '{Reason.NULL_VALUE.value}' END"
        return raw.selectExpr("*", f"{fault} AS {FAULT}", f"named_struct('{name}', value) AS {GOOD}")

    def decode_one(self, value: bytes | None, record: FieldType) -> dict[str, Any]:
        """See `RecordFormat`."""
        if value is None:
            raise BadRecord(Reason.NULL_VALUE.value)
        return {name: value for name, _ in record.fields}

    def encode(self, record: object) -> bytes:
        """See `RecordFormat`."""
        (value,) = fields_of(record).values()
        return bytes(value)
