"""A real broker for tests, with the settings of the embedded stack, in a temporary folder and on free ports."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from devstack.addresses import Addresses
from devstack.broker import broker_answers, server_properties
from devstack.java import find_java

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".jars" / "kafka"
CLUSTER_ID = "dGlkZW1hcmstdGVzdHMtMA"
START_TIMEOUT = 90.0
Process = TypeVar("Process", bound="BrokerProcess")


class BrokerProcess:
    """A broker and its folder. `stop` waits until the process has ended; `kill` sends SIGKILL."""

    more: Sequence[str] = ()
    """Lines of settings that override those of the embedded stack."""
    format_options: Sequence[str] = ()
    client: Mapping[str, str] = {}
    """Settings that librdkafka needs in addition to the address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.controller, self.second = _free_ports(3)
        self.properties = folder / "server.properties"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The bootstrap address."""
        return f"127.0.0.1:{self.port}"

    def format(self) -> None:
        """Writes the settings and formats the log folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        addresses = Addresses(kafka_port=self.port, kafka_controller_port=self.controller, spark_port=0, airflow_port=0)
        own = server_properties(addresses, self.folder / "data")
        self.properties.write_text(own + "".join(f"{line}\n" for line in self.more))
        arguments = ["format", "--standalone", "-t", CLUSTER_ID, "-c", str(self.properties), *self.format_options]
        command = [*_java("-Xmx256m"), "kafka.tools.StorageTool", *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=START_TIMEOUT)

    def start(self) -> None:
        """Starts the broker in a new process group and waits until it answers."""
        command = [*_java("-Xms256m", "-Xmx512m"), "kafka.Kafka", str(self.properties)]
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_TIMEOUT
        while not (_listens(self.port) and broker_answers(self.address, self.client)):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                tail = (self.folder / "broker.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"the test broker did not start:\n{tail}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Sends SIGTERM, and SIGKILL after ten seconds."""
        self._end(signal.SIGTERM, patience=10)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self._end(signal.SIGKILL, patience=10)

    def _end(self, how: signal.Signals, patience: float) -> None:
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, how)
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(patience)
        self.process = None


@contextlib.contextmanager
def running_broker(folder: Path) -> Iterator[BrokerProcess]:
    """Runs a new broker for the duration of the block."""
    with running(BrokerProcess(folder)) as broker:
        yield broker


@contextlib.contextmanager
def running(broker: Process) -> Iterator[Process]:
    """Formats and starts a broker, and stops it at the end of the block."""
    broker.format()
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def _java(*options: str) -> list[str]:
    java = find_java(os.environ)
    if java is None or not JARS.is_dir():
        raise RuntimeError("a test broker needs Java 17 and the jars of `make setup`")
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return [str(java.executable), *options, *quick, "-cp", f"{JARS}/*"]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
