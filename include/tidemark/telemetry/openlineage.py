"""Sends OpenLineage events, with the client and the transports of openlineage-python."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from openlineage.client import OpenLineageClient
from openlineage.client.transport import Transport
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport, TokenProvider

from tidemark.ports.observing import LineageEvent
from tidemark.telemetry.openlineage_columns import Naming
from tidemark.telemetry.openlineage_events import run_event

OpenTransport = Callable[[], Transport]
ENDPOINT = "/api/v1/lineage"
"""The path of receivers whose address has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportLineage:
    """See `ports.observing.LineageSink`. One transport gets the events as they are, whatever `OPENLINEAGE_*` says.

    Attributes:
        open_transport: opens the transport. Each event gets its own, because a process sends only two or three.
        naming: names of jobs and datasets.
    """

    open_transport: OpenTransport = field(repr=False)
    naming: Naming

    def announce(self, event: LineageEvent) -> None:
        """See `ports.observing.LineageSink`.

        Raises:
            Exception: the receiver is down, or refuses the event.
        """
        made, transport = run_event(event, self.naming), self.open_transport()
        try:
            transport.emit(made)
        finally:
            transport.close(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLineage:
    """See `ports.observing.LineageSink`. The client of OpenLineage sends the events, as its own variables say.

    Attributes:
        naming: names of jobs and datasets.
        timeout: seconds to wait for a transport that sends in the background.
    """

    naming: Naming
    timeout: float = 2.0

    def announce(self, event: LineageEvent) -> None:
        """See `ports.observing.LineageSink`.

        Raises:
            Exception: the configuration is invalid, or the receiver is down or refuses the event.
        """
        client = OpenLineageClient()
        try:
            client.emit(run_event(event, self.naming))
        finally:
            client.close(self.timeout)


def file_transport(path: Path) -> Transport:
    """Returns a transport that appends a line of JSON per event; the file is created with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileTransport(FileConfig(log_file_path=str(path), append=True))


def http_transport(address: str, api_key: str | None, timeout: float) -> Transport:
    """Returns a transport to a receiver over HTTP, such as Marquez; each event is sent once.

    Args:
        address: `http://host:port`, with or without a path.
        api_key: sent as `Authorization: Bearer`; None = no such header.
        timeout: seconds to wait for the connection, and for each part of the response.
    """
    parts = urlsplit(address)
    made = HttpTransport(
        HttpConfig(
            url=urlunsplit((parts.scheme, parts.netloc, "", "", "")),
            endpoint=parts.path if parts.path.strip("/") else ENDPOINT,
            timeout=timeout,
            auth=TokenProvider({}) if api_key is None else ApiKeyTokenProvider({"apiKey": api_key}),
            retry={"total": 0},
        )
    )
    # Only this receiver may get the events and the key: no redirect is followed, and ~/.netrc does not replace the key.
    made.session.max_redirects = 0
    made.session.auth = _unchanged
    return made


def _unchanged(request: Any) -> Any:  # noqa: ANN401
    return request
