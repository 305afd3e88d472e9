"""Kafka's own fields in records, and the adapters of the broker: the log for planners, records by offset, the producer.

The functions are defaults of fields. The format decodes the other fields from the value, and the reader fills these:

    from tidemark import kafka

    @dataclass(frozen=True)
    class Payment:
        amount: int
        sent_at: datetime = kafka.timestamp()
        tenant: str | None = kafka.header("tenant")

In a program, a field that you do not pass holds its origin; only a reader knows the value. `tidemark.testing.replay`
sends a record with the timestamp, key and headers that you pass.
"""

from typing import Any

from tidemark.errors import DeclarationError
from tidemark.model.core.origins import HEADER, Origin

__all__ = ["header", "key", "offset", "partition", "timestamp", "topic"]

_RAW = ("bytes", "str")


def timestamp() -> Any:  # noqa: ANN401
    """Returns the default of a `datetime` field with Kafka's timestamp, in UTC with milliseconds.

    The topic decides whether it is the producer's time or the broker's (`message.timestamp.type`). With
    `event_time` on such a field you get what you get without `event_time`.

    >>> from dataclasses import dataclass
    >>> from datetime import datetime
    >>> from tidemark import KafkaSource, kafka
    >>> @dataclass(frozen=True)
    ... class Payment:
    ...     amount: int
    ...     sent_at: datetime = kafka.timestamp()
    >>> KafkaSource("payments", Payment, event_time="sent_at").event_time
    'sent_at'
    """
    return Origin("kafka.timestamp", ("timestamp",))


def key() -> Any:  # noqa: ANN401
    """Returns the default of a `bytes` or `str` field with the message key.

    A record without a key is a dead letter with the reason `null_field`, unless the field is optional. With `str`, a
    key that is not UTF-8 is one with the reason `invalid_utf8`.
    """
    return Origin("kafka.key", _RAW, nullable=True)


def header(name: str) -> Any:  # noqa: ANN401
    """Returns the default of a `bytes` or `str` field with a header; of several headers of that name, the last.

    A record without the header is a dead letter with the reason `missing_field`, and one with a null header
    `null_field`, unless the field is optional. With `str`, a header that is not UTF-8 is one with `invalid_utf8`.

    Args:
        name: name of the header; case matters, as in Kafka.

    Raises:
        DeclarationError: the name is empty or has control characters.
    """
    if not isinstance(name, str) or not name or not name.isprintable():
        raise DeclarationError(f"kafka.header({name!r}) names no header", next='name one: kafka.header("tenant").')
    return Origin(f"{HEADER}{name}", _RAW, nullable=True)


def topic() -> Any:  # noqa: ANN401
    """Returns the default of a `str` field with the name of the record's topic."""
    return Origin("kafka.topic", ("str",))


def partition() -> Any:  # noqa: ANN401
    """Returns the default of an `int` field with the record's partition."""
    return Origin("kafka.partition", ("int",))


def offset() -> Any:  # noqa: ANN401
    """Returns the default of an `int` field with the record's offset in its partition."""
    return Origin("kafka.offset", ("int",))
