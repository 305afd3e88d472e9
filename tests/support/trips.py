"""The trips of buses on disk: the pipeline of the DAG tests, for the pages and for what observes runs."""

import json
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

PIPELINES = Path(__file__).parents[1] / "airflow" / "pipelines"
AT = datetime(2024, 5, 1, tzinfo=UTC)


@dataclass
class TripsPipeline:
    """The trips of buses: its records, its checkpoints, and the pages over them."""

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
    def root(self) -> Path:
        """The folder with the warehouse."""
        return self.line.root.parent

    @property
    def folder(self) -> Path:
        """Of the pipeline's objects."""
        return self.line.root / "trips"

    def context(self, **settings: Any) -> DiskContext:
        """Another process over the same warehouse, with these settings, and with the pipeline's clock."""
        made = DiskContext(self.line, settings_of(self.root, **settings))
        made.clock = self.line.clock
        return made


def settings_of(root: Path, **settings: Any) -> Settings:
    """Settings of the trips' warehouse below a folder."""
    return load_settings(root=str(root), warehouse=str(root / "warehouse"), pipelines=str(PIPELINES), **settings)
