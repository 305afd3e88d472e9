"""A real schema registry for tests: Apicurio in a process of its own, in memory, which can be stopped."""

import json
import os
import random
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from devstack.apicurio import MISSING, RUNNER, find_folder, is_here
from devstack.java import find_java
from tests.support.prerequisites import needs

START_TIMEOUT = 90.0
PORTS = range(20_000, 30_000)
API = "/apis/ccompat/v7"
"""The path of the API that Confluent's clients use."""


def needs_registry() -> pytest.MarkDecorator:
    """The mark of tests that need a schema registry."""
    return needs(is_here(os.environ), MISSING)


class RegistryProcess:
    """A registry. Its schemas are gone when it stops; ids of another start from 1 again.

    Args:
        folder: for its log.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The base URL of the API that Confluent's clients use."""
        return f"http://127.0.0.1:{self.port}{API}"

    def start(self) -> None:
        """Starts it empty, and waits until it answers."""
        java = find_java(os.environ)
        assert java is not None, "Java is a prerequisite of all tests"
        env = os.environ | {"QUARKUS_HTTP_PORT": str(self.port), "QUARKUS_HTTP_HOST": "127.0.0.1"}
        command = [str(java.executable), "-Xmx300m", "-XX:TieredStopAtLevel=1", "-jar", RUNNER]
        with (self.folder / "apicurio.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=find_folder(os.environ), env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_TIMEOUT
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                tail = (self.folder / "apicurio.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"Apicurio did not start:\n{tail}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Ends it; nothing answers at its address then."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def register(self, subject: str, schema: Any, type: str = "AVRO", references: Sequence[Any] = ()) -> int:
        """Registers a schema and returns its id.

        Args:
            subject: for instance `orders-value`.
            schema: a text, or JSON.
            type: `AVRO`, `JSON` or `PROTOBUF`.
            references: (name, subject, version) of each schema that it uses.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        named = [dict(zip(("name", "subject", "version"), reference, strict=True)) for reference in references]
        body = {"schema": text, "schemaType": type, "references": named}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{API}/subjects/{subject}/versions",
            json.dumps(body).encode(),
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310  (the address above)
            found: int = json.load(answer)["id"]
        return found

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{API}/subjects", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


@contextmanager
def running_registry(folder: Path) -> Iterator[RegistryProcess]:
    """Runs an empty registry for the duration of the block."""
    registry = RegistryProcess(folder)
    registry.start()
    try:
        yield registry
    finally:
        registry.stop()


def _free_port() -> int:
    for port in random.sample(PORTS, 50):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise RuntimeError("no free port for the registry")
