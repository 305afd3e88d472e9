"""A client for Airflow's REST API, on the standard library: starts and watches DAG runs, and reads their logs.

The embedded Airflow is on the loopback address, so requests to it bypass any proxy. SQLite answers some writes with
"database is locked"; the client retries them.
"""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from tidemark.errors import TidemarkError

TIMEOUT = 30.0
PATIENCE = 60.0
"""How long to retry a call while Airflow is busy, in seconds."""
PAUSE = 1.0
BUSY = (500, 502, 503, 504)

Json = dict[str, Any]


class AirflowError(TidemarkError):
    """Airflow refused a request or did not answer. `status` is the HTTP status, or 0 if there was no response."""

    def __init__(self, what: str, *, safe: str = "checkpoints are intact.", next: str, status: int = 0) -> None:  # noqa: A002
        super().__init__(what, safe=safe, next=next)
        self.status = status


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, because urllib would send the token to the other host."""

    def redirect_request(self, *_: object) -> None:
        """See the base class: None makes the redirect an error."""


class AirflowApi:
    """One user's session.

    Args:
        address: the base URL.
        user: the user's name; empty = the token is the only credential.
        password: the user's password. The session keeps it to renew its token, and never prints it.
        token: a token of another Airflow's API.
    """

    def __init__(self, address: str, user: str = "", password: str = "", *, token: str = "") -> None:
        self.address = address.rstrip("/")
        self._login = {"username": user, "password": password} if user else None
        self._token = token
        direct = [urllib.request.ProxyHandler({})] if user else []
        self._opener = urllib.request.build_opener(_SameHost, *direct)

    def get(self, path: str, **query: str | int | bool | list[str]) -> Json:
        """Sends a GET; `path` is relative to `/api/v2/`."""
        tail = f"?{urllib.parse.urlencode(query, doseq=True)}" if query else ""
        return self._patiently("GET", f"/api/v2/{path}{tail}", None)

    def post(self, path: str, body: Mapping[str, object]) -> Json:
        """Sends a POST, which creates a resource."""
        return self._patiently("POST", f"/api/v2/{path}", body)

    def patch(self, path: str, body: Mapping[str, object]) -> Json:
        """Sends a PATCH, which changes a resource."""
        return self._patiently("PATCH", f"/api/v2/{path}", body)

    def put(self, path: str) -> Json:
        """Sends a PUT without a body; the path names the action."""
        return self._patiently("PUT", f"/api/v2/{path}", None)

    def log_tail(self, dag: str, run: str, task: str, attempt: int, map_index: int = -1) -> list[str]:
        """Returns the last lines of a task's log as text; a mapped task needs its index."""
        where = f"dags/{dag}/dagRuns/{urllib.parse.quote(run, safe='')}/taskInstances/{task}/logs/{attempt}"
        content = self.get(where, full_content=True, map_index=map_index).get("content", [])
        return [line for entry in content for line in _text(entry).splitlines()][-25:]

    def _patiently(self, method: str, path: str, body: Mapping[str, object] | None) -> Json:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self._authenticated(method, path, body)
            except AirflowError as error:
                # If the reply to a POST was lost, the retry gets a 409, which callers expect.
                if error.status not in (0, *BUSY) or time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE)

    def _authenticated(self, method: str, path: str, body: Mapping[str, object] | None) -> Json:
        if self._login is None:
            return self._send(method, path, body)
        if not self._token:
            self._token = self._send("POST", "/auth/token", self._login)["access_token"]
        try:
            return self._send(method, path, body)
        except AirflowError as error:
            if error.status not in (401, 403):
                raise
            self._token = self._send("POST", "/auth/token", self._login)["access_token"]
            return self._send(method, path, body)

    def _send(self, method: str, path: str, body: Mapping[str, object] | None) -> Json:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        # The address is the embedded Airflow's, or a checked setting.
        request = urllib.request.Request(self.address + path, data, headers, method=method)  # noqa: S310
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise self._refusal(method, path, error.code, error.read()) from error
        except OSError as error:
            remedy = (
                "correct TIDEMARK_AIRFLOW_URL, or start that Airflow." if self._login is None else "tidemark status"
            )
            raise AirflowError(
                f"Airflow at {self.address} did not answer {method} {path}: {error}", next=remedy
            ) from error
        found: Json = json.loads(text) if text else {}
        return found

    def _refusal(self, method: str, path: str, status: int, text: bytes) -> AirflowError:
        detail = text.decode(errors="replace")[:400]
        remedy = "tidemark logs airflow-api-server"
        if self._login is None:
            remedy = "correct TIDEMARK_AIRFLOW_URL, or take a token whose user may read and edit the DAGs."
        return AirflowError(f"Airflow answered {method} {path} with {status}: {detail}", next=remedy, status=status)


def _text(entry: object) -> str:
    """One entry of a structured log: its event and, if it has one, the error's message."""
    if not isinstance(entry, dict):
        return str(entry)
    event = str(entry.get("event", ""))
    details = entry.get("error_detail") or []
    return "\n".join([event, *(f"{d.get('exc_type')}: {d.get('exc_value')}" for d in details)])
