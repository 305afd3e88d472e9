"""The pipeline of the DAG tests on disk, for tests of the pages and of observability."""

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.airflow.pipelines.trips import trips
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tidemark.context import Context
from tidemark.coordinator.records.states import OpenPlan
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.store_objects import Failure
from tidemark.ports import PlanRequest
from tidemark.settings import Settings, load_settings
from tidemark.testing.twin.memory import ManualClock

PIPELINES = Path(__file__).parents[1] / "airflow" / "pipelines"
AT = datetime(2024, 5, 1, tzinfo=UTC)


@dataclass
class TripsPipeline:
    """The pipeline of bus trips: its records, its checkpoints, and the context of its pages."""

    line: DiskPipeline
    pages: Context
    sent: list[tuple[str | None, int]] = field(default_factory=list)

    @classmethod
    def ago(cls, home: Path, ms: int) -> "TripsPipeline":
        """One in the warehouse of an API server, whose clock is behind by some milliseconds."""
        line = DiskPipeline(home / "warehouse", trips, "trips", clock=ManualClock(int(time.time() * 1000) - ms))
        context = DiskContext(line, settings_of(home))
        context.clock = line.clock
        return cls(line, context)

    def drive(self, *buses: str | None, partition: int = 0) -> None:
        """Sends a trip of each bus."""
        for bus in buses:
            self.sent.append((bus, partition))
            value = {"bus": bus, "miles": 1, "ended_at": AT.isoformat()}
            self.line.send([(partition, json.dumps(value).encode(), int(AT.timestamp() * 1000))])

    def checkpoint(self, *buses: str | None) -> int:
        """Completes a checkpoint over trips of these buses. Returns its id."""
        self.drive(*buses)
        return self.line.checkpoint().id

    def plan(self, origin: str = "test") -> CheckpointPlan:
        """Creates an open plan: a checkpoint in progress."""
        found = self.line.coordinator.trigger(trips, PlanRequest(origin=origin))
        assert isinstance(found, OpenPlan)
        return found.plan

    def fail(self, message: str = "Spark failed") -> int:
        """Creates a plan and aborts it with an engine error. Returns its id."""
        plan = self.plan()
        failure = Failure(reason=FailureReason.ENGINE_ERROR, message=message, next="run it again.")
        self.line.coordinator.abort(plan, failure)
        return plan.id

    @property
    def root(self) -> Path:
        """The folder that contains the warehouse."""
        return self.line.root.parent

    @property
    def folder(self) -> Path:
        """The folder of the pipeline's objects."""
        return self.line.root / "trips"

    def context(self, **settings: Any) -> DiskContext:
        """A context as another process has it: the same warehouse and clock, with these settings."""
        made = DiskContext(self.line, settings_of(self.root, **settings))
        made.clock = self.line.clock
        return made


def settings_of(root: Path, **settings: Any) -> Settings:
    """Settings for a warehouse below `root`, with the pipelines of the DAG tests."""
    return load_settings(root=str(root), warehouse=str(root / "warehouse"), pipelines=str(PIPELINES), **settings)
