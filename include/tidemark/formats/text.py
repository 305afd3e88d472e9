"""Values that are plain text: lines of a log, words, messages of systems without JSON."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.errors import DeclarationError
from tidemark.formats.record_format import FAULT, GOOD, RecordFormat, decode_text, fields_of, reason_prefixes
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.types import FieldType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXT = FieldType("str")


@dataclass(frozen=True)
class Text(RecordFormat):
    """The whole value is one text in UTF-8, for a record with a single field of type `str`.

    Nothing is trimmed or split, and a byte order mark is kept. Bytes that are not UTF-8 become dead letters with the
    reason `invalid_utf8`; an empty value is the empty text.

    >>> from dataclasses import dataclass
    >>> from tidemark import KafkaSource, formats
    >>> @dataclass
    ... class Line:
    ...     text: str
    >>> source = KafkaSource("lines", Line, format=formats.Text())
    >>> source.format.decode_one("zwölf Boxkämpfer".encode(), source.schema)
    {'text': 'zwölf Boxkämpfer'}
    """

    name = "text"
    reasons = reason_prefixes(Reason.NULL_VALUE, Reason.INVALID_UTF8)

    def bind(self, record: type) -> FieldType:
        """See `RecordFormat`.

        Raises:
            DeclarationError: the record is not a dataclass with a single `str` field.
        """
        found = super().bind(record)
        if [of.bare for _, of in found.fields] != [_TEXT]:
            raise DeclarationError(
                f"{record.__name__} does not fit Text(): a text fills one field of type str",
                next="declare a dataclass with exactly one field, a str that is not optional.",
            )
        return found

    def decode(self, raw: "DataFrame", record: FieldType) -> "DataFrame":
        """See `RecordFormat`."""
        ((name, _),) = record.fields
        fault = (
            f"CASE WHEN value IS NULL THEN '{Reason.NULL_VALUE.value}'"
            f" WHEN NOT is_valid_utf8(CAST(value AS STRING)) THEN '{Reason.INVALID_UTF8.value}' END"
        )
        return raw.selectExpr("*", f"{fault} AS {FAULT}", f"named_struct('{name}', CAST(value AS STRING)) AS {GOOD}")

    def decode_one(self, value: bytes | None, record: FieldType) -> dict[str, Any]:
        """See `RecordFormat`."""
        text = decode_text(value)
        return {name: text for name, _ in record.fields}

    def encode(self, record: object) -> bytes:
        """See `RecordFormat`."""
        (text,) = fields_of(record).values()
        return str(text).encode("utf-8", "surrogatepass")
