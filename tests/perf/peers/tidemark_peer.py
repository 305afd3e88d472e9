"""Tidemark itself: one checkpoint per run, in the driver's JVM or through a warm Connect server."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

import pyarrow as pa

from tests.perf.needed import named
from tests.perf.peers.places import COLUMNS, ROOT, Place
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.plan import CheckpointPlan
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
        until: the end of the interval whose records the next run takes; all that there are without it.
        newest: the id of its last checkpoint.
        records: how many its last checkpoint has read.
        plan: of its last checkpoint.
        phases: seconds of its last checkpoint.
        compacted: what the last upkeep rewrote: nothing, levels, or the whole base.
    """

    place: Place
    spark: str
    timeline: str | None = None
    until: datetime | None = None
    newest: int | None = None
    least: int = field(init=False, default=1)
    records: int = field(init=False, default=0)
    plan: CheckpointPlan | None = field(init=False, default=None)
    phases: dict[str, float] = field(init=False, default_factory=dict)
    compacted: Literal["", "level", "whole"] = field(init=False, default="")

    def __post_init__(self) -> None:
        settings = load_settings(
            home=self.place.folder, pipelines=PIPELINES, kafka_bootstrap=self.place.bootstrap, spark=self.spark
        )
        self.runtime: Runtime = open_runtime(settings)

    def take(self) -> None:
        """One checkpoint."""
        request = PlanRequest(origin="bench", interval_end=self.until, until_interval_end=self.until is not None)
        made = self.runtime.run_once(self.place.topic, request, timeline=self.timeline).checkpoint
        assert made is not None, f"{self.place.topic} had nothing to checkpoint"
        self.newest, self.plan, self.records = made.plan.id, made.plan, made.sealed.facts.records
        self.phases = {phase: ms / 1000 for phase, ms in made.sealed.timings_ms.items()}

    def upkeep(self) -> None:
        """Compacts what is due."""
        done = self.runtime.compact(self.place.topic)
        groups = {f.checkpoint for record in done for s in record.output for f in self.runtime.tables.files_of(s)}
        self.compacted = "" if not done else "whole" if len(groups) == 1 else "level"

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

    def mark(self) -> int:
        """The checkpoint's id."""
        assert self.newest is not None
        return self.newest

    def needed(self, marks: Sequence[int]) -> dict[Path, str]:
        """What their manifests name, by a plain replay of the logs."""
        root = Path(str(self.runtime.settings.warehouse))
        found = (made for made in self.runtime.checkpoints(self.place.topic) if made.plan.id in marks)
        return dict.fromkeys((path for made in found for path in named(root, made)), "state")

    def keep(self, marks: Sequence[int]) -> None:
        """Nothing: the rule goes with the sweep."""

    def drop(self, marks: Sequence[int]) -> None:
        """One sweep that keeps as many."""
        self.runtime.retention_sweep(self.place.topic, f"keep_last({len(marks)})", grace_ms=0)

    def back_to(self, mark: int) -> None:
        """A restore of the checkpoint."""
        self.runtime.restore(self.place.topic, RestoreRequest(checkpoint=mark))
