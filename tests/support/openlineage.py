"""Receivers of OpenLineage events for tests, and what the specification's JSON schemas say about an event.

The schemas are files of OpenLineage, unchanged; see `openlineage_spec/README.md`. Nothing here knows the product or the
client that it uses.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

SPEC = Path(__file__).parent / "openlineage_spec"
EVENT = "OpenLineage.json"
Json = Mapping[str, Any]


def complaints(event: Any) -> list[str]:
    """The violations of the specification in an event: of the event itself, and of each of its facets.

    A facet is held to the schema that has its name, and to the one that it names. The schemas allow further members
    everywhere, in which a misspelt one hides, so an unknown member is a complaint too.
    """
    schema = {"$ref": f"{_files()[EVENT]['$id']}#/$defs/RunEvent"}
    found = [*_violations(schema, event, ""), *_unknown(_files()[EVENT], schema, event, "")]
    return found + [told for kind, place, facet in _facets(event) for told in _of_facet(kind, place, facet)]


def _of_facet(kind: str, place: str, facet: Any) -> Iterator[str]:
    url = facet.get("_schemaURL", "") if isinstance(facet, dict) else ""
    base, _, pointer = url.partition("#")
    known = {file["$id"]: file for file in _files().values()}
    if base not in known or pointer.rpartition("/")[2] not in known[base]["$defs"]:
        yield f"{place}: {url} is no schema of the specification"
        return
    name = place.rpartition("/")[2]
    wanted = _standard_facets().get((kind, name))
    if wanted is None:
        # A facet of our own: the schema of any facet of its kind, and a name that no other producer uses.
        if base != _files()[EVENT]["$id"] or not name.startswith("tidemark_"):
            yield f"{place}: the specification has no facet of this name"
    elif wanted["$id"] != base:
        yield f"{place}: its schema is {wanted['$id']}, not {base}"
    else:
        yield from _unknown(wanted, {"$ref": url}, facet, place)
    yield from _violations({"$ref": url}, facet, place)


def _violations(schema: Json, value: Any, place: str) -> Iterator[str]:
    validator = Draft202012Validator(schema, registry=_registry(), format_checker=_formats())
    for error in validator.iter_errors(value):
        yield f"{place}/{'/'.join(map(str, error.absolute_path))}: {error.message}"


def _unknown(file: Json, schema: Json, value: Any, place: str) -> Iterator[str]:
    """Yields the members of a value that its schema does not name; facets are left to `_of_facet`."""
    parts = list(_parts(file, schema))
    if isinstance(value, list):
        for n, item in enumerate(value):
            for where, one in parts:
                if "items" in one:
                    yield from _unknown(where, one["items"], item, f"{place}/{n}")
        return
    if not isinstance(value, dict):
        return
    properties = {name: (where, of) for where, one in parts for name, of in one.get("properties", {}).items()}
    maps = [(where, one["additionalProperties"]) for where, one in parts
            if isinstance(one.get("additionalProperties"), dict)]  # fmt: skip
    for name, item in value.items():
        if name in properties:
            yield from _unknown(*properties[name], item, f"{place}/{name}")
        elif maps:
            yield from _unknown(*maps[0], item, f"{place}/{name}")
        elif not _is_facet(item):
            yield f"{place}/{name}: the schema has no such member"


def _parts(file: Json, schema: Json) -> Iterator[tuple[Json, Json]]:
    """Yields the schemas that a schema consists of, each with its file."""
    yield file, schema
    for part in schema.get("allOf", ()):
        yield from _parts(file, part)
    if "$ref" in schema:
        base, _, pointer = schema["$ref"].partition("#")
        files = {f["$id"]: f for f in _files().values()}
        target = files[base] if base else file
        found = target
        for step in filter(None, pointer.split("/")):
            found = found[step]
        yield from _parts(target, found)


def _is_facet(value: Any) -> bool:
    return isinstance(value, dict) and "_schemaURL" in value


def _facets(event: Any) -> Iterator[tuple[str, str, Any]]:
    """Yields kind, place and value of each facet of an event."""
    holders = [("run", event.get("run"), {"facets": "RunFacet"}), ("job", event.get("job"), {"facets": "JobFacet"})]
    for side, own in (("inputs", "InputDatasetFacet"), ("outputs", "OutputDatasetFacet")):
        kinds = {"facets": "DatasetFacet", f"{side[:-1]}Facets": own}
        holders += [(f"{side}/{n}", dataset, kinds) for n, dataset in enumerate(event.get(side, []))]
    for place, holder, kinds in holders:
        for member, kind in kinds.items():
            for name, facet in holder.get(member, {}).items() if isinstance(holder, dict) else ():
                yield kind, f"{place}/{member}/{name}", facet


@cache
def _files() -> dict[str, Any]:
    """The schemas by the name of their file."""
    return {path.name: json.loads(path.read_text()) for path in sorted(SPEC.rglob("*.json"))}


@cache
def _standard_facets() -> dict[tuple[str, str], Any]:
    """The file of each facet of the specification, by the facet's kind and its name in an event."""
    found = {}
    for path, file in _files().items():
        named = file.get("properties", {}) if path != EVENT else {}
        for name, of in named.items():
            for _, part in _parts(file, of):
                base, _, kind = part.get("$ref", "").rpartition("/")
                if base.startswith(_files()[EVENT]["$id"]):
                    found[kind, name] = file
    return found


@cache
def _registry() -> Any:
    return Registry().with_resources((file["$id"], Resource.from_contents(file)) for file in _files().values())


@cache
def _formats() -> FormatChecker:
    checker = FormatChecker(["uuid"])
    checker.checks("date-time", ValueError)(_is_moment)
    checker.checks("uri")(lambda text: not isinstance(text, str) or bool(urlsplit(text).scheme))
    return checker


def _is_moment(text: Any) -> bool:
    return not isinstance(text, str) or ("T" in text and datetime.fromisoformat(text).tzinfo is not None)


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
