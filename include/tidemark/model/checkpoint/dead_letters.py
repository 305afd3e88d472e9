"""Why a record could not be applied: a closed set, written to the `reason` column of dead-letter tables."""

from enum import Enum


class Reason(Enum):
    """First reason found wins. Those of a field carry its path: `wrong_type: arrival_delay`.

    The order of the checks is the order of the members; fields are checked in declaration order.
    """

    NULL_VALUE = "null_value"
    """The Kafka value is null (a delete on a compacted topic)."""
    INVALID_UTF8 = "invalid_utf8"
    """The bytes are no UTF-8, or an escape is half of a surrogate pair, so that the text is no Unicode."""
    MALFORMED_JSON = "malformed_json"
    """Not one JSON text: syntax, text behind the end, a name twice in one object, nested too deeply."""
    NOT_AN_OBJECT = "not_an_object"
    """JSON, but an array, a string, a number, a boolean or null."""
    MISSING_FIELD = "missing_field"
    """A field that may not be null is absent."""
    NULL_FIELD = "null_field"
    """A field that may not be null is null."""
    WRONG_TYPE = "wrong_type"
    """The JSON type is not the declared one: a number for a string, a float for an int, a boolean for an int."""
    BAD_FORMAT = "bad_format"
    """A string that is no ISO-8601 date or time, no decimal number, or no base64."""
    OUT_OF_RANGE = "out_of_range"
    """A value that does not fit: 64-bit integers, finite doubles, a decimal's digits, the years 0001 to 9999."""
    IN_THE_FUTURE = "in_the_future"
    """The event time is later than logical time + `max_future`."""
    NULL_KEY = "null_key"
    """A key column of this operator is null; the record is a normal one for other operators."""
    BAD_KEY = "bad_key"
    """The value is null, and the message key names no key of this operator, which takes such records as deletes."""
    PROCESS_FAILED = "process_failed"
    """The operator's function raised, and it declares `on_error="dead_letter"`; carries the exception's class."""

    def at(self, path: str) -> str:
        """The text for a field of the record."""
        return f"{self.value}: {path}"


def kind_of(text: str) -> Reason:
    """The reason that a `reason` column's text begins with.

    Raises:
        ValueError: none of the set.
    """
    return Reason(text.partition(":")[0])
