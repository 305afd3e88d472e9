"""The weather demo's schema registry: Apicurio as a process of the stack, with Confluent's API, in memory.

`tidemark down` stops it with the rest. A new one gives the same ids, because the demo registers its schemas in the same
order.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from os import environ
from typing import Any

from devstack import apicurio, processes
from devstack.addresses import LOOPBACK, is_free
from devstack.services import require_java, service_environment
from tidemark.errors import NotFoundError, TidemarkError
from tidemark.settings import Settings

NAME = "schema-registry"
VARIABLE = "TIDEMARK_SCHEMA_REGISTRY"
PORTS = range(8_081, 8_581)
PATIENCE = 120.0
_API = "/apis/ccompat/v7"
_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True)
class DemoRegistry:
    """The registry that runs, or will run, on a port of this machine."""

    port: int

    @property
    def address(self) -> str:
        """The address for `TIDEMARK_SCHEMA_REGISTRY`."""
        return f"http://{LOOPBACK}:{self.port}{_API}"

    @property
    def answers(self) -> bool:
        """Whether it is ready."""
        try:
            return self._ask("GET", "/subjects")[0] == HTTPStatus.OK
        except (OSError, HTTPException):
            return False

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        """Registers an Avro schema, and returns its id; the same schema has the same id.

        Args:
            subject: for instance `planes-avro-value`.
            schema: the schema as JSON.

        Raises:
            TidemarkError: it refuses the schema.
        """
        status, found = self._ask("POST", f"/subjects/{subject}/versions", {"schema": json.dumps(schema)})
        if status != HTTPStatus.OK:
            raise TidemarkError(f"the schema registry refuses {subject} with {status}", next="make demo-weather again.")
        return int(found["id"])

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> tuple[int, Any]:
        connection = HTTPConnection(LOOPBACK, self.port, timeout=20)
        try:
            connection.request(method, _API + path, None if body is None else json.dumps(body), {"Content-Type": _TYPE})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


def start_registry(settings: Settings) -> DemoRegistry:
    """Starts the registry if it does not run, and waits until it answers.

    Raises:
        NotFoundError: the program is not there.
        TidemarkError: it does not answer.
    """
    if not apicurio.is_here(environ):
        raise NotFoundError("Apicurio, the schema registry, is not here", next="make setup-registry")
    port_file = settings.home / "demo" / "registry.json"
    before = int(json.loads(port_file.read_text())["port"]) if port_file.exists() else None
    record = processes.load_record(settings.home, NAME)
    if before is not None and record is not None and record.is_running:
        return DemoRegistry(before)
    found = DemoRegistry(before if before is not None and is_free(before) else next(filter(is_free, PORTS)))
    settings.home.mkdir(parents=True, exist_ok=True)
    env = service_environment(settings) | {"QUARKUS_HTTP_PORT": str(found.port), "QUARKUS_HTTP_HOST": LOOPBACK}
    jar = apicurio.find_folder(environ) / apicurio.RUNNER
    argv = (str(require_java().executable), "-Xmx300m", "-XX:TieredStopAtLevel=1", "-jar", str(jar))
    started = processes.start(NAME, argv, env, settings.home)
    processes.write_whole(port_file, json.dumps({"port": found.port}))
    processes.wait_until(lambda: found.answers or not started.is_running, time.monotonic() + PATIENCE)
    if not found.answers:
        raise TidemarkError(
            "the schema registry does not answer",
            safe="nothing else was started.",
            next=f"read {processes.log_path(settings.home, NAME)}, then make demo-weather again.",
        )
    return found
