"""Checks that a Spark Connect server listens, before its client retries for ten minutes."""

import socket
from urllib.parse import urlsplit

from tidemark.errors import EngineError, UsageError

_CONNECT_PORT = 15002
_CONNECT_TIMEOUT = 10.0


def refuse_unreachable(address: str) -> None:
    """Checks that something listens at the address of a Spark Connect server.

    Raises:
        UsageError: the address is invalid.
        EngineError: nothing listens there.
    """
    at = urlsplit(address)
    try:
        port = at.port or _CONNECT_PORT
    except ValueError as error:
        raise UsageError(
            f"TIDEMARK_SPARK is not a valid address: {address}",
            next="write sc://spark:15002, with options after a slash: sc://spark:443/;use_ssl=true",
        ) from error
    try:
        socket.create_connection((at.hostname or "localhost", port), _CONNECT_TIMEOUT).close()
    except OSError as error:
        raise EngineError(
            f"Spark does not answer at {at.hostname}:{port}: {error.strerror or error}",
            safe="every completed checkpoint is intact; nothing was published.",
            next="tidemark up --only spark    (or correct TIDEMARK_SPARK), then run the pipeline again.",
        ) from error
