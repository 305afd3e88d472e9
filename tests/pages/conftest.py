"""A pipeline on disk, and the pages' answers over it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.airflow.pipelines.trips import trips
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.trips import TripsPipeline, settings_of


@pytest.fixture
def trips_of(tmp_path: Path) -> Callable[[], TripsPipeline]:
    """Makes the pipeline; called again, it forgets what the pages have read, as a new process does."""
    line = DiskPipeline(tmp_path / "warehouse", trips, "trips")
    settings = settings_of(tmp_path)
    return lambda: TripsPipeline(line, DiskContext(line, settings))


@pytest.fixture
def world(trips_of: Callable[[], TripsPipeline]) -> TripsPipeline:
    """One of it."""
    return trips_of()
