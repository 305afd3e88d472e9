"""A pipeline on disk with a clock that is set by hand, and real listeners of StatsD."""

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.airflow.pipelines.trips import trips
from tests.cli.disk_line import DiskLine
from tests.cli.disk_runtime import DiskRuntime
from tests.pages.conftest import PIPELINES, Trips
from tidemark.settings import load_settings
from tidemark.wiring.pages import Pages


class Statsd:
    """A UDP listener that keeps what it gets, as a StatsD server parses it."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.2)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.gauges: dict[str, float] = {}
        self.lines: list[str] = []
        self._ends = False
        self._thread = Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while not self._ends:
            try:
                datagram = self._socket.recv(65536)
            except TimeoutError:
                continue
            for line in datagram.decode("ascii").splitlines():
                self._take(line)

    def _take(self, line: str) -> None:
        """The grammar of StatsD: `name:value|g`, where a sign changes what is there."""
        self.lines.append(line)
        name, _, rest = line.partition(":")
        value, kind = rest.split("|")
        assert kind == "g"
        before = self.gauges.get(name, 0.0) if value[0] in "+-" else 0.0
        self.gauges[name] = before + float(value)

    def settled(self) -> dict[str, float]:
        """The gauges, when nothing more comes in."""
        seen = -1
        while seen != len(self.lines):
            seen = len(self.lines)
            self._thread.join(0.3)
        return self.gauges

    def close(self) -> None:
        """Ends the listener."""
        self._ends = True
        self._thread.join()
        self._socket.close()


@pytest.fixture
def statsd() -> Iterator[Statsd]:
    """A StatsD server."""
    server = Statsd()
    yield server
    server.close()


@dataclass
class World(Trips):
    """The trips, with a runtime whose settings may be changed."""

    root: Path = field(default_factory=Path)

    def runtime(self, **settings: Any) -> DiskRuntime:
        """Another process over the same warehouse, with these settings, and with the line's clock."""
        given = load_settings(
            root=str(self.root), warehouse=str(self.root / "warehouse"), pipelines=str(PIPELINES), **settings
        )
        made = DiskRuntime(self.line, given)
        made.clock = self.line.clock  # type: ignore[assignment]
        return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One of it, without a checkpoint."""
    line = DiskLine(tmp_path / "warehouse", trips, "trips")
    settings = load_settings(root=str(tmp_path), warehouse=str(tmp_path / "warehouse"), pipelines=str(PIPELINES))
    return World(line, Pages(DiskRuntime(line, settings)), root=tmp_path)


@pytest.fixture
def logged() -> Iterator[list[dict[str, Any]]]:
    """What is logged by structlog in the test."""
    from structlog.testing import capture_logs

    with capture_logs() as entries:
        yield entries  # type: ignore[misc]


Make = Callable[[], World]
