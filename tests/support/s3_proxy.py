"""An HTTP proxy before a store: it drops replies, answers errors, alters requests, as a test's rule says."""

import http.client
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CODES = {400: "BadRequest", 403: "AccessDenied", 409: "ConditionalRequestConflict", 503: "SlowDown"}
"""What S3 calls a status."""
_TIMEOUT = 30
_HOP_BY_HOP = {"connection", "expect", "keep-alive", "transfer-encoding"}


@dataclass
class S3Request:
    """One request of a client.

    Attributes:
        method: such as PUT.
        path: with its query.
        headers: by name in lower case; a rule may change them.
        body: a rule may change it.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Fault(Enum):
    """What becomes of a request."""

    DROP_REPLY = auto()
    """The store does it; the client's connection is closed."""
    CUT_BODY = auto()
    """The reply breaks off in its middle."""
    NOT_SENT = auto()
    """The connection is closed before the store hears of it."""


Rule = Callable[[S3Request], Fault | int | bytes | None]
"""A fault, the status of an error or the body of a 200 that the proxy answers by itself, or None: as it should be."""


def is_put(request: S3Request, name: str) -> bool:
    """Whether a request puts the object whose key ends so."""
    return request.method == "PUT" and request.path.partition("?")[0].endswith(name)


@dataclass
class Times:
    """A rule that holds for some number of the requests that fit, and no longer.

    Attributes:
        fault: what becomes of them.
        left: how many still.
        method: those that fit: pattern of the method.
        path: pattern of the path.
        met: how many it was.
    """

    fault: Fault | int
    left: int
    method: str = ".*"
    path: str = ".*"
    met: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: S3Request) -> Fault | int | None:
        fits = re.fullmatch(self.method, request.method) and re.search(self.path, request.path)
        with self._lock:
            if not fits or not self.left:
                return None
            self.left -= 1
            self.met += 1
            return self.fault


class _Listening(ThreadingHTTPServer):
    """Replies may still be under way when a test ends: their threads are waited for."""

    daemon_threads = False
    request_queue_size = 128
    """Of the five that Python leaves room for, a race of eight writers needs more."""


class S3Proxy:
    """Runs while a `with` block lasts; `rule` may be set at any time.

    Conditional puts are passed on one by one: moto looks whether there is an object before it writes, and lets two of
    them win in between, which no store does that `doctor` lets pass.

    Attributes:
        code: what errors of its own call themselves, where it is not what S3 calls their status.
        hidden: keys that listings leave out.
        pace: bytes per second of replies' bodies; None = as fast as may be.
        requests: method and path of all requests, in order of arrival.
    """

    def __init__(self, host: str, port: int) -> None:
        self.rule: Rule = _as_it_should_be
        self.code: str | None = None
        self.hidden: re.Pattern[str] | None = None
        self.pace: int | None = None
        self.requests: list[tuple[str, str]] = []
        self._target = (host, port)
        self._conditional = threading.Lock()
        self._server = _Listening(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def address(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def reset(self) -> None:
        """Everything is as it should be."""
        self.rule, self.code, self.hidden, self.pace = _as_it_should_be, None, None, None
        self.requests.clear()

    def __enter__(self) -> "S3Proxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, request: S3Request) -> tuple[int, Mapping[str, str], bytes, Fault | None]:
        self.requests.append((request.method, request.path))
        fault = self.rule(request)
        if fault is Fault.NOT_SENT:
            return 0, {}, b"", fault
        if isinstance(fault, bytes):
            return 200, {"content-type": "application/xml"}, fault, None
        if isinstance(fault, int):
            return (
                fault,
                {"content-type": "application/xml"},
                _error(self.code or CODES.get(fault, "InternalError")),
                None,
            )
        with self._conditional if "if-none-match" in request.headers else nullcontext():
            status, told, body = self._passed_on(request)
        if self.hidden is not None and request.method == "GET" and "list-type=2" in request.path:
            body = _without(body, self.hidden)
        return status, told, body, fault

    def _passed_on(self, request: S3Request) -> tuple[int, dict[str, str], bytes]:
        with closing(http.client.HTTPConnection(*self._target, timeout=_TIMEOUT)) as connection:
            connection.request(request.method, request.path, request.body, request.headers)
            reply = connection.getresponse()
            return reply.status, dict(reply.headers.items()), reply.read()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass(self) -> None:
                self.close_connection = True
                headers = {k.lower(): v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                status, told, answer, fault = proxy._answer(S3Request(self.command, self.path, headers, body))
                if fault in (Fault.DROP_REPLY, Fault.NOT_SENT):
                    return
                self.send_response_only(status)
                for name, value in told.items():
                    if name.lower() not in _HOP_BY_HOP | {"content-length"}:
                        self.send_header(name, value)
                length = told.get("Content-Length", "0") if self.command == "HEAD" else str(len(answer))
                self.send_header("Content-Length", length)
                self.send_header("Connection", "close")
                self.end_headers()
                if self.command != "HEAD":
                    self._write(answer[: len(answer) // 2] if fault is Fault.CUT_BODY else answer)

            def _write(self, body: bytes) -> None:
                step = len(body) if proxy.pace is None else max(1, proxy.pace // 20)
                for start in range(0, len(body), step or 1):
                    self.wfile.write(body[start : start + step])
                    if proxy.pace is not None:
                        time.sleep(0.05)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass

            def log_message(self, *_: Any) -> None:  # noqa: ANN401
                """Says nothing."""

        return Handler


def _as_it_should_be(request: S3Request) -> None:
    return None


def strips_conditions(request: S3Request) -> None:
    """A rule: what stands before the store does not know conditional puts."""
    request.headers.pop("if-none-match", None)


def _without(listing: bytes, hidden: re.Pattern[str]) -> bytes:
    """A listing without some of its keys."""
    parts = re.split(rb"(<Contents>.*?</Contents>)", listing, flags=re.DOTALL)
    return b"".join(part for part in parts if not (part.startswith(b"<Contents>") and hidden.search(part.decode())))


def _error(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>planted</Message></Error>".encode()
