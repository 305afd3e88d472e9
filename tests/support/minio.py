"""A real object store for tests: MinIO in a process of its own, which can be killed and started again."""

import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devstack.minio import MISSING, find_program, is_here
from tests.support.prerequisites import needs

START_TIMEOUT = 60.0
PORTS = range(20_000, 30_000)
"""Below those of outgoing connections, one of which could take the port while the store is down."""


def needs_minio() -> pytest.MarkDecorator:
    """The mark of tests that need MinIO."""
    return needs(is_here(os.environ), MISSING)


class MinioProcess:
    """A store and its folder. `stop` waits until the process has ended; `kill` sends SIGKILL.

    Args:
        folder: for its data and its log.
        key: name of its only user.
        secret: the password.
    """

    def __init__(self, folder: Path, key: str, secret: str) -> None:
        self.folder, self.port = folder, _free_port()
        self._variables = {"MINIO_ROOT_USER": key, "MINIO_ROOT_PASSWORD": secret}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the store over what its folder holds, and waits until it is ready."""
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        more = {"MINIO_BROWSER": "off", "MINIO_UPDATE": "off", "HOME": str(self.folder), "GOMAXPROCS": "2"}
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("MINIO_", "AWS_"))}
        command = [str(find_program(os.environ)), "server", "--quiet", "--address", f"127.0.0.1:{self.port}", str(data)]
        with (self.folder / "minio.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=plain | more | self._variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_TIMEOUT
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                tail = (self.folder / "minio.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"MinIO did not start:\n{tail}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Sends SIGTERM, and SIGKILL after ten seconds."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._process = None

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/minio/health/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


@contextmanager
def running_minio(folder: Path, key: str, secret: str) -> Iterator[MinioProcess]:
    """Runs an empty store for the duration of the block."""
    store = MinioProcess(folder, key, secret)
    store.start()
    try:
        yield store
    finally:
        store.stop()


def _free_port() -> int:
    for port in random.sample(PORTS, 50):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise RuntimeError("no free port for MinIO")
