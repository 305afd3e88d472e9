"""A pipeline on disk, and the pages' answers over it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.airflow.pipelines.trips import trips
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tidemark.context import Context
from tidemark.coordinator.records.states import OpenPlan
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.store_objects import Failure
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings

AT = datetime(2024, 5, 1, tzinfo=UTC)


@dataclass
class Trips:
    """The trips of buses: who drives, what is made of it, and what the pages say."""

    line: DiskPipeline
    pages: Context
    sent: list[tuple[str | None, int]] = field(default_factory=list)

    def drive(self, *buses: str | None, partition: int = 0) -> None:
        """A trip of each bus."""
        for bus in buses:
            self.sent.append((bus, partition))
            value = {"bus": bus, "miles": 1, "ended_at": AT.isoformat()}
            self.line.send([(partition, json.dumps(value).encode(), int(AT.timestamp() * 1000))])

    def checkpoint(self, *buses: str | None) -> int:
        """Completes a checkpoint over trips of some buses; its id."""
        self.drive(*buses)
        return self.line.checkpoint().id

    def plan(self, origin: str = "test") -> CheckpointPlan:
        """A checkpoint that is in progress."""
        found = self.line.coordinator.trigger(trips, PlanRequest(origin=origin))
        assert isinstance(found, OpenPlan)
        return found.plan

    def fail(self, message: str = "Spark failed") -> int:
        """A checkpoint that fails; its id."""
        plan = self.plan()
        failure = Failure(reason=FailureReason.ENGINE_ERROR, message=message, next="run it again.")
        self.line.coordinator.abort(plan, failure)
        return plan.id

    @property
    def folder(self) -> Path:
        """Of the pipeline's objects."""
        return self.line.root / "trips"


@pytest.fixture
def trips_of(tmp_path: Path) -> Callable[[], Trips]:
    """Makes the world; called again, it forgets what the pages have read, as a new process does."""
    line = DiskPipeline(tmp_path / "warehouse", trips, "trips")
    settings = load_settings(root=str(tmp_path), warehouse=str(tmp_path / "warehouse"), pipelines=str(PIPELINES))
    return lambda: Trips(line, DiskContext(line, settings))


@pytest.fixture
def world(trips_of: Callable[[], Trips]) -> Trips:
    """One of it."""
    return trips_of()


PIPELINES = Path(__file__).parents[1] / "airflow" / "pipelines"
