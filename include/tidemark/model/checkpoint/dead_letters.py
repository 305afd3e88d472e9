"""Dead letters: their table, and why a record could not be applied, a closed set stored in its `reason` column."""

from enum import Enum

DEAD_LETTER_COLUMNS: tuple[tuple[str, str], ...] = (
    ("topic", "STRING"),
    ("partition", "INT"),
    ("offset", "BIGINT"),
    ("timestamp", "TIMESTAMP"),
    ("uid", "STRING"),
    ("reason", "STRING"),
    ("key", "BINARY"),
    ("value", "BINARY"),
    ("headers", "ARRAY<STRUCT<`key`: STRING, `value`: BINARY>>"),
    ("path", "ARRAY<BIGINT>"),
)
"""Columns of a dead-letter table, before its partition columns.

`path` is null for a record that its operator reads from Kafka. For a record that another operator emitted, it is the
path of that record, and `value` is the record as JSON.
"""
LATER_COLUMNS = frozenset(("headers", "path"))
"""Those that tables of 0.1 lack."""


class Reason(Enum):
    """The first reason found is the one stored. Reasons of a field carry its path: `wrong_type: arrival_delay`.

    The checks run in the order of the members, and over fields in the order of their declaration.
    """

    NULL_VALUE = "null_value"
    """The Kafka value is null (a delete on a compacted topic)."""
    TOO_LARGE = "too_large"
    """The value is longer than 8 MiB, the most that a format decodes that makes many objects of few bytes."""
    UNKNOWN_SCHEMA = "unknown_schema"
    """The registry does not know the id of the value's schema, which follows: `unknown_schema: 7`."""
    INVALID_UTF8 = "invalid_utf8"
    """The bytes are not UTF-8, or an escape is half of a surrogate pair, so the text is not Unicode."""
    MALFORMED_JSON = "malformed_json"
    """Not one JSON text: a syntax error, text after the end, a duplicate name in an object, or too deep nesting."""
    MALFORMED_CSV = "malformed_csv"
    """Not one row of CSV with the declared number of columns."""
    MALFORMED_AVRO = "malformed_avro"
    """Not one Avro value of its schema, or without the frame that names the schema (`malformed_avro: no frame`)."""
    MALFORMED_PROTOBUF = "malformed_protobuf"
    """Not one protobuf message, or without the frame that names its schema (`malformed_protobuf: no frame`)."""
    SCHEMA_MISMATCH = "schema_mismatch"
    """No value of its schema can be read as the record: a field that may not be null is absent, or has another type."""
    NOT_AN_OBJECT = "not_an_object"
    """JSON, but an array, a string, a number, a boolean or null."""
    UNSUPPORTED_OP = "unsupported_op"
    """A change that is none of a row: a truncate, or an operation that the format does not know."""
    MISSING_FIELD = "missing_field"
    """A field that may not be null is absent."""
    NULL_FIELD = "null_field"
    """A field that may not be null is null."""
    WRONG_TYPE = "wrong_type"
    """The JSON type differs from the declared one: a number for a string, a float for an int, a boolean for an int."""
    BAD_FORMAT = "bad_format"
    """A string that is not an ISO-8601 date or time, a decimal number, a UUID, or base64."""
    OUT_OF_RANGE = "out_of_range"
    """A value that does not fit: 64-bit integers, finite doubles, a decimal's digits, the years 0001 to 9999."""
    UNKNOWN_MEMBER = "unknown_member"
    """A value that is no member of the declared Enum or Literal; a number that no symbol of Protobuf's enum has."""
    IN_THE_FUTURE = "in_the_future"
    """The event time is later than logical time + `max_future`."""
    LATE = "late"
    """The window of the record had closed before the checkpoint; it does not count towards `max_dead_letters`."""
    NULL_KEY = "null_key"
    """A key column of this operator is null; the record is a normal one for other operators."""
    BAD_KEY = "bad_key"
    """The message key is not a key of this operator: of a delete, or of any change that Debezium writes."""
    PROCESS_FAILED = "process_failed"
    """The operator's function raised, and it declares `on_error="dead_letter"`; carries the exception's class."""

    def at(self, path: str) -> str:
        """Returns the text for a field of the record."""
        return f"{self.value}: {path}"


def kind_of(text: str) -> Reason:
    """Returns the reason at the start of a `reason` column's text.

    Raises:
        ValueError: the text starts with none of them.
    """
    return Reason(text.partition(":")[0])
