"""A pipeline on disk with a clock that is set by hand, and real listeners of StatsD."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.pipelines.trips import trips
from tests.pages.conftest import PIPELINES, Trips
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.statsd import Statsd
from tidemark.settings import load_settings
from tidemark.telemetry import bounded


@pytest.fixture
def statsd() -> Iterator[Statsd]:
    """A StatsD server."""
    server = Statsd()
    yield server
    server.close()


@dataclass
class ObservedTrips(Trips):
    """The trips, with a context whose settings may be changed."""

    root: Path = field(default_factory=Path)

    def context(self, **settings: Any) -> DiskContext:
        """Another process over the same warehouse, with these settings, and with the line's clock."""
        given = load_settings(
            root=str(self.root), warehouse=str(self.root / "warehouse"), pipelines=str(PIPELINES), **settings
        )
        made = DiskContext(self.line, given)
        made.clock = self.line.clock  # type: ignore[assignment]
        return made


@pytest.fixture
def world(tmp_path: Path) -> ObservedTrips:
    """One of it, without a checkpoint."""
    line = DiskPipeline(tmp_path / "warehouse", trips, "trips")
    settings = load_settings(root=str(tmp_path), warehouse=str(tmp_path / "warehouse"), pipelines=str(PIPELINES))
    return ObservedTrips(line, DiskContext(line, settings), root=tmp_path)


@pytest.fixture
def logged() -> Iterator[list[dict[str, Any]]]:
    """What is logged by structlog in the test."""
    from structlog.testing import capture_logs

    with capture_logs() as entries:
        yield entries  # type: ignore[misc]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a run was willing to wait for whoever is told, each time that it waited to the end.

    Counted, not clocked: a busy machine makes a wait longer, never another one.
    """
    waited: list[float] = []

    class Counted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            done = super().wait(timeout)
            if not done:
                waited.append(inf if timeout is None else timeout)
            return done

    monkeypatch.setattr(bounded, "Event", Counted)
    return waited
