"""Events of OpenLineage to a file, a line each, or to a receiver over HTTP (Marquez and others)."""

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

ENDPOINT = "/api/v1/lineage"
"""Where receivers listen, unless the address has a path of its own."""


@dataclass(frozen=True)
class FileLineage:
    """See `ports.observing.LineageSink`.

    Attributes:
        path: gets a line of JSON for each event; made with its folder.
    """

    path: Path

    def announce(self, event: Mapping[str, object]) -> None:
        """See `ports.observing.LineageSink`. One write per event, so that lines of several processes stay whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(event, separators=(",", ":")) + "\n"
        with self.path.open("ab", buffering=0) as file:
            file.write(line.encode())


@dataclass(frozen=True)
class HttpLineage:
    """See `ports.observing.LineageSink`.

    Attributes:
        address: `http://host:port`, or with a path.
        api_key: sent as `Authorization: Bearer`; None = no such header.
        timeout: seconds to connect, and to wait for each part of the answer.
    """

    address: str
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 2.0

    def announce(self, event: Mapping[str, object]) -> None:
        """See `ports.observing.LineageSink`.

        Raises:
            OSError: nobody answers, or with another status than 2xx.
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
    """Follows no redirect: the key is for the receiver that was set, and a POST would become a GET."""

    def redirect_request(self, *_: object) -> None:
        """Refuses: the answer is an error."""
