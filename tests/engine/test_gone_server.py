"""A Connect server that is killed under a query is noticed soon; a cut network before a living one is survived."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from devstack import control
from devstack.addresses import LOOPBACK
from tests.support.spark_cluster import ROOT
from tidemark.embedded_services import recorded_service
from tidemark.engine.session.session import PATIENCE
from tidemark.settings import load_settings

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
CLIENT = """
import sys, uuid
from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.engine.session.session import SparkSettings, open_session
from tidemark.errors import EngineError

spark = open_session(SparkSettings(master=sys.argv[1]), f"tests/{uuid.uuid4().hex}", 1)
# Numbers by the hundred million are summed in seconds only by generated code, which the shared server may leave out.
for name, value in (("wholeStage", "true"), ("factoryMode", "FALLBACK")):
    spark.conf.set(f"spark.sql.codegen.{name}", value)
assert spark.range(3).count() == 3
print("ready", flush=True)
try:
    with translate_spark_errors():
        kept = spark.range(int(sys.argv[2])).selectExpr("sum(id % 7) AS found").persist()
        print("found", *kept.collect()[0], flush=True)
except EngineError as error:
    print("gone", str(error).replace("\\n", " | "), flush=True)
spark.stop()
"""
FOR_EVER, FOR_SECONDS = 10**14, 2 * 10**8


class Client:
    """A client in a process of its own, and when it said what."""

    def __init__(self, address: str, rows: int) -> None:
        env = os.environ | {"PYTHONPATH": str(ROOT / "include")}
        command = [sys.executable, "-c", CLIENT, address, str(rows)]
        self._process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def says(self) -> str:
        """Its next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, self._process.stderr.read() if self._process.stderr else ""
        return line

    def ends(self) -> None:
        """Waits for its end, which is a good one."""
        _, err = self._process.communicate(timeout=120)
        assert self._process.returncode == 0, err

    def kill(self) -> None:
        """Ends it, whatever it does."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def client_of(address: str, rows: int) -> Iterator[Client]:
    client = Client(address, rows)
    try:
        yield client
    finally:
        client.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The address and the process of a server that nobody else uses."""
    settings = load_settings(home=str(tmp_path))
    control.up(settings, only=("spark",), warm=False)
    try:
        recorded = recorded_service(settings.home, "spark")
        assert recorded is not None
        yield settings.spark_address, psutil.Process(recorded.pid)
    finally:
        control.down(settings)


def test_a_killed_server_is_noticed_and_nothing_waits_for_it_a_second_time(
    server: tuple[str, psutil.Process],
) -> None:
    address, process = server
    with client_of(address, FOR_EVER) as client:
        assert client.says() == "ready"
        time.sleep(2)
        process.kill()
        process.wait(60)
        killed = time.monotonic()
        said = client.says()
        noticed = time.monotonic() - killed
        client.ends()
        ended = time.monotonic() - killed
    print(f"noticed after {noticed:.1f} s, ended after {ended:.1f} s")
    assert said.startswith("gone Spark no longer answers") and said.count(" | ") == 2, said
    # One patience, and twice as much again for a machine that is busy with other things: before, each call waited.
    assert PATIENCE / 2 < noticed < 2 * PATIENCE
    assert ended < 3 * PATIENCE


def test_a_server_that_gives_no_sign_of_life_counts_as_gone(server: tuple[str, psutil.Process]) -> None:
    """As if its machine had vanished: connections stay open, and nothing answers."""
    address, process = server
    whole = [process, *process.children(recursive=True)]
    with client_of(address, FOR_EVER) as client:
        assert client.says() == "ready"
        time.sleep(2)
        for one in whole:
            one.suspend()
        try:
            frozen = time.monotonic()
            said = client.says()
            noticed = time.monotonic() - frozen
            client.ends()
        finally:
            for one in whole:
                one.resume()
    print(f"noticed after {noticed:.1f} s")
    assert said.startswith("gone Spark no longer answers"), said
    assert noticed < 3 * PATIENCE, "gRPC's own limit is a minute"


class Network:
    """Passes bytes between clients and a server, until it is cut."""

    def __init__(self, server: str) -> None:
        at = urlsplit(server)
        self._server = (at.hostname or LOOPBACK, at.port or 15002)
        self._open: list[socket.socket] = []
        self._listener = self._listening(0)

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"sc://{LOOPBACK}:{self._port}"

    def cut(self) -> None:
        """Breaks every connection, and takes no new ones."""
        for end in [self._listener, *self._open]:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._open = []

    def mend(self) -> None:
        """Takes connections again."""
        self._listener = self._listening(self._port)

    def _listening(self, port: int) -> socket.socket:
        made = socket.create_server((LOOPBACK, port))
        self._port: int = made.getsockname()[1]
        _in_background(lambda: self._accept(made))
        return made

    def _accept(self, listener: socket.socket) -> None:
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(self._server)
            self._open += [near, far]
            _in_background(partial(_pass, near, far))
            _in_background(partial(_pass, far, near))


def _pass(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(2**16):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


def _in_background(work: Callable[[], None]) -> None:
    def until_cut() -> None:
        with suppress(OSError):
            work()

    threading.Thread(target=until_cut, daemon=True).start()


def test_a_cut_of_the_network_before_a_living_server_is_survived(spark_server: str) -> None:
    network = Network(spark_server)
    try:
        with client_of(network.address, FOR_SECONDS) as client:
            assert client.says() == "ready"
            for _ in range(2):
                time.sleep(0.5)
                network.cut()
                time.sleep(PATIENCE / 4)
                network.mend()
            assert client.says() == f"found {sum(n % 7 for n in range(FOR_SECONDS % 7)) + FOR_SECONDS // 7 * 21}"
            client.ends()
    finally:
        network.cut()
