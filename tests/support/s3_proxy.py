"""An HTTP proxy in front of a store: it drops replies, returns errors and alters requests, by a rule of the test."""

import http.client
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CODES = {
    400: "BadRequest",
    403: "AccessDenied",
    409: "ConditionalRequestConflict",
    503: "SlowDown",
    507: "XMinioStorageFull",
}
"""S3 error codes by HTTP status."""
_TIMEOUT = 30
_HOP_BY_HOP = {"connection", "expect", "keep-alive", "transfer-encoding"}


@dataclass
class S3Request:
    """A request of a client.

    Attributes:
        method: such as PUT.
        path: the path with its query.
        headers: values by lower-case name; a rule may change them.
        body: the payload; a rule may change it.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Fault(Enum):
    """A fault that a rule injects into a request."""

    DROP_REPLY = auto()
    """The store executes the request; the proxy closes the connection without a reply."""
    CUT_BODY = auto()
    """The proxy sends only the first half of the reply's body."""
    NOT_SENT = auto()
    """The proxy closes the connection without sending the request to the store."""


Rule = Callable[[S3Request], Fault | int | bytes | None]
"""Returns a fault, the status of an error, the body of a 200 that the proxy returns itself, or None for no fault."""


def is_put(request: S3Request, name: str) -> bool:
    """Whether a request puts an object whose key ends with `name`."""
    return request.method == "PUT" and request.path.partition("?")[0].endswith(name)


@dataclass
class Times:
    """A rule that injects a fault into the first few matching requests.

    Attributes:
        fault: the fault to inject.
        left: number of faults that are still to be injected.
        method: pattern that the whole method must match.
        path: pattern that a part of the path must match.
        met: number of injected faults.
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
    """A server that waits for its threads when it closes, because a test may end while replies are being sent."""

    daemon_threads = False
    request_queue_size = 128
    """Python's default backlog of five is too short for a race of eight writers."""


class S3Proxy:
    """Runs for the duration of a `with` block. Set `rule` at any time.

    In front of a store that is not atomic, the proxy forwards conditional puts one at a time. moto checks whether the
    object exists before it writes, so of two concurrent puts both could win. `doctor` rejects a store that does this.

    A request that a rule has changed is signed again, as a gateway would sign it that changes requests.

    Args:
        host: of the store.
        port: of the store.
        keys: id and secret of the credentials of its clients.
        is_atomic: whether the store itself lets one of two concurrent conditional puts win.

    Attributes:
        code: S3 code of the errors that the proxy returns; None = the code of their status.
        hidden: pattern of keys that listings omit.
        etag: ETag of all replies; None = the store's.
        pace: bytes per second of reply bodies; None = no limit.
        requests: method and path of all requests, in order of arrival.
    """

    def __init__(self, host: str, port: int, keys: tuple[str, str], *, is_atomic: bool) -> None:
        self.rule: Rule = _as_it_should_be
        self.code: str | None = None
        self.hidden: re.Pattern[str] | None = None
        self.pace: int | None = None
        self.etag: str | None = None
        self.requests: list[tuple[str, str]] = []
        self._target, self._keys = (host, port), keys
        self._conditional: AbstractContextManager[object] = nullcontext() if is_atomic else threading.Lock()
        self._server = _Listening(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def address(self) -> str:
        """The base URL of the proxy."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def reset(self) -> None:
        """Removes the rule and all other settings, and forgets the requests."""
        self.rule, self.code, self.hidden, self.pace, self.etag = _as_it_should_be, None, None, None, None
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
        arrived = (dict(request.headers), request.body)
        fault = self.rule(request)
        if (request.headers, request.body) != arrived:
            _sign_again(request, self._keys)
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
            try:
                status, fields, body = self._passed_on(request)
            except (OSError, http.client.HTTPException):  # the store is down
                return 0, {}, b"", Fault.NOT_SENT
        if self.hidden is not None and request.method == "GET" and "list-type=2" in request.path:
            body = _without(body, self.hidden)
        return status, fields, body, fault

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
                status, fields, answer, fault = proxy._answer(S3Request(self.command, self.path, headers, body))
                if fault in (Fault.DROP_REPLY, Fault.NOT_SENT):
                    return
                self.send_response_only(status)
                for name, value in fields.items():
                    value = proxy.etag if proxy.etag is not None and name.lower() == "etag" else value
                    if name.lower() not in _HOP_BY_HOP | {"content-length"}:
                        self.send_header(name, value)
                length = fields.get("Content-Length", "0") if self.command == "HEAD" else str(len(answer))
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
                """Logs nothing."""

        return Handler


def _as_it_should_be(request: S3Request) -> None:
    return None


def strips_conditions(request: S3Request) -> None:
    """A rule that imitates a gateway in front of the store that ignores the conditions of puts."""
    request.headers.pop("if-none-match", None)


def _sign_again(request: S3Request, keys: tuple[str, str]) -> None:
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    signed = {k: v for k, v in request.headers.items() if k not in ("authorization", "content-md5", "user-agent")}
    made = AWSRequest(request.method, f"http://{signed.pop('host')}{request.path}", signed, request.body)
    region = re.search(r"/([^/]+)/s3/aws4_request", request.headers.get("authorization", ""))
    S3SigV4Auth(Credentials(*keys), "s3", region[1] if region else "us-east-1").add_auth(made)
    request.headers = {"host": request.headers["host"], **{k.lower(): str(v) for k, v in made.headers.items()}}


def _without(listing: bytes, hidden: re.Pattern[str]) -> bytes:
    """Removes the hidden keys from a listing."""
    parts = re.split(rb"(<Contents>.*?</Contents>)", listing, flags=re.DOTALL)
    return b"".join(part for part in parts if not (part.startswith(b"<Contents>") and hidden.search(part.decode())))


def _error(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>planted</Message></Error>".encode()
