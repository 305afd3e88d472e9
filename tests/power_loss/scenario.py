"""What is recorded: checkpoints, killed attempts, a publication by another process, compactions, sweeps, an erasure.

Run as `python -m tests.power_loss.scenario FOLDER [PLANTED ...]`: without names of planted bugs the first half, with
them (one may be empty) the second, in FOLDER/0 and so on. What it has done it appends to a file beside the warehouse,
line by line: the oracle goes by that, as a user by what was reported.
"""

import itertools
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.power_loss.power_loss_bugs import PLANTED
from tests.support.crashes import Killed
from tests.support.retention import ASK, ONE_FOLD, DiskRetentionPipeline
from tidemark.coordinator.checkpoints.job import ignore_step
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.coordinator.checkpoints.state_compactor import CompactionTask, StateCompactor
from tidemark.declare.retention import Retention
from tidemark.engine.write.parquet_writer import written_run
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.retention import deletion
from tidemark.model.state.compaction import LevelPolicy
from tidemark.model.state.row_compaction import RowPolicy
from tidemark.tables import delta_tables as delta_log
from tidemark.transfer.level_files import merge_levels

TOLD = "told"
"""The file beside the warehouse with what was reported."""
INTERVAL = 4
"""Commits between two Delta log checkpoints here, so that few make several, and sweeps have logs to trim."""
KEPT = Retention.keep_last(2)
ERASED = "bob"


@contextmanager
def short_logs() -> Iterator[None]:
    """A Delta log checkpoint every few commits."""
    settings = {**delta_log.CONFIGURATION, "delta.checkpointInterval": str(INTERVAL)}
    with patch.object(delta_log, "CONFIGURATION", settings), patch.object(deletion, "INTERVAL", INTERVAL):
        yield


class PowerLossPipeline(DiskRetentionPipeline):
    """The verbs; ids differ from process to process, as they do in life."""

    def __init__(self, root: Path, process: str) -> None:
        super().__init__(root, pipeline=ONE_FOLD)
        self._ids = (f"{process}{n:030x}" for n in itertools.count(1))
        self.paid: list[str] = []

    def pay(self, *accounts: str, amount: int = 1) -> None:
        """See `RetentionPipeline`; by offset it is remembered who paid."""
        super().pay(*accounts, amount=amount)
        self.paid += accounts

    def completed(self) -> Checkpoint:
        """Completes a checkpoint over what was paid; time goes on."""
        self.clock.advance(1000)
        loop = CheckpointLoop(coordinator=self.coordinator, pipeline=self.pipeline, execute=self.run)
        return loop.run_once(ASK).checkpoints[-1]

    def killed(self, at: tuple[str, str]) -> None:
        """An attempt that is killed at a step."""

        def crash(step: str, moment: str) -> None:
            if (step, moment) == at:
                raise Killed

        self.clock.advance(1000)
        execute = lambda attempt: self.run(attempt, crash)  # noqa: E731
        try:
            CheckpointLoop(coordinator=self.coordinator, pipeline=self.pipeline, execute=execute).run_once(ASK)
        except Killed:
            return
        raise AssertionError(f"nobody came to {at}")

    def compacted(self) -> bool:
        """Compacts the newest checkpoint; whether there was anything to do."""
        newest = next(self.coordinator.checkpoints())
        task = CompactionTask(
            pipeline=self.pipeline.name,
            timeline=newest.plan.slot.timeline,
            checkpoint=newest.id,
            schema=newest.plan.schemas["accounts"],
            handle=newest.handles["accounts"],
            now=newest.now,
            table=newest.plan.tables["accounts"],
            policy=LevelPolicy.everything(),
            revision=newest.revision,
        )
        objects: Any = self.coordinator.objects
        made = StateCompactor(
            merge=partial(merge_levels, str(self.root), footers=written_run),
            tables=self.tables,
            clock=self.clock,
            write_ids=self._id,
            listener=ignore_step,
            put_job=objects.put,
            put_record=objects.put,
        )
        return made.compact(task) is not None

    def handle(self, found: Checkpoint) -> StateHandle:
        """The state of a checkpoint."""
        return found.handles["accounts"]


class Told:
    """What was reported, for the oracle: one line each, beside the warehouse."""

    def __init__(self, path: Path) -> None:
        self._to = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def __call__(self, what: str, *facts: object) -> None:
        os.write(self._to, (json.dumps([what, *facts]) + "\n").encode())


def prepare(line: PowerLossPipeline, tell: Told) -> None:
    """A history: a compaction that was adopted, a log that was trimmed."""
    for n in range(INTERVAL + 2):
        _complete(line, tell, "ann", "bob", "")
        if n == INTERVAL:
            line.compacted()
    line.sweep(KEPT)
    tell("swept")


def record(line: PowerLossPipeline, tell: Told) -> None:
    """What power cuts are tried in."""
    _pay(line, tell, "ann", "cid")
    line.killed(("runs.accounts", "after"))
    line.killed(("runs.accounts", "after"))
    _complete(line, tell)
    _pay(line, tell, "ann", "bob")
    line.killed(("seal", "after"))
    _complete(line, tell)  # published by who comes next
    line.compacted()
    line.compact_rows(RowPolicy.everything())
    _complete(line, tell, "bob")
    _complete(line, tell, "ann", "")
    tell("sweep", line.clock.ms)
    line.sweep(KEPT)
    tell("swept")
    _complete(line, tell, "ann", "bob")
    tell("erase", line.clock.ms)
    line.erase("accounts", ERASED)
    tell("erased")
    tell("sweep", line.clock.ms)
    line.sweep(KEPT)
    tell("swept")


def _pay(line: PowerLossPipeline, tell: Told, *accounts: str) -> None:
    tell("paid", line.clock.ms, *accounts)
    line.pay(*accounts)


def _complete(line: PowerLossPipeline, tell: Told, *accounts: str) -> None:
    _pay(line, tell, *accounts)
    done = line.completed()
    tell("completed", done.id)


def main(folder: Path, planted: str | None = None) -> None:
    """The scenario's first half, or in a folder that has it the second one, with a planted bug."""
    with short_logs(), PLANTED[planted]() if planted else nullcontext():
        if planted is None:
            prepare(PowerLossPipeline(folder / "warehouse", "a1"), Told(folder / TOLD))
            return
        line = PowerLossPipeline(folder / "warehouse", "b2")
        for what, *facts in map(json.loads, (folder / TOLD).read_text().splitlines()):
            if what == "paid":
                line.clock.ms = facts[0]
                line.pay(*facts[1:])
        line.clock.advance(10_000)
        record(line, Told(folder / TOLD))


if __name__ == "__main__":
    at, *bugs = sys.argv[1:]
    if not bugs:
        main(Path(at))
    for number, bug in enumerate(bugs):
        main(Path(at, str(number)), bug)
