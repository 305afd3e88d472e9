"""A pipeline on disk with a clock that is set by hand, and real listeners of StatsD."""

import threading
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.pipelines.trips import trips
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.statsd import Statsd
from tests.support.trips import TripsPipeline, settings_of
from tidemark.telemetry import bounded


@pytest.fixture
def statsd() -> Iterator[Statsd]:
    """A StatsD server."""
    server = Statsd()
    yield server
    server.close()


@pytest.fixture
def world(tmp_path: Path) -> TripsPipeline:
    """The trips, without a checkpoint."""
    line = DiskPipeline(tmp_path / "warehouse", trips, "trips")
    return TripsPipeline(line, DiskContext(line, settings_of(tmp_path)))


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
