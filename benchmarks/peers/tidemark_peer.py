"""Tidemark itself: one checkpoint per run, in the driver's JVM or through a warm Connect server."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

import pyarrow as pa

from benchmarks.needed import named
from benchmarks.peers.places import COLUMNS, ROOT, Place
from tidemark.context import Context, open_context
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import checkpoints, compaction, reads, retention, savepoints, timelines
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings

PIPELINES = str(ROOT / "benchmarks" / "peers" / "pipelines")


@dataclass
class TidemarkPeer:
    """A pipeline with one fold.

    Attributes:
        place: the topic and folder of the peer.
        spark: `local[2]` for the session of this process, or the address of a Connect server.
        timeline: the name of a fork, or None for the live timeline.
        pipeline: the name of the pipeline; that of the topic by default.
        until: the end of the interval whose records the next run reads, or None for all records.
        newest: the id of the last checkpoint.
        records: the number of records that the last checkpoint has read.
        plan: the plan of the last checkpoint.
        phases: the seconds of each phase of the last checkpoint.
        compacted: whether the last upkeep rewrote nothing, levels, or the whole base.
    """

    place: Place
    spark: str
    timeline: str | None = None
    pipeline: str = ""
    until: datetime | None = None
    newest: int | None = None
    least: int = field(init=False, default=1)
    records: int = field(init=False, default=0)
    plan: CheckpointPlan | None = field(init=False, default=None)
    phases: dict[str, float] = field(init=False, default_factory=dict)
    compacted: Literal["", "level", "whole"] = field(init=False, default="")

    def __post_init__(self) -> None:
        self.pipeline = self.pipeline or self.place.topic
        settings = load_settings(
            home=self.place.folder, pipelines=PIPELINES, kafka_bootstrap=self.place.bootstrap, spark=self.spark
        )
        self.context: Context = open_context(settings)

    def take(self) -> None:
        """Completes one checkpoint."""
        request = PlanRequest(origin="bench", interval_end=self.until, until_interval_end=self.until is not None)
        made = checkpoints.run_once(self.context, self.pipeline, request, timeline=self.timeline).checkpoint
        assert made is not None, f"{self.pipeline} had nothing to checkpoint"
        self.newest, self.plan, self.records = made.plan.id, made.plan, made.sealed.facts.records
        self.phases = {phase: ms / 1000 for phase, ms in made.sealed.timings_ms.items()}

    def upkeep(self) -> None:
        """Runs the due compactions."""
        done = compaction.compact(self.context, self.pipeline)
        groups = {f.checkpoint for record in done for s in record.output for f in self.context.tables.files_of(s)}
        self.compacted = "" if not done else "whole" if len(groups) == 1 else "level"

    def close(self) -> None:
        """Does nothing: no process or query runs between two checkpoints."""

    def rows(self) -> pa.Table:
        """Reads the state at the last checkpoint of this process, or at the head if there is none."""
        return reads.read_state(self.context, self.pipeline, "totals", checkpoint=self.newest).select(COLUMNS)

    def savepoint(self, name: str) -> None:
        """Creates a savepoint, which is one small object."""
        request = SavepointRequest(name=name, owner="bench", origin="bench")
        savepoints.open_savepoints(self.context, self.pipeline).create(request)

    def restore(self, name: str) -> None:
        """Makes a new timeline live, after looking at every file of the state."""
        timelines.restore(self.context, self.pipeline, RestoreRequest(savepoint=name))

    def forked(self, name: str, place: Place) -> "TidemarkPeer":  # noqa: ARG002
        """Forks a timeline in the same warehouse."""
        timeline = f"fork-of-{name}"
        timelines.fork(self.context, self.pipeline, timeline, RestoreRequest(savepoint=name))
        return TidemarkPeer(self.place, self.spark, timeline)

    def mark(self) -> int:
        """Returns the id of the last checkpoint."""
        assert self.newest is not None
        return self.newest

    def needed(self, marks: Sequence[int]) -> dict[Path, str]:
        """Returns the files that the checkpoints' manifests name, found by a plain replay of the logs."""
        root = Path(str(self.context.settings.warehouse))
        found = (made for made in reads.list_checkpoints(self.context, self.pipeline) if made.plan.id in marks)
        return dict.fromkeys((path for made in found for path in named(root, made)), "state")

    def keep(self, marks: Sequence[int]) -> None:
        """Does nothing: `drop` passes the retention rule to the sweep."""

    def drop(self, marks: Sequence[int]) -> None:
        """Runs one sweep that keeps as many checkpoints as there are marks."""
        retention.sweep(self.context, self.pipeline, f"keep_last({len(marks)})", grace_ms=0)

    def back_to(self, mark: int) -> None:
        """Restores the checkpoint."""
        timelines.restore(self.context, self.pipeline, RestoreRequest(checkpoint=mark))
