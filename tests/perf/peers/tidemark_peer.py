"""Tidemark itself: one checkpoint per run, in the driver's JVM or through a warm Connect server."""

from dataclasses import dataclass, field

import pyarrow as pa

from tests.perf.peers.places import COLUMNS, ROOT, Place
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.savepoint import SavepointRequest
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings
from tidemark.wiring import Runtime, open_runtime

PIPELINES = str(ROOT / "tests" / "perf" / "peers" / "pipelines")


@dataclass
class TidemarkPeer:
    """A pipeline with one fold.

    Attributes:
        place: its topic and folder.
        spark: `local[2]`, which is the session that this process has, or the address of a Connect server.
        timeline: a fork; the live timeline without it.
    """

    place: Place
    spark: str
    timeline: str | None = None
    newest: int | None = None
    phases: dict[str, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        settings = load_settings(
            home=self.place.folder, pipelines=PIPELINES, kafka_bootstrap=self.place.bootstrap, spark=self.spark
        )
        self.runtime: Runtime = open_runtime(settings)

    def take(self) -> None:
        """One checkpoint."""
        made = self.runtime.run_once(self.place.topic, PlanRequest(origin="bench"), timeline=self.timeline).checkpoint
        assert made is not None, f"{self.place.topic} had nothing to checkpoint"
        self.newest = made.plan.id
        self.phases = {phase: ms / 1000 for phase, ms in made.sealed.timings_ms.items()}

    def upkeep(self) -> None:
        """Compacts what is due."""
        self.runtime.compact(self.place.topic)

    def close(self) -> None:
        """Nothing runs between two runs."""

    def rows(self) -> pa.Table:
        """The state that the last run of this process has left, or that at the head."""
        return self.runtime.state_table(self.place.topic, "totals", checkpoint=self.newest).select(COLUMNS)

    def savepoint(self, name: str) -> None:
        """One small object."""
        request = SavepointRequest(name=name, owner="bench", origin="bench")
        self.runtime.savepoints(self.place.topic).create(request)

    def restore(self, name: str) -> None:
        """A new timeline becomes live; every file of the state is looked at."""
        self.runtime.restore(self.place.topic, RestoreRequest(savepoint=name))

    def forked(self, name: str, place: Place) -> "TidemarkPeer":  # noqa: ARG002
        """A timeline of the same warehouse."""
        timeline = f"fork-of-{name}"
        self.runtime.fork(self.place.topic, timeline, RestoreRequest(savepoint=name))
        return TidemarkPeer(self.place, self.spark, timeline)
