"""Sends OpenLineage events to a file, one per line, or to a receiver over HTTP, such as Marquez."""

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

ENDPOINT = "/api/v1/lineage"
"""The path of receivers whose address has none."""


@dataclass(frozen=True)
class FileLineage:
    """See `ports.observing.LineageSink`.

    Attributes:
        path: the file that gets a line of JSON for each event; it is created with its folder.
    """

    path: Path

    def announce(self, event: Mapping[str, object]) -> None:
        """See `ports.observing.LineageSink`. Each event is one write, so processes do not mix up their lines."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(event, separators=(",", ":")) + "\n"
        with self.path.open("ab", buffering=0) as file:
            file.write(line.encode())


@dataclass(frozen=True)
class HttpLineage:
    """See `ports.observing.LineageSink`.

    Attributes:
        address: `http://host:port`, with or without a path.
        api_key: sent as `Authorization: Bearer`; None = no such header.
        timeout: seconds to wait for the connection, and for each part of the response.
    """

    address: str
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 2.0

    def announce(self, event: Mapping[str, object]) -> None:
        """See `ports.observing.LineageSink`.

        Raises:
            OSError: the receiver did not answer, or its status was not 2xx.
        """
        url = self.address if urlsplit(self.address).path.strip("/") else self.address.rstrip("/") + ENDPOINT
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        body = json.dumps(event, separators=(",", ":")).encode()
        request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310  (settings take http(s) only)
        try:
            urllib.request.build_opener(_Straight).open(request, timeout=self.timeout).close()
        except HTTPError as error:
            error.close()
            raise OSError(f"the receiver answered {error.code}") from None


class _Straight(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: only the configured receiver may get the key, and a POST would become a GET."""

    def redirect_request(self, *_: object) -> None:
        """Returns None, so that the redirect becomes an error."""
