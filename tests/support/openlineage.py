"""Receivers of OpenLineage events for tests, and a JSON schema of these events, taken from specification 2-0-2.

The schema shares no code with the product: member names, types and formats are those of the published JSON schema.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

FACET = {
    "type": "object",
    "properties": {
        "_producer": {"type": "string", "pattern": "^[a-z][a-z0-9+.-]*:.+"},
        "_schemaURL": {"type": "string", "pattern": r"^https://openlineage\.io/spec/.+\.json#/\$defs/\w+$"},
    },
    "required": ["_producer", "_schemaURL"],
}


def _facets(**known: dict[str, Any]) -> dict[str, Any]:
    """The schema of a map of facets, with additional rules for known ones."""
    more = {name: {"allOf": [FACET, {"type": "object", **rule}]} for name, rule in known.items()}
    return {"type": "object", "properties": more, "additionalProperties": FACET}


TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"}
RUN_FACETS = _facets(
    nominalTime={"properties": {"nominalStartTime": TIME, "nominalEndTime": TIME}, "required": ["nominalStartTime"]},
    processing_engine={"properties": {"version": TEXT, "name": TEXT}, "required": ["version"]},
    errorMessage={
        "properties": {"message": TEXT, "programmingLanguage": TEXT, "stackTrace": TEXT},
        "required": ["message", "programmingLanguage"],
    },
)
JOB_FACETS = _facets(
    jobType={
        "properties": {"processingType": {"enum": ["BATCH", "STREAMING", "SERVICE"]}, "integration": TEXT},
        "required": ["processingType", "integration"],
    },
)
DATASET = {
    "type": "object",
    "properties": {
        "namespace": TEXT,
        "name": TEXT,
        "facets": _facets(
            version={"properties": {"datasetVersion": TEXT}, "required": ["datasetVersion"]},
            storage={
                "properties": {"storageLayer": {"enum": ["iceberg", "delta"]}, "fileFormat": TEXT},
                "required": ["storageLayer"],
            },
        ),
        "inputFacets": _facets(),
        "outputFacets": _facets(
            outputStatistics={"properties": {"rowCount": WHOLE, "size": WHOLE, "fileCount": WHOLE}}
        ),
    },
    "required": ["namespace", "name"],
    "additionalProperties": False,
}
RUN_EVENT = {
    "type": "object",
    "properties": {
        "eventTime": TIME,
        "producer": {"type": "string", "pattern": "^[a-z][a-z0-9+.-]*:.+"},
        "schemaURL": {"const": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"},
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "run": {
            "type": "object",
            "properties": {"runId": {"type": "string", "format": "uuid"}, "facets": RUN_FACETS},
            "required": ["runId"],
            "additionalProperties": False,
        },
        "job": {
            "type": "object",
            "properties": {"namespace": TEXT, "name": TEXT, "facets": JOB_FACETS},
            "required": ["namespace", "name"],
            "additionalProperties": False,
        },
        "inputs": {"type": "array", "items": DATASET},
        "outputs": {"type": "array", "items": DATASET},
    },
    "required": ["eventTime", "producer", "schemaURL", "run", "job", "eventType"],
    "additionalProperties": False,
}


def complaints(event: object) -> list[str]:
    """The violations of the specification in an event."""
    validator = Draft202012Validator(RUN_EVENT, format_checker=FormatChecker(["uuid"]))
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in validator.iter_errors(event)]


class Receiver:
    """An HTTP server that records the events it receives.

    Attributes:
        status: the status of its responses.
        hangs: whether requests hang until `close`, and get no response.
    """

    def __init__(self, status: int = 201, *, hangs: bool = False) -> None:
        self.status = status
        self.hangs = hangs
        self.over = Event()
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.events: list[dict[str, Any]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # noqa: N802
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((self.path, dict(self.headers)))
                if receiver.hangs:
                    receiver.over.wait(30)
                    return
                receiver.events.append(json.loads(body))
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                if receiver.status in (301, 308):
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Logs nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        """Stops the server and releases hanging requests."""
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def receiving(status: int = 201, *, hangs: bool = False) -> Iterator[Receiver]:
    """Runs a receiver for the duration of the block."""
    made = Receiver(status, hangs=hangs)
    try:
        yield made
    finally:
        made.close()
