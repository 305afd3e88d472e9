"""Translates errors of Spark, Py4J and gRPC to Tidemark's; no other module of the engine catches them."""

from collections.abc import Iterator
from contextlib import contextmanager

from tidemark.errors import BrokerError, DataLostError, EngineError, StateOverflowError, StoreError, TidemarkError
from tidemark.model.kinds.base.sql import overflow_in

_LOST = (
    "OffsetOutOfRange",
    "Some data may have been lost",
    "UnknownTopicOrPartition",
    "UnknownTopicIdException",
    "KAFKA_DATA_LOSS",
    "could not be read from the topic",
)
_BROKER = (
    "Failed to construct kafka consumer",
    "org.apache.kafka.common.errors.TimeoutException",
    "No resolvable bootstrap urls",
    "BrokerNotAvailable",
    "DisconnectException",
    "AuthorizationException",
    "AuthenticationException",
    "Timed out waiting for a node assignment",
)
_DISK = ("No space left on device", "Disk quota exceeded", "Read-only file system", "Permission denied")
_GONE = "StatusCode.UNAVAILABLE"
_HANDSHAKE = "Tls handshake failed"
_STRANGER = ("StatusCode.UNAUTHENTICATED", "StatusCode.PERMISSION_DENIED")
_NUMBERS = ("ARITHMETIC_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE", "BINARY_ARITHMETIC_OVERFLOW")
_FOREIGN = ("pyspark", "py4j", "grpc")


class NumericOverflow(EngineError):
    """A sum overflowed inside Spark, which does not name the key; the caller finds it with a second query."""


@contextmanager
def translate_spark_errors() -> Iterator[None]:
    """Runs a block and translates foreign errors.

    Raises:
        DataLostError: part of a range is no longer in the log.
        BrokerError: Kafka did not answer.
        StoreError: the disk refused to read or write.
        StateOverflowError: a key's state does not fit; the message names the key.
        NumericOverflow: the same, without the key.
        EngineError: any other failure of Spark, with the first lines of its message.
    """
    try:
        yield
    except TidemarkError:
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _FOREIGN and not isinstance(error, OSError):
            raise
        raise _ours(str(error)) from error


def _ours(message: str) -> TidemarkError:
    first = _first_lines(message)
    found = overflow_in(message)
    if found:
        return overflow(found)
    if any(mark in message for mark in _LOST):
        return DataLostError(
            f"data lost: Spark could not read the whole planned range: {first}",
            safe="every completed checkpoint is intact; nothing was published.",
            next="run the pipeline again: its planner names the exact gap, and --accept-loss records it.",
        )
    if any(mark in message for mark in _NUMBERS):
        return NumericOverflow(f"a sum overflowed its type: {first}", next="check the values of the summed fields.")
    if any(mark in message for mark in _BROKER):
        return BrokerError(
            f"Kafka did not answer: {first}",
            safe="every completed checkpoint is intact; nothing was published.",
            next="start the broker, or correct its address and credentials, then run the pipeline again.",
        )
    if any(mark in message for mark in _DISK):
        return StoreError(
            f"the disk refused to read or write: {first}",
            safe="every completed checkpoint is intact; nothing was published.",
            next="free some space or correct the permissions, then run the pipeline again.",
        )
    if any(mark in message for mark in _STRANGER):
        return EngineError(
            f"Spark refuses the token: {first}",
            safe="every completed checkpoint is intact; nothing was published.",
            next="correct TIDEMARK_SPARK_TOKEN_FILE, TIDEMARK_SPARK_TOKEN or the Airflow connection, then run again.",
        )
    if _HANDSHAKE in message:
        return EngineError(
            f"the TLS handshake with Spark failed: {first}",
            safe="every completed checkpoint is intact; nothing was published.",
            next="set GRPC_DEFAULT_SSL_ROOTS_FILE_PATH to the authority of its certificate, or correct use_ssl in"
            " TIDEMARK_SPARK.",
        )
    if _GONE in message:
        return EngineError(
            f"Spark no longer answers: {first}",
            safe="every completed checkpoint is intact; nothing was published.",
            next="tidemark up --only spark    (or start your own server), then run the pipeline again.",
        )
    return EngineError(
        f"Spark failed: {first}",
        safe="every completed checkpoint is intact; nothing was published.",
        next="check Spark's log, then run the pipeline again: it repeats the same ranges.",
    )


def overflow(what: str) -> StateOverflowError:
    """Returns the error for a key whose state does not fit."""
    return StateOverflowError(
        f"state overflow: {what}",
        safe="every completed checkpoint is intact; nothing was published.",
        next="widen the type or limit of the field, or remove the record, then run the pipeline again.",
    )


def _first_lines(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return " ".join(lines[:3])[:500]
